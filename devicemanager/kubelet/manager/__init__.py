"""The device manager of one kubelet instance: allocations, plugins' lists and the checkpoint.

Theory of operation. All decisions are made by ``devicemanager.core``, which knows no threads, no
gRPC and no files. This package calls it under one lock and does everything else around it: RPCs
to plugins, checkpoint writes, events and timers.

In:  pods to admit or release; registrations, device lists and disconnects of plugins, through
     ``ClientHandler``; a checkpoint to restore; settings, a clock and an event stream.
Out: allocations and rejections, the checkpoint, events, and snapshots of the state for
     PodResources, pod statuses and views.

Invariants:

* The lock is never held during an RPC, a file write or a callback.
* An admission is in memory and on disk when ``admit`` returns, or it has changed nothing.
* A late event of an old connection cannot affect the plugin that replaced it, because each
  registration has its own number.
* The checkpoint is written after every change that it contains, and never holds up the lock.

This package has no servers and no pods' life cycles; see ``kubelet.registration`` and
``kubelet.pods``.

Start reading with ``manager`` (``DeviceManager``), then follow one admission through
``admissions`` and ``driver``. ``state`` has the data and the rules of the lock. ``plugin_handler``
handles what plugins report, ``grace_period`` removes resources without plugins, and
``checkpointing`` converts the ledger to the checkpoint's entries.
"""
