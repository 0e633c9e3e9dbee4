"""Client of the API server for virtual nodes and mock kubelets: requests, watches, leases, events.

Theory of operation.

In:  a kubeconfig (``credentials``), requests from nodes and pods, and watch events.
Out: writes to the API server; Node objects and pods, delivered to the node to which they belong.

* ``api``: one request or one stream. It retries after 429, 5xx and broken connections. Other errors
  are raised to the caller.
* ``connection``: HTTP/1.1 on one connection, and a pool of connections. urllib3 opens them.
* ``work_queue``: threads for the requests of all nodes. Requests with the same key keep their
  order. Deletions are sent first, events last.
* ``lease_controller``: separate threads and connections for Leases, so that a burst of pods
  cannot delay a heartbeat.
* ``reflector``: LIST, then WATCH, of one path. ``shared_informer`` delivers the objects to their
  nodes. ``watches`` creates two reflectors (pods and Nodes) for all nodes, or two per node.
* ``recorder``: Kubernetes events, with client-go's limits.

Invariants:
* A retry does not change the order of requests with the same key.
* No lock is held during a request.
* Objects from the API server are validated (``validation``) before they are used.
* ``kubernetes`` and ``urllib3`` are imported inside functions. Their import takes a fifth of a
  second, and packages that import this package must load fast.

Only the credentials are read with the ``kubernetes`` package; docs/decisions/api-client.md gives
the reasons. Start reading in ``api``.
"""
