"""Modules for any program that serves a socket for a kubelet, independent of devices.

Device plugins use this package, and DRA drivers can use it. The modules are independent of each
other:

* ``signals``: wait for SIGTERM and other signals without missing one.
* ``sockets``: check the socket directory; choose a name that no running program uses.
* ``executor``: daemon threads for calls, which cannot prevent the process from exiting.
* ``notifier``: wait for the next change without missing one.
* ``hooks``: call an author's method and convert everything that it raises into an Exception.

Other programs can also use the loop that observes the kubelet and re-registers
(``devicemanager.plugin.resource`` with the pure ``reconcile``): its service, registration mode and
settings are parameters.
"""
