"""Node snapshots: what a node knows about its devices, in one archive, and what is wrong there.

Theory of operation. A snapshot is taken where one may only read, possibly without root, and is
inspected anywhere else. Three steps, each a package or module of its own:

1. ``collect(Places)`` reads the node: PodResources, the checkpoint, sockets, state files,
   configuration, pods and NUMA nodes. Each part is read on its own. If one fails, the snapshot
   says why, and the others are still there (``collecting``).
2. ``archive`` and ``read_snapshot`` convert a ``Snapshot`` to a file and back (``writing``,
   ``reading``, ``packing``; the files are listed in ``layout``).
3. ``findings`` applies the rules (``rules``) to a ``Node``, which derives what the rules ask
   for. ``report`` prints the result.

In:  paths on a node, or the bytes of an archive.
Out: a ``Snapshot``, an archive, a list of ``Finding``.

Invariants:

* Collecting changes nothing on the node: it reads files, makes two PodResources calls, and
  connects to each socket and closes at once.
* An archive can come from anyone. It is never unpacked to disk, its size is limited before
  anything is read, and any other file is rejected with a one-line ``SnapshotError``.
* A finding claims only what the snapshot shows. A part that could not be read leads to no
  finding; ``tools/damage`` checks this for damaged files.
* Only fields of the kubelet's configuration that concern devices are read; others can be secret.
* No decision of the kubelet is repeated here; those are in ``devicemanager.core``.

Start reading with ``model``, ``node`` and ``rules/__init__``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.kubelet.host.numa import NumaMachine
    from devicemanager.snapshot.collecting import collect
    from devicemanager.snapshot.kubeletconfig import Alignment
    from devicemanager.snapshot.model import (
        KubeletConfig,
        Listening,
        LoggedPod,
        Part,
        PodDirectories,
        Snapshot,
        SnapshotError,
        SocketSeen,
    )
    from devicemanager.snapshot.node import Node
    from devicemanager.snapshot.places import Places
    from devicemanager.snapshot.reading import read_snapshot
    from devicemanager.snapshot.rules import Finding, Kind, Severity, findings
    from devicemanager.snapshot.writing import archive

__all__ = [
    "Alignment",
    "Finding",
    "Kind",
    "KubeletConfig",
    "Listening",
    "LoggedPod",
    "Node",
    "NumaMachine",
    "Part",
    "Places",
    "PodDirectories",
    "Severity",
    "Snapshot",
    "SnapshotError",
    "SocketSeen",
    "archive",
    "collect",
    "findings",
    "read_snapshot",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Alignment": "kubeletconfig",
        "Finding": "rules",
        "Kind": "rules",
        "KubeletConfig": "model",
        "Listening": "model",
        "LoggedPod": "model",
        "Node": "node",
        "NumaMachine": "model",
        "Part": "model",
        "Places": "places",
        "PodDirectories": "model",
        "Severity": "rules",
        "Snapshot": "model",
        "SnapshotError": "model",
        "SocketSeen": "model",
        "archive": "writing",
        "collect": "collecting",
        "findings": "rules",
        "read_snapshot": "reading",
    },
)
