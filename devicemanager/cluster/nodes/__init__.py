"""One node of the cluster: its Node object, Lease, conditions and faults.

Theory of operation.

In:  a kubelet with its devices (``NodeKubelet``), events of the Node object, the annotation
     ``devicemanager.io/faults``, calls of users, and the clock.
Out: the Node object and its status, the Lease, Kubernetes events, a NodeResourceTopology object.

* ``node``: ``ClusterNode``, with all public members. Start reading there.
* ``status``: registration and status updates (``kubelet_node_status.go``).
* ``runtime_state``: errors and pressures of the node, and the pods that it rejects for them.
* ``faults``: node faults that are set by an annotation.
* ``topology``: the NodeResourceTopology object.

Invariants:
* The Node object is created first, and then its Lease. After that, the node gets its pods.
* Requests about the Node have one key in the work queue, so they are sent one at a time, in order.
* A node leaves only once (``ClusterNode._end``), even for several causes at the same time. After
  that it writes no status and admits no pod.
"""
