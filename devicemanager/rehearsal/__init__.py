"""Rehearsals: what would happen on a node if it restarted, rebooted, or were upgraded.

Theory of operation. A snapshot of a node is rebuilt as an in-memory kubelet: devices, NUMA nodes,
checkpoint, and pods with what is allocated to them. The steps run on this kubelet, one after
another. After a start, the result can depend on the order in which plugins register and pods are
admitted. Therefore the steps run once for each order, or for a sample of the orders, each time on a
new kubelet.

In:  a ``Snapshot``, and steps (``steps``).
Out: a ``Rehearsal`` (``result``): the outcomes of each pod with the number of orders that lead to
     them, statements with advice, and assumptions. ``report`` shows it as text, JSON or Markdown.

Invariants:

* Nothing on the node is read or changed; only the snapshot is used.
* The same snapshot, steps and seed give the same result.
* Everything that the snapshot does not show is in ``Rehearsal.assumptions``.

Start reading with ``rehearsing``, then ``runs``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.rehearsal.errors import RehearsalError
    from devicemanager.rehearsal.rehearsing import rehearse
    from devicemanager.rehearsal.result import Fate, Outcome, PodResult, Rehearsal, Statement
    from devicemanager.rehearsal.steps import (
        Admit,
        Configure,
        Drain,
        Reboot,
        Restart,
        SetDevices,
        Step,
        WithoutPlugin,
    )

__all__ = [
    "Admit",
    "Configure",
    "Drain",
    "Fate",
    "Outcome",
    "PodResult",
    "Reboot",
    "Rehearsal",
    "RehearsalError",
    "Restart",
    "SetDevices",
    "Statement",
    "Step",
    "WithoutPlugin",
    "rehearse",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Admit": "steps",
        "Configure": "steps",
        "Drain": "steps",
        "Fate": "result",
        "Outcome": "result",
        "PodResult": "result",
        "Reboot": "steps",
        "Rehearsal": "result",
        "RehearsalError": "errors",
        "Restart": "steps",
        "SetDevices": "steps",
        "Statement": "result",
        "Step": "steps",
        "WithoutPlugin": "steps",
        "rehearse": "rehearsing",
    },
)
