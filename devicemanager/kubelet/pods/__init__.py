"""The pods of the node: admission, containers, deletion, and their PodResources entries.

Theory of operation. ``PodStore`` has a ``PodRecord`` for every pod that was admitted or
rejected and is not deleted. The store replaces the kubelet's pod manager and the container runtime:
containers do not run, only their states are stored. The store outlives the kubelet's process.
``PodWorkers`` admits, starts, ends and deletes pods with one device manager. Each restart creates
a new device manager and new ``PodWorkers``, which use the same store.

In:  pods (``core.pods.Pod``) from manifests or from an earlier kubelet; calls that end containers
     or delete pods; timers of the kubelet's clock.
Out: ``Admission`` values, pod statuses, events, and a ``podresources.Source``.

Invariants:

* Locks are taken in one order: the store's lock before the manager's. The store's lock is never
  held during an admission or a checkpoint write.
* A pod's record can disappear at any moment, because any thread may delete the pod. Every step
  after a call that can block checks that the record is still current.
* Only the manager's ledger records which devices are allocated to which pod.

Start reading with ``workers`` (``PodWorkers.admit``) and ``records``. ``containers`` starts
containers, ``container_lifecycle`` restarts them and deletes pods. ``static_pods`` watches a
manifest directory, ``podresources`` provides pods to the PodResources server, ``admission`` has
the result of ``MockKubelet.admit``, and ``data`` has its JSON form.
"""
