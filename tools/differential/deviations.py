"""Intended differences from the reference: the only ones that a comparison accepts.

Each says exactly what the mock may show instead of what.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import attrs

import checkpoint
from tools.differential.scenarios import Scenario, steps_of
from tools.differential.versions import minor


@attrs.frozen
class Fact:
    """Fact in which both differ."""

    scenario: Scenario
    version: str
    step: int
    path: str
    expected: Any
    actual: Any
    devices: Sequence[Mapping[str, Collection[str]]] = ()
    """Per step the devices of each pod in the reference."""
    is_random: bool = False
    """True if ``expected`` has all values that were seen."""


@attrs.frozen
class Deviation:
    """Intended difference with its reason."""

    name: str
    reason: str
    covers: Callable[[Fact], bool] = attrs.field(repr=False)


def named(fact: Fact) -> Deviation | None:
    """Return the deviation that explains a difference, or None."""
    return next((each for each in DEVIATIONS if each.covers(fact)), None)


def _is_reported_with_the_gate_off(fact: Fact) -> bool:
    """Ours may name pods that have had devices; the reference names none."""
    if fact.path != "health updates" or fact.expected != [] or fact.is_random:
        return False
    on = minor(fact.version) >= 36
    if (fact.scenario.get("feature_gates") or {}).get("ResourceHealthStatus", on):
        return False
    # At any step before: a deleted pod keeps its devices for a while.
    using = {
        uid for devices in fact.devices[: fact.step + 1] for uid, ids in devices.items() if ids
    }
    # Pods of the checkpoint: only the file says what they have.
    using.update(_pods_of_file(fact.scenario.get("checkpoint")))
    for step in steps_of(fact.scenario):
        using.update(_pods_of_file((step.get("restart") or {}).get("checkpoint")))
    return bool(fact.actual) and using.issuperset(fact.actual)


def _pods_of_file(text: str | None) -> set[str]:
    """Return the pods that a checkpoint names, if it can be read."""
    try:
        saved = checkpoint.loads(base64.b64decode(text or ""))
    except checkpoint.CheckpointError:
        return set()
    return {entry.pod_uid for entry in saved.entries or ()}


def _is_panic_of_two_admissions(fact: Fact) -> bool:
    """Ours goes on where the reference forgets the reusable devices of a pod being admitted."""
    steps = steps_of(fact.scenario)
    return (
        fact.path == "panic"
        and fact.expected == "assignment to entry in nil map"
        and (fact.actual is None or fact.actual.endswith("(Q33)"))
        and bool((steps[fact.step].get("admit") or {}).get("meanwhile"))
    )


DEVIATIONS: Final[tuple[Deviation, ...]] = (
    Deviation(
        "panic of two admissions",
        "a kubelet admits one pod at a time; its device manager panics when two are admitted at "
        "once and one has reusable devices",
        _is_panic_of_two_admissions,
    ),
    Deviation(
        "health updates without the gate",
        "`MockKubelet.health_updates` is there without the gate ResourceHealthStatus, too",
        _is_reported_with_the_gate_off,
    ),
)
