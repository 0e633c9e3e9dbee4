"""Node snapshots: what a node knows about its devices, in one archive, and the node's problems.

Theory of operation. A snapshot is taken on a node with read access only, possibly without root. It
can be inspected on any other machine. There are three steps:

1. ``collect(Places)`` reads the node: PodResources, the checkpoint, sockets, state files,
   configuration, pods and NUMA nodes. If one of these parts cannot be read, the snapshot contains
   the reason, and the other parts are still read (``collecting``).
2. ``archive`` and ``read_snapshot`` convert a ``Snapshot`` to a file and back (``writing``,
   ``reading``, ``packing``; the files are listed in ``layout``).
3. ``findings`` applies the rules (``rules``) to a ``Node``, which derives facts about pods and
   devices from the snapshot. ``report`` prints the result.

In:  paths on a node, or the bytes of an archive.
Out: a ``Snapshot``, an archive, a list of ``Finding``.

Invariants:

* Collecting changes nothing on the node: it reads files, makes two PodResources calls, and
  connects to each socket and closes at once.
* Archives are untrusted. They are never unpacked to disk, and their size is limited. A file that
  is not a snapshot is rejected with a one-line ``SnapshotError``.
* A finding claims only what the snapshot shows. A part that could not be read leads to no
  finding. ``tools/damage`` verifies this with damaged files.
* Of the kubelet's configuration, only fields that concern devices are read: other fields can be
  secret.
* The package does not simulate a kubelet's decisions, such as which devices a pod gets.
  ``devicemanager.core`` does this.

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
