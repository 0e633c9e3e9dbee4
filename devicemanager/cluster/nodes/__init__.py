"""One node of the cluster: its Node object, Lease, conditions and faults.

Theory of operation.

In:  a kubelet with its devices (``NodeKubelet``), events of the Node object, the annotation
     ``devicemanager.io/faults``, calls of users, and the clock.
Out: the Node object and its status, the Lease, Kubernetes events, a NodeResourceTopology object.

* ``node``: ``ClusterNode``, with every public member. Start reading there.
* ``status``: registration and status updates (``kubelet_node_status.go``).
* ``runtime_state``: why the node is not ready, and which pods it rejects for that.
* ``faults``: faults by annotation.
* ``topology``: the NodeResourceTopology object.

Invariants:
* The Node is created before its Lease, and its pods are delivered only after both calls.
* Requests about the Node run under one key in the work queue, so one at a time and in order.
* A node ends once (``ClusterNode._end``), even if several causes coincide. After that it does
  not write its status, and admits no pod.
"""
