"""Estimate Kubernetes' cost of an expression before it is evaluated.

In:  a checked syntax tree, and the maximum sizes of what its variables contain.
Out: the worst case in cost units. The API server rejects expressions above ``limits.MAX_COST``.

The rules are those of cel-go (checker/cost.go and ext, v0.26) and of Kubernetes
(apiserver/pkg/cel/library/cost.go, v0.36). ``costs`` has their counterpart at run time.
"""

# A cost estimate is an upper bound from the sizes of the values. The size of a value is known for
# literals, for what the variable ``device`` contains, and for results of functions with a rule.
# All other sizes have no bound, so some harmless expressions are rejected, as in Kubernetes.

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import attrs

from devicemanager.claims.cel import types
from devicemanager.claims.cel.costs import LIST, MAP, MESSAGE, REGEX, TEXT
from devicemanager.claims.cel.syntax import (
    ACCUMULATORS,
    Call,
    Const,
    Ident,
    ListLiteral,
    Loop,
    MapLiteral,
    Message,
    Node,
    Select,
)
from devicemanager.claims.cel.types import Type

UNBOUNDED = 2**64 - 1
"""Estimate of an expression without a bound. Sums and products stop at this number."""
_FORMAT_REGEX = 128
"""Length of the regular expression that the estimate assumes for ``validate``."""
_FORMAT_NAME = 64


@attrs.frozen(eq=False)
class Sized:
    """Maximum sizes of a variable and of what it contains."""

    size: int
    key: Sized | None = None
    """Key of a map."""
    element: Sized | None = None
    """Element of a list or value of a map."""
    fields: Mapping[str, Sized] = attrs.field(factory=dict)
    has_uniform_values: bool = False
    """True for a map whose values have one maximum size for all keys."""


class Range(NamedTuple):
    """Lower and upper bound of a size or a cost."""

    low: int
    high: int

    def plus(self, other: Range) -> Range:
        """Return the sum."""
        return Range(_cap(self.low + other.low), _cap(self.high + other.high))

    def times(self, other: Range) -> Range:
        """Return the product."""
        return Range(_cap(self.low * other.low), _cap(self.high * other.high))

    def scaled(self, factor: float) -> Range:
        """Return the product with a number, rounded up."""
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))

    def joined(self, other: Range) -> Range:
        """Return the range that covers both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def _cap(number: int) -> int:
    return min(number, UNBOUNDED)


def _scaled(number: int, factor: float) -> int:
    product = float(number) * factor
    return UNBOUNDED if product >= 2.0**64 else _cap(math.ceil(product))


def _exactly(number: int) -> Range:
    return Range(number, number)


_ZERO, _ONE = _exactly(0), _exactly(1)
_ANY_SIZE = Range(0, UNBOUNDED)


class _Entries(NamedTuple):
    """Sizes of the keys and values of a list or map."""

    kind: str
    key: Range
    value: Range

    def joined(self, other: _Entries | None) -> _Entries | None:
        if other is None:
            return None
        return _Entries(self.kind, self.key.joined(other.key), self.value.joined(other.value))


Path = tuple[str, ...]
"""Way from a variable to a value: names of fields, ``@items``, ``@keys`` and ``@values``."""


class _Local(NamedTuple):
    """Variable of a loop or binding."""

    path: Path
    size: Range | None
    entries: _Entries | None


class _Argument(NamedTuple):
    """Argument of a call, as the rules for functions see it."""

    node: Node | None
    type: Type
    size: Range
    path: Path

    @property
    def literal(self) -> object:
        """Value of the argument if it is a literal, else None."""
        return self.node.value if isinstance(self.node, Const) else None


class _Call(NamedTuple):
    """Call with its arguments, as the rules for functions see it."""

    function: str
    overload: str
    target: _Argument | None
    args: Sequence[_Argument]
    element: Callable[[_Argument], _Argument | None]
    """Function that returns the element of a list."""

    @property
    def first(self) -> Range:
        """Size of the target, or of the first argument of a function."""
        return (self.target or self.args[0]).size


class _Estimate(NamedTuple):
    cost: Range
    size: Range | None = None
    """Size of the result, if the rule knows it."""


Rule = Callable[[_Call], _Estimate]


def estimate(root: Node, variables: Mapping[str, Sized], is_1_37: bool) -> int:
    """Return the worst case of the cost of a checked expression, in Kubernetes 1.37 or 1.36."""
    return _Estimator(variables, is_1_37).cost(root).high


class _Estimator:
    def __init__(self, variables: Mapping[str, Sized], is_1_37: bool) -> None:
        self._variables = variables
        self._is_1_37 = is_1_37
        self._paths: dict[Node, Path] = {}
        self._sizes: dict[Node, Range] = {}
        self._entries: dict[Node, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> Range:
        """Return the cost of a node with all that it contains."""
        match node:
            case Const():
                return _ZERO
            case Ident(name=name):
                local = self._local(name)
                self._paths[node] = local.path if local else (name,)
                return _ONE
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Message():
                return self._all(node.children()).plus(_exactly(MESSAGE))
            case Loop():
                return self._binding(node) if node.is_binding else self._loop(node)
        raise AssertionError(node)

    def _all(self, nodes: Sequence[Node]) -> Range:
        total = _ZERO
        for node in nodes:
            total = total.plus(self.cost(node))
        return total

    def _select(self, node: Select) -> Range:
        cost = self.cost(node.operand)
        if node.is_test:
            return cost
        self._paths[node] = (*self._path(node.operand), node.field)
        type_ = node.operand.type
        has_fields = type_.name in ("map", "kubernetes.DRADevice") or type_ in types.MESSAGES
        return cost.plus(_ONE) if has_fields else cost

    def _list(self, node: ListLiteral) -> Range:
        cost = self._all(node.elements)
        value = self._joined_sizes(node.elements)
        self._entries[node] = _Entries("list", _ONE, value)
        return cost.plus(_exactly(LIST))

    def _map(self, node: MapLiteral) -> Range:
        cost = self._all(node.children())
        keys = self._joined_sizes([each.key for each in node.entries])
        values = self._joined_sizes([each.value for each in node.entries])
        self._entries[node] = _Entries("map", keys, values)
        return cost.plus(_exactly(MAP))

    def _joined_sizes(self, nodes: Sequence[Node]) -> Range:
        found = Range(UNBOUNDED, 0) if nodes else _ZERO
        for node in nodes:
            found = found.joined(self._size_or_any(node))
        return found

    def _loop(self, loop: Loop) -> Range:
        total = self.cost(loop.range).plus(self.cost(loop.init))
        self._push(loop.accu, self._value_of(loop.init))
        self._push_variables(loop)
        condition, step = self.cost(loop.condition), self.cost(loop.step)
        self._locals[loop.var].pop()
        if loop.var2:
            self._locals[loop.var2].pop()
        total = total.plus(self.cost(loop.result))
        self._locals[loop.accu].pop()
        count = self._size_or_any(loop.range)
        self._note_loop_size(loop, count)
        return total.plus(count.times(step.plus(condition)))

    def _note_loop_size(self, loop: Loop, count: Range) -> None:
        if isinstance(loop.init, Const):
            self._note_size(loop, self._size(loop.init))
        elif isinstance(loop.init, ListLiteral | MapLiteral):
            self._note_size(loop, count)
            self._note_entries(loop, self._entries_of(loop.step))

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _value_of(self, node: Node) -> _Local:
        return _Local(self._path(node), self._size(node), self._entries_of(node))

    def _push_variables(self, loop: Loop) -> None:
        entries = self._entries_of(loop.range)
        path = self._path(loop.range)
        is_list = (entries.kind if entries else loop.range.type.name) == "list"
        key = entries.key if entries else None
        value = entries.value if entries else None
        value_path = (*path, "@items" if is_list else "@values")
        if loop.var2:
            key_path = (*path, "@indices" if is_list else "@keys")
            # In Go, both paths are appended to one slice. If it has room, they share memory.
            if path and len(path).bit_count() != 1:
                key_path = value_path
            self._push(loop.var, _Local(key_path, key, None))
            self._push(loop.var2, _Local(value_path, value, None))
        elif is_list:
            self._push(loop.var, _Local(value_path, value, None))
        else:
            self._push(loop.var, _Local((*path, "@keys"), key, None))

    def _binding(self, loop: Loop) -> Range:
        total = self.cost(loop.range).plus(self.cost(loop.init))
        self._push(loop.accu, self._value_of(loop.init))
        total = total.plus(self.cost(loop.result))
        self._locals[loop.accu].pop()
        self._copy_sizes(loop, loop.result)
        return total

    def _copy_sizes(self, to: Node, source: Node) -> None:
        self._note_size(to, self._size(source))
        self._note_entries(to, self._entries_of(source))

    def _local(self, name: str) -> _Local | None:
        found = self._locals.get(name)
        return found[-1] if found else None

    def _path(self, node: Node) -> Path:
        if isinstance(node, Ident):
            local = self._local(node.name)
            if local is not None:
                return local.path
        return self._paths.get(node, ())

    def _note_size(self, node: Node, size: Range | None) -> None:
        if size is not None:
            self._sizes[node] = size

    def _note_entries(self, node: Node, entries: _Entries | None) -> None:
        if entries is not None:
            self._entries[node] = entries

    def _entries_of(self, node: Node) -> _Entries | None:
        if node in self._entries:
            return self._entries[node]
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.entries if local else None

    def _size_or_any(self, node: Node) -> Range:
        return self._size(node) or _ANY_SIZE

    def _size(self, node: Node) -> Range | None:
        """Return the size of the value of a node; None if it has no known bound."""
        known = self._sizes.get(node) or _literal_size(node)
        if known is not None:
            return known
        declared = self._declared_size(self._path(node))
        if declared is not None:
            self._sizes[node] = declared
            return declared
        if _is_scalar(node.type):
            return _ONE
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.size if local else None

    def _declared_size(self, path: Path) -> Range | None:
        found = self._variables.get(path[0]) if path else None
        for name in path[1:]:
            if found is None:
                return None
            if name in ("@items", "@values"):
                found = found.element
            elif name == "@keys":
                found = found.key
            else:
                uniform = found.element if found.has_uniform_values else None
                found = found.fields.get(name, uniform)
        return None if found is None else Range(0, found.size)

    def _call(self, call: Call) -> Range:
        if call.function == "dyn":
            cost = self.cost(call.args[0]).plus(_ONE)
            self._copy_sizes(call, call.args[0])
            return cost
        costs = [self.cost(each) for each in call.args]
        args = [self._argument(each) for each in call.args]
        if not call.overloads:
            return _ZERO
        before, target = _ZERO, None
        if call.target is not None:
            before = self.cost(call.target)
            target = self._argument(call.target)
        total, size = Range(UNBOUNDED, 0), None
        for overload in call.overloads:
            details = _Call(call.function, overload.id, target, args, self._element)
            found = self._function(call, details, costs)
            total = total.joined(found.cost)
            if found.size is not None:
                size = found.size if size is None else size.joined(found.size)
            size = self._indexed(call, overload.id, size)
            size = self._size(call) if size is None else size
        self._note_size(call, size)
        return before.plus(total)

    def _indexed(self, call: Call, overload: str, size: Range | None) -> Range | None:
        """Note the path of an element; return its size if the overload is an index."""
        part = {"index_list": "@items", "index_map": "@values"}.get(overload)
        if part is None:
            return size
        entries = self._entries_of(call.args[0])
        self._paths[call] = (*self._path(call.args[0]), part)
        return entries.value if entries else None

    def _argument(self, node: Node) -> _Argument:
        path = self._path(node)
        if path and path[0] in ACCUMULATORS:
            path = ()
        return _Argument(node, node.type, self._size_or_any(node), path)

    def _element(self, argument: _Argument) -> _Argument | None:
        if not argument.type.params:
            return None
        path = (*argument.path, "@items") if argument.path else ()
        size = self._declared_size(path) or _ANY_SIZE
        return _Argument(None, argument.type.params[0], size, path)

    def _function(self, node: Call, call: _Call, costs: Sequence[Range]) -> _Estimate:
        """Return the cost of a call with its arguments, and the size of its result."""
        arguments = _ZERO
        for cost in costs:
            arguments = arguments.plus(cost)
        if call.function in ("_&&_", "_||_"):
            return _Estimate(Range(costs[0].low, arguments.high))
        if call.function == "_?_:_":
            return self._conditional(node, costs)
        found = _rule(call, self._is_1_37)(call)
        if call.overload in ("add_string", "add_bytes", "add_list"):
            one, other = (self._entries_of(each) for each in node.args)
            self._note_entries(node, one.joined(other) if one else None)
        return _Estimate(found.cost.plus(arguments), found.size)

    def _conditional(self, node: Call, costs: Sequence[Range]) -> _Estimate:
        _, one, other = node.args
        entries = self._entries_of(one)
        self._note_entries(node, entries.joined(self._entries_of(other)) if entries else None)
        size = self._size_or_any(one).joined(self._size_or_any(other))
        return _Estimate(costs[0].plus(costs[1].joined(costs[2])), size)


def _literal_size(node: Node) -> Range | None:
    match node:
        case Const(value=str() | bytes() as value):
            return _exactly(len(value))
        case Const():
            return _ONE
        case ListLiteral() | MapLiteral():
            count = len(node.elements if isinstance(node, ListLiteral) else node.entries)
            return _exactly(count)
    return None


def _is_scalar(type_: Type) -> bool:
    if type_.name == "optional_type":
        return _is_scalar(type_.params[0])
    return type_ in types.SCALARS


def _fixed(cost: int) -> Rule:
    return lambda _: _Estimate(_exactly(cost))


_one = _fixed(1)


def _reading(factor: float = TEXT) -> Rule:
    return lambda call: _Estimate(call.first.scaled(factor))


def _transforming(call: _Call) -> _Estimate:
    return _Estimate(call.first.scaled(TEXT), call.first)


def _each_element(call: _Call) -> _Estimate:
    assert call.target is not None
    element = call.element(call.target)
    if element is None:
        # The target is a text, or its type is only known at run time.
        return _Estimate(call.first.scaled(1 if call.function == "includes" else TEXT))
    cost = _ONE
    if element.type in (types.STRING, types.BYTES):
        cost = cost.plus(element.size.scaled(TEXT))
    return _Estimate(call.first.times(cost))


def _search(call: _Call) -> _Estimate:
    text = call.first.plus(_ONE).scaled(TEXT)
    cost = text.times(call.args[-1 if call.target is None else 0].size.scaled(REGEX))
    result = Range(0, call.first.high) if call.function.startswith("find") else None
    return _Estimate(cost, result)


def _replace(call: _Call) -> _Estimate:
    size, old, new = call.first, call.args[0].size, call.args[1].size
    most, kept_most = _replacements(size.high, old.low, new.high <= old.low)
    least, kept_least = _replacements(size.low, old.high, old.high <= new.low)
    result = Range(least, most).times(new).plus(Range(kept_least, kept_most))
    return _Estimate(size.scaled(2 * TEXT), result)


def _replacements(size: int, old: int, keeps_size: bool) -> tuple[int, int]:
    """Return the number of replacements, and the number of characters that stay."""
    if old == 0:
        return _cap(size + 1), size
    return (0, size) if keeps_size else (math.ceil(size / old), 0)


def _split(call: _Call) -> _Estimate:
    count = call.args[1].literal if len(call.args) > 1 else None
    most = call.first.high if not isinstance(count, int) else count % 2**64
    return _Estimate(call.first.scaled(2 * TEXT), Range(0, most))


def _join(call: _Call) -> _Estimate:
    assert call.target is not None
    element = call.element(call.target)
    size = call.first.times(element.size) if element else _ZERO
    if call.args:
        gaps = Range(max(call.first.low - 1, 0), max(call.first.high - 1, 0))
        size = size.plus(call.args[0].size.times(gaps))
    return _Estimate(size.scaled(TEXT), size)


_ADDRESS = Range(4, 16)
"""Size of an address in bytes."""


def _contains_address(call: _Call) -> _Estimate:
    cost = _ADDRESS.plus(_ADDRESS).scaled(TEXT)
    if call.function == "containsCIDR":
        cost = cost.plus(_ADDRESS.scaled(TEXT)).plus(_ONE)
    if call.overload.endswith("_string"):
        cost = cost.plus(call.args[0].size.scaled(TEXT))
    return _Estimate(cost)


def _validate(call: _Call) -> _Estimate:
    return _Estimate(call.args[0].size.scaled(TEXT).scaled(_FORMAT_REGEX * REGEX))


def _equals(call: _Call) -> _Estimate:
    one, other = call.args
    if call.overload == "equals" and one.type == other.type:
        if one.type in (types.QUANTITY, types.SEMVER, types.IP, types.CIDR):
            return _Estimate(_ONE)
        if one.type == types.FORMAT:
            return _Estimate(Range(1, _FORMAT_NAME).scaled(TEXT))
        if one.type == types.URL:
            size = other.size.high if other.size != _ANY_SIZE else 1
            return _Estimate(Range(1, size).scaled(TEXT))
    return _smaller(call)


def _smaller(call: _Call) -> _Estimate:
    high = min(argument.size.high for argument in call.args)
    return _Estimate(Range(min(high, 1), high).scaled(TEXT))


def _add(call: _Call) -> _Estimate:
    size = call.args[0].size.plus(call.args[1].size)
    return _Estimate(_ONE if call.overload == "add_list" else size.scaled(TEXT), size)


def _to_bytes(call: _Call) -> _Estimate:
    # The upper bound wraps in Go.
    size = Range(call.first.low, call.first.high * 4 % 2**64)
    return _Estimate(call.first.scaled(TEXT), size)


def _from_bytes(call: _Call) -> _Estimate:
    return _Estimate(call.first.scaled(TEXT), Range(call.first.low // 4, call.first.high))


def _quote(call: _Call) -> _Estimate:
    size = Range(call.first.low + 2, (call.first.high * 2 + 2) % 2**64)
    return _Estimate(call.first.scaled(TEXT), size)


def _affix(call: _Call) -> _Estimate:
    return _Estimate(call.args[0].size.scaled(TEXT))


def _inside(call: _Call) -> _Estimate:
    return _Estimate(call.args[1].size)


def _contains(call: _Call) -> _Estimate:
    return _Estimate(call.first.scaled(TEXT).times(call.args[0].size.scaled(TEXT)))


def _creating(factor: float, size: Range) -> _Estimate:
    return _Estimate(size.scaled(factor).plus(_exactly(1 + LIST)), size)


def _whole_number(argument: _Argument, default: int) -> int:
    value = argument.literal
    return max(value, 0) if type(value) is int else default


def _slice(call: _Call) -> _Estimate:
    start = _whole_number(call.args[0], 0)
    end = _whole_number(call.args[1], call.first.high)
    return _creating(1, _exactly((end - start) % 2**64))


def _numbers(call: _Call) -> _Estimate:
    return _creating(1, _exactly(_whole_number(call.args[0], UNBOUNDED)))


def _flatten(call: _Call) -> _Estimate:
    return _creating(_whole_number(call.args[0], UNBOUNDED) if call.args else 1, call.first)


def _sorting(call: _Call) -> _Estimate:
    is_text = call.overload.startswith(("list_string", "list_bytes"))
    size = call.args[0].size if call.args else call.first
    return _creating(2 + TEXT if is_text else 2, size.times(size))


def _sets(factor: float) -> Rule:
    def rule(call: _Call) -> _Estimate:
        cost = call.args[0].size.times(call.args[1].size).scaled(factor)
        return _Estimate(cost.plus(_ONE))

    return rule


def _first_values(_: _Call) -> _Estimate:
    return _Estimate(Range(0, 48))


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


def _rule(call: _Call, is_1_37: bool) -> Rule:
    """Return the rule for a call; the default is one unit."""
    if call.overload.endswith(("_sort", "_sortByAssociatedKeys")):
        return _sorting
    if call.overload == "matches" and is_1_37:
        return _search
    return _OF_OVERLOAD.get(call.overload) or _OF_FUNCTION.get(call.function, _one)
