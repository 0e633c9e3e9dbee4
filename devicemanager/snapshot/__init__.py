"""A node as it is, in one file: taken where somebody may only read, looked at anywhere.

What belongs here: reading a node (``collecting``), the archive (``layout``, ``packing``,
``writing``, ``reading``), what it says of pods and devices (``node``, ``names``), and what is
wrong with it (``rules``, ``report``). What never does: changing anything on a node, and
decisions of a kubelet's, which the core has.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.snapshot.collecting import collect
    from devicemanager.snapshot.errors import SnapshotError
    from devicemanager.snapshot.model import Snapshot
    from devicemanager.snapshot.places import Places
    from devicemanager.snapshot.reading import read_snapshot
    from devicemanager.snapshot.rules import Finding, findings
    from devicemanager.snapshot.writing import archive

__all__ = [
    "Finding",
    "Places",
    "Snapshot",
    "SnapshotError",
    "archive",
    "collect",
    "findings",
    "read_snapshot",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Finding": "rules",
        "Places": "places",
        "Snapshot": "model",
        "SnapshotError": "errors",
        "archive": "writing",
        "collect": "collecting",
        "findings": "rules",
        "read_snapshot": "reading",
    },
)
