"""How plugins come to the kubelet: the Registration service, the plugin watcher, and the
connection to each plugin.

What belongs here: servers and connections towards plugins. What never does: decisions.
"""
