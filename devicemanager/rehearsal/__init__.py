"""Rehearsals: what would happen on a node after a kubelet restart, a reboot or an upgrade.

Theory of operation. A snapshot of a node is rebuilt as an in-memory kubelet: devices, NUMA nodes,
checkpoint, and pods with their allocations. The steps, such as a reboot, run on this kubelet, one
after another. After a kubelet start, the result can depend on the order in which plugins register
and pods are admitted. Therefore the steps run once for each possible order, or for a sample of the
orders. Each run has a new kubelet.

In:  a ``Snapshot``, and steps (``steps``).
Out: a ``Rehearsal`` (``result``): the outcomes of each pod, and for each outcome the number of
     orders that lead to it; predicted events with advice; assumptions. ``report`` shows a
     ``Rehearsal`` as text, JSON or Markdown.

Invariants:

* Only the snapshot is read. The node is neither read nor changed.
* The same snapshot, steps and seed give the same result.
* ``Rehearsal.assumptions`` lists all assumptions about facts that the snapshot does not show.

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
