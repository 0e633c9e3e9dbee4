"""Putting a fragment into a whole OCI configuration."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["apply"]


def apply(config: Mapping[str, Any], fragment: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``config`` with a fragment's ``config`` in it; neither is changed.

    Where both have an environment variable, a mount or a device for one path, the
    fragment's stands. Access rules, hooks and group ids are added to those there are.
    """
    whole = copy.deepcopy(dict(config))
    part = copy.deepcopy(dict(fragment))
    _merge(whole, part, ())
    return whole


def _merge(whole: dict[str, Any], part: dict[str, Any], place: tuple[str, ...]) -> None:
    for key, value in part.items():
        here = (*place, key)
        if isinstance(value, dict):
            _merge(whole.setdefault(key, {}), value, here)
        elif isinstance(value, list):
            whole[key] = _join(whole.get(key) or [], value, _IDENTITY.get(here))
        else:
            whole[key] = value


def _join(old: list[Any], new: list[Any], identity: Callable[[Any], object] | None) -> list[Any]:
    if identity is None:
        return [*old, *new]
    replaced = {identity(entry) for entry in new}
    return [*_others(old, replaced, identity), *new]


def _others(
    entries: Iterable[Any], replaced: set[object], identity: Callable[[Any], object]
) -> Iterable[Any]:
    return (entry for entry in entries if identity(entry) not in replaced)


_IDENTITY: Mapping[tuple[str, ...], Callable[[Any], object]] = {
    ("process", "env"): lambda entry: entry.partition("=")[0],
    ("process", "user", "additionalGids"): lambda entry: entry,
    ("mounts",): lambda entry: entry["destination"],
    ("linux", "devices"): lambda entry: entry["path"],
}
"""What makes two entries of a list the same thing; lists not named here only grow."""
