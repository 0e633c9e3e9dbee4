"""The kubelet's DRA manager: connections to drivers, the state file, retries and timers.

Theory of operation. The generators in ``devicemanager.core.dra`` make the decisions. They yield
effects: calls, file writes, requests. ``DraManager`` holds its lock while a generator runs, and
releases the lock to carry out an effect. Therefore a driver that does not respond delays only the
pods that use this driver.

In:   drivers that the plugin watcher finds (``registration``), ResourceClaims (``claim_source``);
      calls of the pod workers (``kubelet.pods``), to prepare claims before a sandbox is created.
Out:  calls to drivers (``connection``), the file ``dra_manager_state`` (``state_file``), deletions
      of ResourceSlices (``wiping``), health of devices (``health``), events.

Invariants:

* No lock is held during a call, a file write, an event or a request to the API server.
* When claims are prepared, the state file is written before the first driver is called. It is
  written again before the pod starts.
* Each registration of a driver has a number. Therefore the end of an old connection does not
  affect a newer registration of the driver.

The package is imported when DRA is first used: when a driver registers, when a pod names a
ResourceClaim, or when a test creates one. ``kubelet.pods.dra`` imports it.

Where to start reading: ``manager``.
"""
