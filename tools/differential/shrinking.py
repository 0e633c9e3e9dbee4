"""Reduce a scenario as long as it shows the same disagreement."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Plain = dict[str, Any]
Path = tuple[Any, ...]
"""Path in a scenario: keys and indexes, outermost first."""


Shows = Callable[[Plain], bool]
"""Function that returns True if a candidate still shows the disagreement. A candidate may be
invalid."""


def shrink(
    scenario: Mapping[str, Any],
    shows: Shows,
    most: int = 400,
    smaller: Callable[[Plain], Iterator[Plain]] | None = None,
) -> Plain:
    """Return the smallest scenario found in up to ``most`` tries.

    ``smaller``: function that yields candidates; by default for the device manager.
    """
    candidates = smaller or _smaller
    smallest = copy.deepcopy(dict(scenario))
    # After each success, start again with the largest reductions: they may now be possible.
    progress = True
    while progress:
        progress = False
        for candidate in candidates(smallest):
            if most == 0:
                return smallest
            most -= 1
            if shows(candidate):
                smallest, progress = candidate, True
                break
    return smallest


def _smaller(scenario: Plain) -> Iterator[Plain]:
    """Yield candidates, the smallest first."""
    yield from slices(scenario, ("steps",))
    for number, step in enumerate(scenario["steps"]):
        if (step.get("restart") or {}).get("before"):
            yield from slices(scenario, ("steps", number, "restart", "before"))
    for resource in scenario["resources"]:
        yield without(scenario, ("resources", resource))
    for path in _containers(scenario):
        yield from _shorter(scenario, path)
    for path in _device_lists(scenario):
        yield from slices(scenario, path)
        for number, device in enumerate(_at(scenario, path)):
            for name, plain in (("health", "Healthy"), ("numa", None)):
                if device[name] != plain:
                    yield _with(scenario, (*path, number, name), plain)
    yield from _plainer(scenario)


def slices(scenario: Plain, path: Path) -> Iterator[Plain]:
    """Yield lists without a half, a quarter, or one of the items."""
    count = len(_at(scenario, path))
    for length in sorted({count // 2, count // 4, 1} - {0}, reverse=True):
        for start in range(0, count, length):
            made = copy.deepcopy(scenario)
            del _at(made, path)[start : start + length]
            yield made


def _shorter(scenario: Plain, path: Path) -> Iterator[Plain]:
    """Yield scenarios with fewer containers in a pod, or lower limits."""
    containers = _at(scenario, path)
    for number, container in enumerate(containers):
        if path[-1] == "init_containers" or len(containers) > 1:
            yield without(scenario, (*path, number))
        for resource, count in container["limits"].items():
            where = (*path, number, "limits", resource)
            yield without(scenario, where)
            if count > 1:
                yield _with(scenario, where, count - 1)


def _plainer(scenario: Plain) -> Iterator[Plain]:
    """Yield scenarios without options, or with default values."""
    for name in ("feature_gates", "numa_distances", "checkpoint", "active_pods", "node", "other"):
        if name in scenario:
            yield without(scenario, (name,))
    for name in scenario["policy_options"]:
        yield without(scenario, ("policy_options", name))
    for name, plain in (("policy", "none"), ("scope", "container")):
        if scenario[name] != plain:
            yield _with(scenario, (name,), plain)
    for path in _plugins(scenario):
        described = _at(scenario, path)
        for name in (
            "response", "pre_start", "pre_start_error", "empty_reply", "same_socket",
            "allocate_error",
        ):  # fmt: skip
            if name in described:
                yield without(scenario, (*path, name))
        if described.get("preferred"):
            yield _with(scenario, (*path, "preferred"), "")
    for number, step in enumerate(scenario["steps"]):
        for name in ("lists", "no_hints"):
            if step.get(name):
                yield without(scenario, ("steps", number, name))
        for name in ("meanwhile", "pod_level"):
            if name in step.get("admit", ()):
                yield without(scenario, ("steps", number, "admit", name))
        for name in ("checkpoint", "lost"):
            if name in (step.get("restart") or ()):
                yield without(scenario, ("steps", number, "restart", name))


def _containers(scenario: Plain) -> Iterator[Path]:
    for number, step in enumerate(scenario["steps"]):
        for kind in ("init_containers", "containers"):
            if "admit" in step:
                yield ("steps", number, "admit", kind)


def _plugins(scenario: Plain) -> Iterator[Path]:
    yield from (("resources", name) for name in scenario["resources"])
    for number, step in enumerate(scenario["steps"]):
        for kind in ("register", "watch"):
            if kind in step:
                yield ("steps", number, kind)
        for place in range(len((step.get("restart") or {}).get("before") or ())):
            yield ("steps", number, "restart", "before", place)


def _device_lists(scenario: Plain) -> Iterator[Path]:
    for path in _plugins(scenario):
        if _at(scenario, path).get("devices"):
            yield (*path, "devices")
    for number, step in enumerate(scenario["steps"]):
        for kind in ("list", "list_old"):
            if kind in step:
                yield ("steps", number, kind, "devices")


def _at(scenario: Any, path: Path) -> Any:
    for name in path:
        scenario = scenario[name]
    return scenario


def without(scenario: Plain, path: Path) -> Plain:
    """Return the scenario without the value at a path."""
    made = copy.deepcopy(scenario)
    del _at(made, path[:-1])[path[-1]]
    return made


def _with(scenario: Plain, path: Path, value: object) -> Plain:
    made = copy.deepcopy(scenario)
    _at(made, path[:-1])[path[-1]] = value
    return made
