"""The decisions of the device manager, free of side effects.

Theory of operation. Everything the kubelet decides about devices is computed here: which
devices a container gets, whether the topology policy admits a pod, what the pod's and the
node's status say. Nothing here performs I/O, makes an RPC, takes a lock, reads a clock,
draws a random number or logs. Callers pass facts in and act on what comes back.

In:   device lists, pods, a time in seconds, the settings that select a kubelet's behaviour.
Out:  values, a rejection (``rejection.Rejected``), or, from the allocator,
      a request for an RPC: it is a generator that yields the calls it needs.

Invariants:

* Same input, same output. Everything is sorted, so that runs can be compared.
* ``ledger`` is the only source of truth for who uses which device.
* A pod is allocated entirely or not at all.
* Texts that the kubelet shows are data in ``messages``, and exact.
* No module but those in ``versions`` compares kubelet versions.

The same code therefore runs behind gRPC, in replays of recorded scenarios and in property
tests.

Where to start reading: ``allocation.pod`` admits a pod, ``allocation.container`` allocates
devices to its containers, ``allocation.selection`` chooses them. ``inventory`` and
``endpoints`` hold what plugins have reported, ``topology`` aligns to NUMA nodes, and
``explanation`` says why a pod was admitted or rejected. ``api`` has the constants and names
that both sides of the plugin socket share.
"""
