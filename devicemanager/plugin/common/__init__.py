"""Modules for any program that serves a socket for a kubelet: device plugins and DRA drivers.

The modules do not know devices:

* ``signals``: wait for SIGTERM and other signals without missing a signal.
* ``sockets``: check the socket directory; choose a name that no running program uses.
* ``served``: a gRPC server on one socket.
* ``stepping``: the main loop, which checks the state and does what this state requires.
* ``consume``: read the values that an author's method returns or yields.
* ``executor``: threads for calls; as daemon threads, they cannot prevent the process from exiting.
* ``notifier``: wait for the next change without missing a change.
* ``hooks``: call an author's method and convert everything that it raises into an Exception.
"""
