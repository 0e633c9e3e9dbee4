"""Kubernetes objects, read and written: Pods from manifests, statuses from decisions.

In:  ``manifests``: a Pod as YAML text, a file, a dict, a client's V1Pod or an object of the
     API server. ``status``: values of ``core``, such as a ``PodStatus``.
Out: ``manifests``: a validated ``core.pods.Pod``, or an error that names the field.
     ``status``: plain JSON values of Pods, Nodes, Leases and NodeResourceTopologies, and what
     a restarted kubelet reads back from them.

Invariants:

* Input comes from anyone. Any input ends as a Pod or as a one-line error, in bounded time and
  memory.
* Error texts are the API server's where it has one for the case, because people search for
  them; they name the field path.
* Nothing here decides: what a status says is decided in ``core``, how it looks is decided here.
* Nothing here talks to an API server, and ``yaml`` and ``kubernetes`` are imported only when
  an input needs them.

Start reading with ``manifests.parse`` and ``status.podstatus.status_object``.
"""
