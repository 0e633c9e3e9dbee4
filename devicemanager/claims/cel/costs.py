"""Cost of a call at run time, in the cost units of Kubernetes.

In:  a call's function and overload, its arguments and its result.
Out: the cost of the call itself, without the cost of its arguments.

The numbers are those of cel-go (interpreter/runtimecost.go and ext, v0.26) and of Kubernetes
(apiserver/pkg/cel/library/cost.go, v0.36). ``estimate`` computes the worst case before
evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from devicemanager.claims.cel.semver import Version
from devicemanager.claims.cel.values import (
    Format,
    IPAddress,
    Map,
    Network,
    Optional,
    Quantity,
    Url,
    Value,
    size_of,
)

TEXT = 0.1
"""Cost units for each character of a string that a function reads."""
REGEX = 0.25
"""Cost units for one character of a regular expression."""
LIST, MAP, MESSAGE = 10, 30, 40
"""Cost units for creating a list, a map and a message."""

_CONSTANT_SIZE = frozenset({Quantity, Version, Url, Format, IPAddress, Network})
"""Classes of Kubernetes' own types. Comparing them has a fixed cost."""

Cost = Callable[[Sequence[Value], Value], int]


def _size(value: Value) -> int:
    """Return the size of a value. An optional value has the size of its content."""
    while type(value) is Optional and value.has_value:
        value = value.value
    return size_of(value)


def _traversal(factor: float = TEXT) -> Cost:
    return lambda args, _: math.ceil(size_of(args[0]) * factor)


def _one(_: Sequence[Value], __: Value) -> int:
    return 1


def _smaller(args: Sequence[Value], _: Value) -> int:
    return math.ceil(min(_size(args[0]), _size(args[1])) * TEXT)


def _equals(args: Sequence[Value], result: Value) -> int:
    return 1 if type(args[0]) in _CONSTANT_SIZE else _smaller(args, result)


def _sum(args: Sequence[Value], _: Value) -> int:
    return math.ceil((_size(args[0]) + _size(args[1])) * TEXT)


def _search(args: Sequence[Value], _: Value) -> int:
    return math.ceil((1 + _size(args[0])) * TEXT) * math.ceil(_size(args[1]) * REGEX)


def _contains(args: Sequence[Value], _: Value) -> int:
    return math.ceil(_size(args[0]) * TEXT) * math.ceil(_size(args[1]) * TEXT)


def _walk(value: Value) -> int:
    """Return the cost of reading a value and everything in it."""
    if isinstance(value, str):
        return int(len(value.encode()) * TEXT)
    if isinstance(value, bytes):
        return int(len(value) * TEXT)
    if isinstance(value, list):
        return sum(map(_walk, value))
    if isinstance(value, Map):
        return sum(_walk(key) + _walk(each) for key, each in value.items())
    return 1


def _walk_first(args: Sequence[Value], _: Value) -> int:
    return _walk(args[0])


def _contains_ip(args: Sequence[Value], _: Value) -> int:
    return math.ceil(2 * size_of(args[0]) * TEXT)


def _contains_cidr(args: Sequence[Value], result: Value) -> int:
    return _contains_ip(args, result) + math.ceil(size_of(args[0]) * TEXT) + 1


def _parsing(cost: Cost) -> Cost:
    """Return a cost function: the sum of ``cost`` and the cost of parsing the second argument."""
    return lambda args, result: cost(args, result) + math.ceil(size_of(args[1]) * TEXT)


def _validate(args: Sequence[Value], _: Value) -> int:
    if not isinstance(args[0], Format):
        return 1
    regex = math.ceil(args[0].regex_size * REGEX)
    return math.ceil((1 + size_of(args[1])) * TEXT) * regex


def _allocation(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST


def _result_list(_: Sequence[Value], result: Value) -> int:
    return _allocation(1, size_of(result))


def _flatten(args: Sequence[Value], _: Value) -> int:
    return _allocation(args[1] if len(args) == 2 else 1, size_of(args[0]))


def _self_compare(position: int) -> Cost:
    def cost(args: Sequence[Value], _: Value) -> int:
        values = args[position]
        if not isinstance(values, list):
            return 1
        is_text = bool(values) and isinstance(values[0], str | bytes)
        return _allocation(2 + TEXT if is_text else 2, len(values) ** 2)

    return cost


def _sets(factor: int) -> Cost:
    return lambda args, _: 1 + size_of(args[0]) * size_of(args[1]) * factor


_OF_FUNCTION: dict[str, Cost] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _walk_first),
    **dict.fromkeys(
        (
            "url",
            "lowerAscii",
            "upperAscii",
            "substring",
            "trim",
            "cidr",
            "isIP",
            "isCIDR",
            "ip",
            "quantity",
            "isQuantity",
            "semver",
            "isSemver",
        ),
        _traversal(),
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _traversal(2 * TEXT)),
    "join": lambda _, result: math.ceil(size_of(result) * 2 * TEXT),
    "find": _search,
    "findAll": _search,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
}
"""Costs by function. They also apply if the overload is only known at run time."""

_COMPARISONS = ("less", "greater", "less_equals", "greater_equals")
_OF_OVERLOAD: dict[str, Cost] = {
    "cidr_ip": _one,
    "cidr_contains_ip_string": _parsing(_contains_ip),
    "cidr_contains_cidr_string": _parsing(_contains_cidr),
    **dict.fromkeys(
        (
            "string_to_bytes",
            "bytes_to_string",
            "strings_quote",
            "string_format",
            "starts_with_string",
            "ends_with_string",
        ),
        _traversal(),
    ),
    "in_list": lambda args, _: size_of(args[1]),
    **{f"{name}_{kind}": _smaller for name in _COMPARISONS for kind in ("string", "bytes")},
    "equals": _equals,
    "not_equals": _smaller,
    "add_string": _sum,
    "add_bytes": _sum,
    "matches_string": _search,
    "contains_string": _contains,
    **dict.fromkeys(("list_slice", "lists_range", "list_reverse"), _result_list),
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_distinct": _self_compare(0),
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}


def cost_of(function: str, overload: str, is_1_37: bool) -> Cost:
    """Return the function that computes the cost of a call.

    ``overload``: ID of the overload; "" if the checker found several. ``is_1_37``: True for the
    costs of Kubernetes 1.37, False for the costs of 1.36.
    """
    if is_1_37:
        if overload in ("starts_with_string", "ends_with_string"):
            return lambda args, _: math.ceil(_size(args[1]) * TEXT)
        if overload == "matches":
            return _search
        if function == "includes":
            return _walk_first
    if overload.endswith("_sort"):
        return _self_compare(0)
    if overload.endswith("_sortByAssociatedKeys"):
        return _self_compare(1)
    return _OF_OVERLOAD.get(overload) or _OF_FUNCTION.get(function, _one)
