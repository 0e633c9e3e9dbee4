"""CEL functions on lists, sets and maps."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from devicemanager.claims.cel.functions.arithmetic import add
from devicemanager.claims.cel.limits import check_size
from devicemanager.claims.cel.values import (
    COMPARABLE,
    MISSING,
    NO_OVERLOAD,
    CelError,
    Duration,
    InternalError,
    Map,
    UInt,
    Value,
    compare,
    equality,
    text_of,
)

MAX_RANGE = 1_000_000
"""Maximum size of a list from ``lists.range``. Kubernetes has this limit since 1.37."""
MAX_INCLUDES = 48
"""Maximum number of list elements that ``includes`` compares in Kubernetes 1.36.

A longer list is an error if these elements do not contain the value.
"""


def contains(values: list[Value], value: Value) -> bool:
    """Return True if a list has an element equal to ``value``."""
    return any(equality(value, each) is True for each in values)


def _is_sorted(values: list[Value]) -> bool:
    return all(compare(*pair) <= 0 for pair in itertools.pairwise(values))


def _sum(start: Value) -> Callable[[list[Value]], Value]:
    return lambda values: functools.reduce(add, values, start)


def _best(name: str, better: int) -> Callable[[list[Value]], Value]:
    """Return the function ``min`` or ``max``.

    ``better``: -1 for ``min``, 1 for ``max``. A value is better than the best value so far if
    ``compare(value, best)`` returns this number.
    """

    def choose(values: list[Value]) -> Value:
        if not values:
            raise CelError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            if compare(value, best) == better:
                best = value
        return best

    return choose


def _index_of(values: list[Value], value: Value) -> int:
    found = (i for i, each in enumerate(values) if equality(each, value) is True)
    return next(found, -1)


def _last_index_of(values: list[Value], value: Value) -> int:
    found = _index_of(values[::-1], value)
    return -1 if found < 0 else len(values) - 1 - found


def _slice(values: list[Value], start: int, end: int) -> list[Value]:
    what = f"cannot slice({start}, {end})"
    if start < 0 or end < 0:
        raise CelError(f"{what}, negative indexes not supported")
    if start > end:
        raise CelError(f"{what}, start index must be less than or equal to end index")
    if len(values) < end:
        raise CelError(f"{what}, list is length {len(values)}")
    return values[start:end]


def _flatten(values: list[Value], depth: int = 1) -> list[Value]:
    if type(depth) is not int:
        raise InternalError("interface conversion: the depth is not types.Int")
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Value] = []
    for value in values:
        flat += _flatten(value, depth - 1) if depth and type(value) is list else [value]
        check_size(len(flat))
    return flat


def _sort_by(values: list[Value], keys: list[Value]) -> list[Value]:
    if len(values) != len(keys):
        raise CelError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys"
            f" list, but got {len(values)} and {len(keys)} elements respectively"
        )
    if not values:
        return values
    if type(keys[0]) not in COMPARABLE:
        raise CelError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise CelError("list elements must have the same type")
    order = sorted(range(len(keys)), key=lambda i: functools.cmp_to_key(compare)(keys[i]))
    return [values[i] for i in order]


def _sort(values: list[Value]) -> list[Value]:
    return _sort_by(values, values)


def _distinct(values: list[Value]) -> list[Value]:
    unique: list[Value] = []
    for value in values:
        if not any(equality(value, other) is True for other in unique):
            unique.append(value)
    return unique


def numbers_below(end: int) -> list[int]:
    """Evaluate ``lists.range`` as Kubernetes 1.37 does. Raises CelError if ``end`` is negative or
    above ``MAX_RANGE``."""
    if end < 0:
        raise CelError(f"lists.range: size must be non-negative, got {end}")
    if end > MAX_RANGE:
        raise CelError(f"lists.range: size {end} exceeds maximum allowed ({MAX_RANGE})")
    return list(range(end))


def numbers_below_unchecked(end: int) -> list[int]:
    """Evaluate ``lists.range`` as Kubernetes 1.36 does, without the limit ``MAX_RANGE``.

    Raises TooMuchWork for more than ``limits.MAX_SIZE`` numbers.
    """
    check_size(end)
    return list(range(end))


def includes(value: Value, wanted: Value) -> bool:
    """Evaluate ``value.includes(wanted)``: True if the list ``value`` contains ``wanted``.

    For a ``value`` that is not a list: True if it equals ``wanted``.
    """
    if type(value) is not list:
        return equality(value, wanted) is True
    return any(equality(each, wanted) is True for each in value)


def includes_in_few(value: Value, wanted: Value) -> bool:
    """Evaluate ``value.includes(wanted)`` as Kubernetes 1.36 does.

    Of a list, compare only the first ``MAX_INCLUDES`` elements. If none of them equals ``wanted``
    and the list is longer, raise CelError.
    """
    if type(value) is not list or len(value) <= MAX_INCLUDES:
        return includes(value, wanted)
    if not includes(value[:MAX_INCLUDES], wanted):
        raise CelError(
            f"'includes' function cannot be applied to lists longer than {MAX_INCLUDES} values"
        )
    return True


def _sets_contains(values: list[Value], wanted: list[Value]) -> bool:
    return all(contains(values, each) for each in wanted)


def _sets_intersects(values: list[Value], others: list[Value]) -> bool:
    return any(contains(others, each) for each in values)


def _sets_equivalent(values: list[Value], others: list[Value]) -> bool:
    return _sets_contains(values, others) and _sets_contains(others, values)


def _insert(target: Map, key: Value, value: Value) -> Map:
    if target.find(key) is not MISSING:
        raise CelError(f"insert failed: key {text_of(key)} already exists")
    return Map([*target.items(), (key, value)])


def _insert_all(target: Map, added: Map) -> Map:
    for key, value in added.items():
        target = _insert(target, key, value)
    return target


def inside(value: Value, collection: Value) -> bool:
    """Evaluate ``value in collection``."""
    if type(collection) is list:
        return contains(collection, value)
    if type(collection) is Map:
        return value in collection
    raise CelError(NO_OVERLOAD)


_COMPARABLE_NAMES = (
    "int",
    "uint",
    "double",
    "bool",
    "duration",
    "timestamp",
    "string",
    "bytes",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
)

IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    **{f"list_{name}_is_sorted_bool": _is_sorted for name in _COMPARABLE_NAMES},
    **{f"list_{name}_min_{name}": _best("min", -1) for name in _COMPARABLE_NAMES},
    **{f"list_{name}_max_{name}": _best("max", 1) for name in _COMPARABLE_NAMES},
    **{f"list_{name}_sort": _sort for name in _COMPARABLE_NAMES},
    **{f"list_{name}_sortByAssociatedKeys": _sort_by for name in _COMPARABLE_NAMES},
    "list_int_sum_int": _sum(0),
    "list_uint_sum_uint": _sum(UInt(0)),
    "list_double_sum_double": _sum(0.0),
    "list_duration_sum_duration": _sum(Duration(0)),
    "list_a_index_of_int": _index_of,
    "list_a_last_index_of_int": _last_index_of,
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_reverse": lambda values: values[::-1],
    "list_distinct": _distinct,
    "list_sets_contains_list": _sets_contains,
    "list_sets_equivalent_list": _sets_equivalent,
    "list_sets_intersects_list": _sets_intersects,
    "@mapInsert_map_key_value": _insert,
    "@mapInsert_map_map": _insert_all,
}
