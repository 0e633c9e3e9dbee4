"""Read Pods from manifests, and write statuses and other Kubernetes objects as JSON values.

In:  ``manifests``: a Pod as YAML text, a file, a dict, a client's V1Pod or an object of the
     API server. ``status``: values of ``core``, such as a ``PodStatus``.
Out: ``manifests``: a validated ``core.pods.Pod``, or an error that names the field.
     ``status``: JSON values of Pods, Nodes, Leases and NodeResourceTopologies, and the values
     that a restarted kubelet reads back from a status.

Invariants:

* Input is untrusted. Every input results in a Pod or in a one-line error, in bounded time and
  memory.
* If the API server has a text for an error, the same text is used, because users search for it.
  Errors name the field path.
* This package makes no decisions: ``core`` decides the content of a status, and this package
  its format.
* This package does not connect to an API server. It imports ``yaml`` and ``kubernetes`` only
  if an input requires them.

Start reading with ``manifests.parse`` and ``status.podstatus.status_object``.
"""
