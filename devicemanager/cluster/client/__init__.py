"""The API server as the nodes of this process see it: requests, leases, LIST and WATCH, events.

Theory of operation.

In:  a kubeconfig (``credentials``), requests from nodes and pods, and watch events.
Out: writes to the API server; Nodes and Pods, delivered to the node that they concern.

* ``api``: one request, or one stream, on a pool of connections. It retries 429, 5xx and broken
  connections, which can succeed later. Other errors go to the caller.
* ``work_queue``: threads for the requests of all nodes. Requests with the same key keep their
  order; deletions go first, events last.
* ``lease_controller``: threads and connections for Leases alone, so that a burst of pods
  cannot delay a heartbeat.
* ``reflector``: LIST, then WATCH, of one path. ``shared_informer`` passes on what it finds to
  the node that it concerns. ``watches`` decides how many reflectors there are.
* ``recorder``: Kubernetes events, with client-go's limits.

Invariants:
* A request that is retried never changes its order relative to others with the same key.
* No lock is held during a request.
* Objects from the API server are validated (``validation``) before anything reads them.
* ``kubernetes`` and ``urllib3`` are imported inside functions: they take a fifth of a second,
  and ``import devicemanager.cluster`` must stay fast.

Only credentials come from the ``kubernetes`` package; docs/decisions/api-client.md has the
measurements behind that. Start reading in ``api``.
"""
