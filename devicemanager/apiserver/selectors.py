"""Field and label selectors, in the forms that kubelets and tests use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from devicemanager.apiserver.kinds import RESOURCE_GROUP, Target

__all__ = ["Selector", "check_fields", "selector"]

Selector = Callable[[Mapping[str, Any]], bool]

_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<how>in|notin)\s+\((?P<values>[^)]*)\)")
# A comma inside parentheses, as in ``k in (a, b)``, does not separate terms.
_COMMA: Final = re.compile(r",(?![^(]*\))")


_NAMES: Final = ("metadata.name", "metadata.namespace")
_FIELDS: Final = {
    "ResourceSlice": ("metadata.name", "spec.nodeName", "spec.driver", "spec.pool.name")
}
"""Fields that selectors can use, by kind. All other kinds have those in ``_NAMES``."""


def check_fields(text: str | None, target: Target) -> None:
    """Raise ValueError if the kind of ``target`` does not support the field selector ``text``.

    The message is that of the API server. Only kinds of resource.k8s.io are checked.
    """
    kind = target.kind
    if kind.group != RESOURCE_GROUP:
        return
    for part in _parts(text):
        field, *value = re.split(r"!=|==|=", part, maxsplit=1)
        if not value:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{part}'")
        if kind.name in _FIELDS:
            if field not in _FIELDS[kind.name]:
                what = f"{target.api_version}, Kind={kind.name}"
                raise ValueError(f"field label not supported for {what}: {field}")
        elif field not in _NAMES:
            names = ", ".join(f'"{each}"' for each in _NAMES)
            raise ValueError(f'"{field}" is not a known field selector: only {names}')


def selector(query: Mapping[str, str]) -> Selector:
    """Return a function that returns True for objects that match the selectors of a query.

    The selectors are ``fieldSelector`` and ``labelSelector``. Raises ValueError for an invalid
    selector.
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
    # ``=`` comes last, because the other operators contain it.
    for sign in ("!=", "==", "="):
        key, found, value = text.partition(sign)
        if found and "=" in value and get is _label:
            raise ValueError("unable to parse requirement: found '=', expected: identifier")
        if found:
            return lambda object_: (get(object_, key) == value) is (sign != "!=")
    if text.startswith("!"):
        return lambda object_: get(object_, text[1:]) is None
    if text:
        return lambda object_: get(object_, text) is not None
    raise ValueError("invalid selector: a term is empty: use KEY, KEY=VALUE or KEY in (A, B)")


def _field(object_: Mapping[str, Any], path: str) -> str:
    """Return the field at a dotted path as text; empty if it is missing, as on a real API
    server."""
    found: Any = object_
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return "" if found is None else str(found)


def _label(object_: Mapping[str, Any], key: str) -> str | None:
    found: str | None = (object_.get("metadata", {}).get("labels") or {}).get(key)
    return found
