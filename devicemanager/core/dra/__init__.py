"""The decisions of the kubelet's DRA manager (Dynamic Resource Allocation), without I/O or RPCs.

Theory of operation. Before a pod's sandbox is created, its ResourceClaims are prepared by the
drivers of their devices. After its containers have stopped, the drivers unprepare the claims.
``prepare`` and ``unprepare`` are generators: they yield an effect and get the effect's result. An
effect is a request to the caller, such as a call to a driver (``effects``). The caller holds its
lock while a generator runs, and releases the lock while it carries out an effect.

In:   a pod's claims (``model.PodClaims``), the claims of the node (``cache.ClaimCache``), the
      registered drivers (``drivers.Drivers``), a version's rules (``rules.DraRules``).
Out:  effects; changes in the cache and the drivers; a container's CDI devices and PodResources
      data (``containers``); health (``health``); ``errors.DraError`` with the kubelet's message.

Invariants:

* The same input leads to the same effects in the same order. Where the kubelet
  iterates over a Go map, the order is sorted: drivers by name, claims by namespace and name.
* Objects in the cache are immutable; a change replaces them. So an effect that contains such
  objects stays valid while other generators run.
* Time is a number of seconds, passed in by the caller.

Where to start reading: ``prepare``, then ``unprepare``.
"""
