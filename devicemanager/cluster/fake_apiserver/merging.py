"""Merge patches: RFC 7386, and strategic ones for what nodes and pods are patched in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["merge", "strategic"]

_KEYS: Final[Mapping[str, str]] = {
    "conditions": "type",
    "addresses": "type",
    "hostIPs": "ip",
    "podIPs": "ip",
    "ownerReferences": "uid",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
}
"""Lists whose elements are merged one by one, and what tells them apart. All others, container
statuses and taints among them, are replaced as a whole (``patchStrategy`` in ``k8s.io/api``)."""

_SETS: Final = frozenset({"finalizers"})


def merge(old: Any, patch: Any) -> Any:
    """RFC 7386. Neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merge(found.get(key), value)
    return found


def strategic(old: Any, patch: Any) -> Any:
    """A strategic merge patch of a mapping. Neither argument is changed."""
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            found[name] = [each for each in found.get(name) or () if each not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            found.pop(key, None)
        else:
            found[key] = _value(key, found.get(key), value)
    return found


def _value(key: str, old: Any, new: Any) -> Any:
    if isinstance(new, dict):
        return strategic(old, new)
    if isinstance(new, list) and key in _SETS:
        return list(dict.fromkeys([*(old or ()), *new]))
    if isinstance(new, list) and key in _KEYS:
        return _list(_KEYS[key], old or [], new)
    return new


def _list(by: str, old: list[Any], new: list[Any]) -> list[Any]:
    if any(each.get("$patch") == "replace" for each in new):
        return [each for each in new if "$patch" not in each]
    found = {each.get(by): each for each in old}
    for each in new:
        if each.get("$patch") == "delete":
            found.pop(each.get(by), None)
        else:
            found[each.get(by)] = strategic(found.get(each.get(by), {}), each)
    return list(found.values())
