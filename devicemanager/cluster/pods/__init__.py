"""The pods of one node, with the same components as in the kubelet.

Theory of operation.

In:  pods of the API server (``PodSync.on_pod_list``, ``on_pod_event``), events of the node's
     kubelet (``on_kubelet_event``), the clock, and calls of users.
Out: calls to the kubelet (admit, restore, start, stop, terminate), and requests to the API
     server: pod statuses, deletions, events.

* ``pod_sync``: the entry point, which passes each input to the component that handles it. Its
  docstring explains order, invariants and special cases. Start reading there.
* ``sync_loop``: runs the node's decisions one at a time.
* ``pod_manager``: the pods by UID, with the stage of each pod.
* ``admission``: new pods. ``termination``: deleted and evicted pods, and containers that exit.
* ``status_manager``: writes pod statuses, and deletes pods whose containers have stopped.
* ``resize_events``: Kubernetes events about resizes of pods, and the end of slow resizes.
* ``mirrors``: mirror pods of static pods.

Only the kubelet decides about devices.
"""
