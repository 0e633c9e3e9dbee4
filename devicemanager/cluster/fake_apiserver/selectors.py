"""Field and label selectors, as far as nodes and their tests use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["Selector", "selector"]

Selector = Callable[[Mapping[str, Any]], bool]

_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<how>in|notin)\s+\((?P<values>[^)]*)\)")
# Not inside parentheses: ``k in (a, b)``.
_COMMA: Final = re.compile(r",(?![^(]*\))")


def selector(query: Mapping[str, str]) -> Selector:
    """Return a test for ``fieldSelector`` and ``labelSelector`` of a query together.

    Raises ValueError for an invalid selector.
    """
    tests = [_test(part, _field) for part in _parts(query.get("fieldSelector"))]
    tests += [_test(part, _label) for part in _parts(query.get("labelSelector"))]
    return lambda object_: all(test(object_) for test in tests)


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in _COMMA.split(text)] if text else []


_Get = Callable[[Mapping[str, Any], str], "str | None"]


def _test(text: str, get: _Get) -> Selector:
    if match := _SET.fullmatch(text):
        values = {value.strip() for value in match["values"].split(",")}
        wanted = match["how"] == "in"
        return lambda object_: (get(object_, match["key"]) in values) is wanted
    # The single sign last, because the others contain it.
    for sign in ("!=", "==", "="):
        key, found, value = text.partition(sign)
        if found:
            return lambda object_: (get(object_, key) == value) is (sign != "!=")
    if text.startswith("!"):
        return lambda object_: get(object_, text[1:]) is None
    if text:
        return lambda object_: get(object_, text) is not None
    raise ValueError("empty selector")


def _field(object_: Mapping[str, Any], path: str) -> str:
    """Return a field; a missing one is empty, as for a real API server."""
    found: Any = object_
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return "" if found is None else str(found)


def _label(object_: Mapping[str, Any], key: str) -> str | None:
    found: str | None = (object_.get("metadata", {}).get("labels") or {}).get(key)
    return found
