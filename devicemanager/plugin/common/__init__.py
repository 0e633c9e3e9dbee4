"""What any program needs that serves a socket for a kubelet: nothing here is about devices.

Device plugins use it, and DRA drivers can. The modules are independent of each other:

* ``signals``: wait for SIGTERM and others without missing one.
* ``sockets``: check the socket directory; choose a name that no running program uses.
* ``executor``: threads for calls; none of them can keep the process from exiting.
* ``notifier``: wait for the next change without missing one.
* ``hooks``: call an author's method and turn everything that it raises into an Exception.

The loop that observes the kubelet and re-registers (``devicemanager.plugin.resource`` with
the pure ``reconcile``) takes its service, registration mode and settings as parameters.
"""
