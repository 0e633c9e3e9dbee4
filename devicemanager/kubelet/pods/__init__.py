"""The pods of the node: admission, containers, deletion, and what PodResources exposes of them.

Theory of operation. ``PodStore`` has a ``PodRecord`` for every pod that was admitted or
rejected and is not deleted. It stands in for the kubelet's pod manager and for the container
runtime: containers do not run, their states are values. The store outlives the kubelet's
process. ``PodWorkers`` applies everything that happens to a pod, with one device manager, and
is replaced with it at each restart.

In:  pods (``core.pods.Pod``) from manifests or from an earlier kubelet; calls that end containers
     or delete pods; timers of the kubelet's clock.
Out: ``Admission`` values, pod statuses, events, and a ``podresources.Source``.

Invariants:

* Locks are taken in one order: the store's lock before the manager's. The store's lock is never
  held during an admission or a checkpoint write.
* A pod's record can disappear at any moment, because any thread may delete the pod. Every step
  after a call that can block checks that the record is still current.
* Which devices are allocated to which pod is only in the manager's ledger.

Start reading with ``workers`` (``PodWorkers.admit``) and ``records``. ``containers`` starts
containers, ``container_lifecycle`` restarts them and deletes pods. ``static_pods`` follows a
manifest directory, ``podresources`` feeds the PodResources server, ``admission`` is the result
of ``MockKubelet.admit`` and ``data`` its JSON form.
"""
