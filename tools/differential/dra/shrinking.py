"""Reduce scenarios of the DRA manager."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tools.differential.shrinking import Plain, slices, without


def smaller(scenario: Plain) -> Iterator[Plain]:
    """Yield smaller scenarios, the smallest first. A scenario can be invalid."""
    yield from slices(scenario, ("ops",))
    for kind in ("instances", "pods", "gates"):
        for key in scenario.get(kind) or ():
            yield without(scenario, (kind, key))
    for path in _lists(scenario, ()):
        if path != ("ops",):
            yield from slices(scenario, path)
    for path in _entries(scenario, ()):
        yield without(scenario, path)


def _lists(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all lists that are not empty; outer lists first."""
    if isinstance(value, list) and value:
        yield path
    for key, each in _items(value):
        yield from _lists(each, (*path, key))


_OPTIONAL = frozenset(
    {"skip", "extra", "error", "fail", "hang", "cdi", "requests", "share_id", "extended", "init"}
    | {"statuses", "reserved_groups", "services", "request"}
)


def _entries(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of entries that can be omitted."""
    for key, each in _items(value):
        if key in _OPTIONAL and isinstance(value, dict):
            yield (*path, key)
        yield from _entries(each, (*path, key))


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(copy.copy(value).items())
    return list(enumerate(value)) if isinstance(value, list) else []
