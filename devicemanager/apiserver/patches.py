"""Apply patches: JSON merge patch, strategic merge patch and JSON patch."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

__all__ = [
    "JSON_PATCH",
    "MOST_STEPS",
    "PATCHES",
    "STRATEGIC",
    "PatchError",
    "json_patch",
    "merge",
    "strategic_merge",
]


class PatchError(ValueError):
    """Error for a JSON patch that cannot be applied to the object."""


# -- merge patches ---------------------------------------------------------------------

_MERGE_KEYS: Final[Mapping[str, str]] = {
    "conditions": "type",
    "addresses": "type",
    "hostIPs": "ip",
    "podIPs": "ip",
    "ownerReferences": "uid",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
}
"""The key field of each list that a strategic merge patch merges element by element.

The patch replaces all other lists, such as container statuses and taints (``patchStrategy`` in
``k8s.io/api``).
"""

_SETS: Final = frozenset({"finalizers"})


def merge(old: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386) and return the result. The arguments are not modified."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merge(found.get(key), value)
    return found


def strategic_merge(old: Any, patch: Any) -> Any:
    """Apply a strategic merge patch to a mapping and return the result. The arguments are not
    modified."""
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
            found[key] = _merged_value(key, found.get(key), value)
    return found


def _merged_value(key: str, old: Any, new: Any) -> Any:
    if isinstance(new, dict):
        return strategic_merge(old, new)
    if isinstance(new, list) and key in _SETS:
        return list(dict.fromkeys([*(old or ()), *new]))
    if isinstance(new, list) and key in _MERGE_KEYS:
        return _merged_list(_MERGE_KEYS[key], old or [], new)
    return new


def _merged_list(by: str, old: list[Any], new: list[Any]) -> list[Any]:
    if any(each.get("$patch") == "replace" for each in new):
        return [each for each in new if "$patch" not in each]
    found = {each.get(by): each for each in old}
    for each in new:
        if each.get("$patch") == "delete":
            found.pop(each.get(by), None)
        else:
            found[each.get(by)] = strategic_merge(found.get(each.get(by), {}), each)
    return list(found.values())


# -- JSON patch ----------------------------------------------------------------------

MOST_STEPS: Final = 10_000
"""Maximum number of steps in a JSON patch (``maxJSONPatchOperations``)."""
_MOST_COPIED: Final = 3 << 20
"""Maximum number of bytes that all copy steps of a patch may copy together, because each copy can
double the object (``AccumulatedCopySizeLimit``)."""


def json_patch(old: Any, steps: Any) -> Any:
    """Apply a JSON patch (RFC 6902) and return the result. The arguments are not modified.

    Raises PatchError if a step cannot be applied.
    """
    found = {"": copy.deepcopy(old)}
    copied = 0
    try:
        for step in steps:
            if step["op"] == "copy":
                copied += len(json.dumps(_get(found, step["from"])))
                if copied > _MOST_COPIED:
                    raise PatchError(
                        f"the copy operations of the patch exceed {_MOST_COPIED} bytes in total"
                    )
            _apply(found, step)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise PatchError(f"invalid JSON patch: {error}") from None
    return found[""]


def _apply(root: dict[str, Any], step: Mapping[str, Any]) -> None:
    path = step["path"]
    match step["op"]:
        case "add":
            _add(root, path, step["value"])
        case "remove":
            _remove(root, path)
        case "replace":
            _remove(root, path)
            _add(root, path, step["value"])
        case "move":
            _add(root, path, _remove(root, step["from"]))
        case "copy":
            _add(root, path, copy.deepcopy(_get(root, step["from"])))
        case "test":
            if _get(root, path) != step["value"]:
                raise PatchError(f"testing value {path} failed")
        case other:
            raise PatchError(f"unknown operation {other!r}")


def _parent(root: dict[str, Any], path: Any) -> tuple[Any, Any]:
    """Return the object or list that contains the last part of a path, and its key or index
    there."""
    if not isinstance(path, str):
        raise TypeError(f"path {path!r} is not a string")
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
    at: Any = root
    for part in parents:
        at = at[_key(at, part)]
    return at, _key(at, last)


def _key(at: Any, part: str) -> Any:
    if isinstance(at, list):
        return len(at) if part == "-" else int(part)
    return part


def _get(root: dict[str, Any], path: str) -> Any:
    at, key = _parent(root, path)
    return at[key]


def _add(root: dict[str, Any], path: str, value: Any) -> None:
    at, key = _parent(root, path)
    if isinstance(at, list):
        if key > len(at):
            raise IndexError(f"index {key} is out of range")
        at.insert(key, value)
    else:
        at[key] = value


def _remove(root: dict[str, Any], path: str) -> Any:
    at, key = _parent(root, path)
    return at.pop(key)


JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
PATCHES: Final = {
    "application/merge-patch+json": merge,
    STRATEGIC: strategic_merge,
    JSON_PATCH: json_patch,
}
"""Mapping from the content type of a patch to the function that applies the patch."""
