"""Read elements of lists, maps and optional values, with the errors of cel-go.

The error texts are those of interpreter/attributes.go and common/types (v0.26). Some of them name
the Go class of a value (``GO_CLASSES``).
"""

from __future__ import annotations

from collections.abc import Iterable

from devicemanager.claims.cel.functions import arithmetic
from devicemanager.claims.cel.semver import Version
from devicemanager.claims.cel.values import (
    MISSING,
    NONE,
    CelError,
    Duration,
    Format,
    IPAddress,
    Map,
    Network,
    Optional,
    Quantity,
    Timestamp,
    TypeName,
    UInt,
    Url,
    Value,
    text_of,
    type_name,
)

GO_CLASSES: dict[type, str] = {
    bool: "types.Bool",
    int: "types.Int",
    UInt: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    type(None): "types.Null",
    list: "*types.baseList",
    Map: "*types.baseMap",
    Duration: "types.Duration",
    Timestamp: "types.Timestamp",
    TypeName: "*types.Type",
    Optional: "*types.Optional",
    Quantity: "cel.Quantity",
    Version: "cel.Semver",
    Url: "cel.URL",
    Format: "cel.Format",
    IPAddress: "cel.IP",
    Network: "cel.CIDR",
    CelError: "*types.Err",
}
"""Name of the Go class for each Python class of values. Some error messages contain this name."""


def checked_key(key: Value) -> Value:
    """Return ``key`` unchanged. Raises CelError if its type is not allowed for list indexes and map
    keys."""
    if type(key) not in (bool, int, UInt, float, str):
        raise CelError(f"invalid qualifier type: {GO_CLASSES[type(key)]}")
    return key


def select_from(value: Value, key: Value) -> Value:
    """Evaluate ``value[key]`` or ``value.key``. Raises CelError if the element does not exist.

    If ``value`` is an optional value, the result is an optional value, too (``select_optional``).
    """
    if type(value) is Optional:
        return select_optional(value, key)
    found = _look_up(value, key)
    if found is MISSING:
        what = "index out of bounds" if type(value) is list else "no such key"
        raise CelError(f"{what}: {text_of(key)}")
    return found


def _look_up(value: Value, key: Value) -> Value:
    """Return the element of a list or map; MISSING if there is none. Raises CelError for a key of a
    wrong type."""
    if type(value) is Map:
        return value.find(key)
    if type(value) is not list:
        return MISSING
    if type(key) not in arithmetic.NUMBERS:
        raise CelError(f"unsupported index type '{type_name(key)}' in list")
    if key != int(key):
        raise CelError(f"unsupported index value {text_of(key)} in list")
    return value[int(key)] if 0 <= key < len(value) else MISSING


def select_optional(value: Value, key: Value) -> Value:
    """Evaluate ``value[?key]`` or ``value.?key``.

    Return an empty optional value if the element does not exist. Raises CelError for a key of a
    wrong type.
    """
    if type(value) is Optional:
        if not value.has_value:
            return NONE
        value = value.value
    found = _look_up(value, checked_key(key))
    return NONE if found is MISSING else Optional(found)


def is_present(value: Value, field: str) -> bool:
    """Evaluate ``has(value.field)``."""
    if type(value) is Optional:
        return value.has_value and is_present(value.value, field)
    return _look_up(value, field) is not MISSING


def present(found: tuple[Value, bool]) -> Value:
    """Return the value of one element of a list or map literal, or MISSING to omit the element.

    ``found``: the evaluated element, and True if the literal marks it as optional (``?value``). A
    marked element must be an optional value; otherwise CelError is raised. If this optional value
    is empty, the element is omitted.
    """
    value, is_optional = found
    if not is_optional:
        return value
    if type(value) is not Optional:
        raise CelError(f"cannot initialize optional list element from non-optional value {value}")
    return value.value if value.has_value else MISSING


def pairs(values: Value, with_keys: bool) -> Iterable[tuple[Value, Value]]:
    """Return one pair for each iteration of a loop over the list or map ``values``.

    The pair contains the values of the loop's two variables. ``with_keys``: True for macros with
    two variables, such as ``exists(i, v, …)``. Macros with one variable use only the first value.
    Raises CelError if ``values`` is not a list or map.
    """
    if type(values) is list:
        return enumerate(values) if with_keys else ((each, None) for each in list(values))
    if type(values) is Map:
        return list(values.items())
    name = GO_CLASSES[type(values)]
    if with_keys:
        raise CelError(f"unsupported comprehension range type: {name}")
    raise CelError(f"got '{name}', expected iterable type")
