"""Estimate the cost of a function call, and the size of its result, before evaluation.

In:  a call with the types and sizes of its arguments.
Out: lower and upper bounds of the cost of the call (without the cost of its arguments), and of the
     size of its result.

The rules are those of cel-go (checker/cost.go and ext, v0.26) and of Kubernetes
(apiserver/pkg/cel/library/cost.go, v0.36).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from devicemanager.claims.cel import types
from devicemanager.claims.cel.costs import LIST, REGEX, TEXT
from devicemanager.claims.cel.sizes import ANY_SIZE, ONE, UNBOUNDED, ZERO, Range, capped, exactly
from devicemanager.claims.cel.syntax import Const, Node
from devicemanager.claims.cel.types import Type

_FORMAT_REGEX = 128
"""Length of the regular expression that the estimate assumes for ``validate``."""
_FORMAT_NAME = 64
"""Length of a format's name that the estimate assumes for ``==``."""

Path = tuple[str, ...]
"""Path of a value: ``("device", "attributes", "@values")`` for ``device.attributes['d']``.

The first part is a variable. Each other part is a field name, or a word for the contents of a list
(``@items``, ``@indices``) or of a map (``@keys``, ``@values``).
"""


class Argument(NamedTuple):
    """Type and size of an argument of a call."""

    node: Node | None
    type: Type
    size: Range
    path: Path

    @property
    def literal(self) -> object:
        """Value of the argument if it is a literal, else None."""
        return self.node.value if isinstance(self.node, Const) else None


class CallSizes(NamedTuple):
    """Input of a rule: a function call, with the types and sizes of its arguments."""

    function: str
    overload: str
    target: Argument | None
    args: Sequence[Argument]
    element: Callable[[Argument], Argument | None]
    """Function that returns the type and size of the elements of a list argument, or None if their
    type is unknown."""

    @property
    def first(self) -> Range:
        """Size of a method's receiver, or of a function's first argument."""
        return (self.target or self.args[0]).size


class Estimate(NamedTuple):
    """Bounds of the cost of a call and of the size of its result."""

    cost: Range
    size: Range | None = None
    """Bounds of the result's size; None if the rule does not compute them."""


Rule = Callable[[CallSizes], Estimate]


def _fixed(cost: int) -> Rule:
    return lambda _: Estimate(exactly(cost))


_one = _fixed(1)


def _reading(factor: float = TEXT) -> Rule:
    return lambda call: Estimate(call.first.scaled(factor))


def _transforming(call: CallSizes) -> Estimate:
    return Estimate(call.first.scaled(TEXT), call.first)


def _each_element(call: CallSizes) -> Estimate:
    assert call.target is not None
    element = call.element(call.target)
    if element is None:
        # The target is a string, or its type is known only at run time.
        return Estimate(call.first.scaled(1 if call.function == "includes" else TEXT))
    cost = ONE
    if element.type in (types.STRING, types.BYTES):
        cost = cost.plus(element.size.scaled(TEXT))
    return Estimate(call.first.times(cost))


def _search(call: CallSizes) -> Estimate:
    text = call.first.plus(ONE).scaled(TEXT)
    cost = text.times(call.args[-1 if call.target is None else 0].size.scaled(REGEX))
    result = Range(0, call.first.high) if call.function.startswith("find") else None
    return Estimate(cost, result)


def _replace(call: CallSizes) -> Estimate:
    size, old, new = call.first, call.args[0].size, call.args[1].size
    most, kept_most = _replacements(size.high, old.low, new.high <= old.low)
    least, kept_least = _replacements(size.low, old.high, old.high <= new.low)
    result = Range(least, most).times(new).plus(Range(kept_least, kept_most))
    return Estimate(size.scaled(2 * TEXT), result)


def _replacements(size: int, old: int, keeps_size: bool) -> tuple[int, int]:
    """Return a number of replacements in a text, and the number of its unchanged characters.

    ``size`` and ``old``: sizes of the text and of the replaced substring. An empty substring is
    replaced at every position of the text. For any other substring, assume that nothing is replaced
    if ``keeps_size`` is True, and that the whole text is replaced if it is False.
    """
    if old == 0:
        return capped(size + 1), size
    return (0, size) if keeps_size else (math.ceil(size / old), 0)


def _split(call: CallSizes) -> Estimate:
    count = call.args[1].literal if len(call.args) > 1 else None
    most = call.first.high if not isinstance(count, int) else count % 2**64
    return Estimate(call.first.scaled(2 * TEXT), Range(0, most))


def _join(call: CallSizes) -> Estimate:
    assert call.target is not None
    element = call.element(call.target)
    size = call.first.times(element.size) if element else ZERO
    if call.args:
        gaps = Range(max(call.first.low - 1, 0), max(call.first.high - 1, 0))
        size = size.plus(call.args[0].size.times(gaps))
    return Estimate(size.scaled(TEXT), size)


_ADDRESS = Range(4, 16)
"""Size of an IP address in bytes: version 4 or 6."""


def _contains_address(call: CallSizes) -> Estimate:
    cost = _ADDRESS.plus(_ADDRESS).scaled(TEXT)
    if call.function == "containsCIDR":
        cost = cost.plus(_ADDRESS.scaled(TEXT)).plus(ONE)
    if call.overload.endswith("_string"):
        cost = cost.plus(call.args[0].size.scaled(TEXT))
    return Estimate(cost)


def _validate(call: CallSizes) -> Estimate:
    return Estimate(call.args[0].size.scaled(TEXT).scaled(_FORMAT_REGEX * REGEX))


def _equals(call: CallSizes) -> Estimate:
    one, other = call.args
    if call.overload == "equals" and one.type == other.type:
        if one.type in (types.QUANTITY, types.SEMVER, types.IP, types.CIDR):
            return Estimate(ONE)
        if one.type == types.FORMAT:
            return Estimate(Range(1, _FORMAT_NAME).scaled(TEXT))
        if one.type == types.URL:
            size = other.size.high if other.size != ANY_SIZE else 1
            return Estimate(Range(1, size).scaled(TEXT))
    return _smaller(call)


def _smaller(call: CallSizes) -> Estimate:
    high = min(argument.size.high for argument in call.args)
    return Estimate(Range(min(high, 1), high).scaled(TEXT))


def _add(call: CallSizes) -> Estimate:
    size = call.args[0].size.plus(call.args[1].size)
    return Estimate(ONE if call.overload == "add_list" else size.scaled(TEXT), size)


def _to_bytes(call: CallSizes) -> Estimate:
    # Go computes the upper bound in 64 bits and does not check for an overflow.
    size = Range(call.first.low, call.first.high * 4 % 2**64)
    return Estimate(call.first.scaled(TEXT), size)


def _from_bytes(call: CallSizes) -> Estimate:
    return Estimate(call.first.scaled(TEXT), Range(call.first.low // 4, call.first.high))


def _quote(call: CallSizes) -> Estimate:
    size = Range(call.first.low + 2, (call.first.high * 2 + 2) % 2**64)
    return Estimate(call.first.scaled(TEXT), size)


def _affix(call: CallSizes) -> Estimate:
    return Estimate(call.args[0].size.scaled(TEXT))


def _inside(call: CallSizes) -> Estimate:
    return Estimate(call.args[1].size)


def _contains(call: CallSizes) -> Estimate:
    return Estimate(call.first.scaled(TEXT).times(call.args[0].size.scaled(TEXT)))


def _creating(factor: float, size: Range) -> Estimate:
    return Estimate(size.scaled(factor).plus(exactly(1 + LIST)), size)


def _whole_number(argument: Argument, default: int) -> int:
    value = argument.literal
    return max(value, 0) if type(value) is int else default


def _slice(call: CallSizes) -> Estimate:
    start = _whole_number(call.args[0], 0)
    end = _whole_number(call.args[1], call.first.high)
    return _creating(1, exactly((end - start) % 2**64))


def _numbers(call: CallSizes) -> Estimate:
    return _creating(1, exactly(_whole_number(call.args[0], UNBOUNDED)))


def _flatten(call: CallSizes) -> Estimate:
    return _creating(_whole_number(call.args[0], UNBOUNDED) if call.args else 1, call.first)


def _sorting(call: CallSizes) -> Estimate:
    is_text = call.overload.startswith(("list_string", "list_bytes"))
    size = call.args[0].size if call.args else call.first
    return _creating(2 + TEXT if is_text else 2, size.times(size))


def _sets(factor: float) -> Rule:
    def rule(call: CallSizes) -> Estimate:
        cost = call.args[0].size.times(call.args[1].size).scaled(factor)
        return Estimate(cost.plus(ONE))

    return rule


def _first_values(_: CallSizes) -> Estimate:
    return Estimate(Range(0, 48))


_OF_OVERLOAD: dict[str, Rule] = {
    "list_slice": _slice,
    "lists_range": _numbers,
    "list_reverse": lambda call: _creating(1, call.first),
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_distinct": _sorting,
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "dra_includes_dyn_dyn": _first_values,
    "cidr_ip": _one,
    "string_format": _reading(),
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _from_bytes,
    "strings_quote": _quote,
    "starts_with_string": _affix,
    "ends_with_string": _affix,
    "in_list": _inside,
    "matches_string": _search,
    "contains_string": _contains,
    "add_string": _add,
    "add_bytes": _add,
    "add_list": _add,
    "equals": _equals,
    "not_equals": _equals,
    **{
        f"{name}_{kind}": _smaller
        for name in ("less", "greater", "less_equals", "greater_equals")
        for kind in ("string", "bytes")
    },
}
_OF_FUNCTION: dict[str, Rule] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _each_element
    ),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _transforming),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _search,
    "findAll": _search,
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"),
        _reading(),
    ),
    "ip.isCanonical": _reading(2 * TEXT),
    "containsIP": _contains_address,
    "containsCIDR": _contains_address,
    "validate": _validate,
    "check": _fixed(350_000),
}


def rule_for(call: CallSizes, is_1_37: bool) -> Rule:
    """Return the rule for a call. By default, a call costs one unit."""
    if call.overload.endswith(("_sort", "_sortByAssociatedKeys")):
        return _sorting
    if call.overload == "matches" and is_1_37:
        return _search
    return _OF_OVERLOAD.get(call.overload) or _OF_FUNCTION.get(call.function, _one)
