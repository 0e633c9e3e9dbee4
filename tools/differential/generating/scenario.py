"""Make whole scenarios: a machine, its plugins, and steps, either random or from a story."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Final

from tools.differential.generating import devices, machines, pods, saved, steps, stories
from tools.differential.generating.state import RESOURCES, Plain, State

_MOST_STEPS: Final = 18


def scenarios(seed: int, count: int, version: int) -> Iterator[Plain]:
    """Yield scenarios for a minor version. Each depends only on the seed and its number."""
    for number in range(count):
        yield scenario(f"{seed}-{number}", version)


def scenario(name: str, version: int) -> Plain:
    """Return the scenario with this name, which is the seed of all random choices."""
    state = State(random.Random(name), version)
    made: Plain = {"id": name, **machines.machine(state)}
    if state.chance(0.16):
        _seeded(state, made)
    made["resources"] = {}
    for resource in RESOURCES[: state.rng.choice((1, 1, 1, 2, 2, 3))]:
        described = devices.plugin(state, resource)
        if state.chance(0.05):
            described["devices"] = None
        made["resources"][resource] = copy.deepcopy(described)
        state.registered(resource, described)
    made["steps"] = _steps(state)
    return made


def _seeded(state: State, made: Plain) -> None:
    """Sometimes add a checkpoint that exists when the kubelet starts."""
    pod = pods.simple("vendor.com/gpu", "old-pod", state.rng.choice((1, 2)))
    made["checkpoint"] = saved.saved(state, [pod])
    # Only the device manager knows such a pod, so the node must not count its pods.
    if "pods" not in state.node and state.chance(0.5):
        made["active_pods"] = ["old-pod"]


def _steps(state: State) -> list[Plain]:
    found: list[Plain] = []
    most = state.rng.randint(7, _MOST_STEPS)
    while len(found) < most:
        if state.chance(0.45):
            found += stories.story(state)
        else:
            found.append(steps.step(state))
    # List frees the devices of ended pods (Q10), so some scenarios call List rarely.
    often = state.rng.choice((0.1, 0.3, 0.8))
    for step in found:
        if state.chance(often):
            step["lists"] = True
    found[-1]["lists"] = True
    return found
