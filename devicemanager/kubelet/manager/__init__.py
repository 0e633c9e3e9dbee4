"""The device manager of one kubelet instance: allocations, device lists and the checkpoint.

Theory of operation. All decisions are made by ``devicemanager.core``, which uses no threads, gRPC
or files. This package calls the core under one lock, and does the rest without the lock: RPCs to
plugins, checkpoint writes, events and timers.

In:  pods to admit or release; registrations, device lists and disconnects of plugins, through
     ``ClientHandler``; a checkpoint to restore; settings, a clock and an event stream.
Out: allocations and rejections, the checkpoint, events, and snapshots of the state for
     PodResources, pod statuses and displays (``devicemanager.observe``).

Invariants:

* The lock is never held during an RPC, a file write or a callback.
* An admission is in memory and on disk when ``admit`` returns, or it has changed nothing.
* A late event of a replaced plugin's connection cannot affect the new plugin, because each
  registration has a unique number.
* The checkpoint is written after every change of its contents, without holding the lock.

``kubelet.registration`` has the servers, ``kubelet.pods`` the life cycles of pods.

Start reading with ``manager`` (``DeviceManager``), then follow one admission through
``admissions`` and ``driver``. ``state`` has the data and the rules of the lock. ``plugin_handler``
handles registrations and device lists, ``grace_period`` removes resources without plugins, and
``checkpointing`` converts the ledger (all allocations) to the checkpoint's entries.
"""
