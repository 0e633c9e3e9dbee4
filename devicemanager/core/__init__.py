"""The decisions of the device manager, free of side effects.

Theory of operation. Everything the kubelet decides about devices is computed here: which
devices a container gets, whether the topology policy admits a pod, what the pod's and the
node's status say. Nothing here performs I/O, makes an RPC, takes a lock, reads a clock,
draws a random number or logs. Callers pass in facts and carry out the decisions.

In:   device lists, pods, a time in seconds, the settings that select a kubelet's behavior.
Out:  values; a rejection (``rejection.Rejected``); requests for RPCs. The allocator is a
      generator and yields a request for each RPC that it needs.

Invariants:

* The same input leads to the same output. All results are sorted, so runs can be compared.
* ``ledger`` is the only source of truth for which container uses which device.
* All containers of a pod get their devices, or none does.
* The kubelet's messages are data in ``messages``, with exactly the kubelet's text.
* Only the modules in ``versions`` compare kubelet versions.

Code without side effects can run anywhere: behind gRPC, in replays of recorded scenarios and in
property tests.

Where to start reading: ``allocation.pod`` admits a pod, ``allocation.container`` allocates
devices to its containers, ``allocation.selection`` chooses them. ``inventory`` and
``endpoints`` hold what plugins have reported, ``topology`` aligns containers to NUMA nodes,
and ``explanation`` says why a pod was admitted or rejected. ``api`` has the constants and
names that the kubelet and the plugins share.
"""
