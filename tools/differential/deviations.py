"""Intended differences from the reference. A comparison accepts no others.

Each deviation defines exactly which value of the mock is accepted for which value of the
reference.
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
    """Fact with different values in the reference and the mock."""

    scenario: Scenario
    version: str
    step: int
    path: str
    expected: Any
    actual: Any
    devices: Sequence[Mapping[str, Collection[str]]] = ()
    """Devices of each pod in the reference, by step."""
    is_random: bool = False
    """True if ``expected`` contains all values that the reference had in its runs."""


@attrs.frozen
class Deviation:
    """Intended difference with its reason."""

    name: str
    reason: str
    covers: Callable[[Fact], bool] = attrs.field(repr=False)


def named(fact: Fact) -> Deviation | None:
    """Return the deviation that explains a difference; None if there is none."""
    return next((each for each in DEVIATIONS if each.covers(fact)), None)


def _is_reported_with_the_gate_off(fact: Fact) -> bool:
    """True if the mock reports pods that have had devices, and the reference reports none."""
    if fact.path != "health updates" or fact.expected != [] or fact.is_random:
        return False
    on = minor(fact.version) >= 36
    if (fact.scenario.get("feature_gates") or {}).get("ResourceHealthStatus", on):
        return False
    # In any earlier step: a deleted pod keeps its devices for some time.
    using = {
        uid for devices in fact.devices[: fact.step + 1] for uid, ids in devices.items() if ids
    }
    # For pods that come from the checkpoint, only the file shows their devices.
    using.update(_pods_of_file(fact.scenario.get("checkpoint")))
    for step in steps_of(fact.scenario):
        using.update(_pods_of_file((step.get("restart") or {}).get("checkpoint")))
    return bool(fact.actual) and using.issuperset(fact.actual)


def _pods_of_file(text: str | None) -> set[str]:
    """Return the pods in a checkpoint; empty if it cannot be read."""
    try:
        saved = checkpoint.loads(base64.b64decode(text or ""))
    except checkpoint.CheckpointError:
        return set()
    return {entry.pod_uid for entry in saved.entries or ()}


def _is_panic_of_two_admissions(fact: Fact) -> bool:
    """True if the mock continues where the reference panics because it has lost a pod's reusable
    devices."""
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
        "`MockKubelet.health_updates` exists even without the gate ResourceHealthStatus",
        _is_reported_with_the_gate_off,
    ),
)
