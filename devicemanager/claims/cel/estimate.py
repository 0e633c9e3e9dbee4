"""Estimate the cost of an expression before it is evaluated, in the cost units of Kubernetes.

In:  a checked syntax tree, and the maximum sizes of its variables (``sizes``).
Out: the worst-case cost. The API server rejects expressions above ``limits.MAX_COST``.

The rules are those of cel-go (checker/cost.go and ext, v0.26) and of Kubernetes
(apiserver/pkg/cel/library/cost.go, v0.36). ``estimate_rules`` has the rules for functions.
``costs`` computes the actual cost at run time.
"""

# The estimate is an upper bound, computed from the sizes of values. A size has a bound for
# literals, for the fields of the variable ``device``, and for results of functions whose rule
# bounds it. All other sizes have no bound. Therefore the API server rejects some harmless
# expressions.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from devicemanager.claims.cel import types
from devicemanager.claims.cel.costs import LIST, MAP, MESSAGE
from devicemanager.claims.cel.estimate_rules import Argument, CallSizes, Estimate, Path, rule_for
from devicemanager.claims.cel.sizes import (
    ANY_SIZE,
    ONE,
    UNBOUNDED,
    ZERO,
    Entries,
    Range,
    Sized,
    exactly,
)
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


class _Local(NamedTuple):
    """Variable of a loop or of ``cel.bind``."""

    path: Path
    size: Range | None
    entries: Entries | None


def estimate(root: Node, variables: Mapping[str, Sized], is_1_37: bool) -> int:
    """Return the worst-case cost of a checked expression.

    ``is_1_37``: True for the costs of Kubernetes 1.37, False for the costs of 1.36.
    """
    return _Estimator(variables, is_1_37).cost(root).high


class _Estimator:
    def __init__(self, variables: Mapping[str, Sized], is_1_37: bool) -> None:
        self._variables = variables
        self._is_1_37 = is_1_37
        self._paths: dict[Node, Path] = {}
        self._sizes: dict[Node, Range] = {}
        self._entries: dict[Node, Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> Range:
        """Return the cost of a node and its descendants."""
        match node:
            case Const():
                return ZERO
            case Ident(name=name):
                local = self._local(name)
                self._paths[node] = local.path if local else (name,)
                return ONE
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Message():
                return self._all(node.children()).plus(exactly(MESSAGE))
            case Loop():
                return self._binding(node) if node.is_binding else self._loop(node)
        raise AssertionError(node)

    def _all(self, nodes: Sequence[Node]) -> Range:
        total = ZERO
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
        return cost.plus(ONE) if has_fields else cost

    def _list(self, node: ListLiteral) -> Range:
        cost = self._all(node.elements)
        value = self._joined_sizes(node.elements)
        self._entries[node] = Entries("list", ONE, value)
        return cost.plus(exactly(LIST))

    def _map(self, node: MapLiteral) -> Range:
        cost = self._all(node.children())
        keys = self._joined_sizes([each.key for each in node.entries])
        values = self._joined_sizes([each.value for each in node.entries])
        self._entries[node] = Entries("map", keys, values)
        return cost.plus(exactly(MAP))

    def _joined_sizes(self, nodes: Sequence[Node]) -> Range:
        found = Range(UNBOUNDED, 0) if nodes else ZERO
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
            # Go appends to one slice twice. If the slice has spare capacity, the second append
            # overwrites the first. A slice of 1, 2, 4, … elements has none.
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

    def _note_entries(self, node: Node, entries: Entries | None) -> None:
        if entries is not None:
            self._entries[node] = entries

    def _entries_of(self, node: Node) -> Entries | None:
        if node in self._entries:
            return self._entries[node]
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.entries if local else None

    def _size_or_any(self, node: Node) -> Range:
        return self._size(node) or ANY_SIZE

    def _size(self, node: Node) -> Range | None:
        """Return bounds for the size of a node's value; None if there is no upper bound."""
        known = self._sizes.get(node) or _literal_size(node)
        if known is not None:
            return known
        declared = self._declared_size(self._path(node))
        if declared is not None:
            self._sizes[node] = declared
            return declared
        if _is_scalar(node.type):
            return ONE
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
            cost = self.cost(call.args[0]).plus(ONE)
            self._copy_sizes(call, call.args[0])
            return cost
        costs = [self.cost(each) for each in call.args]
        args = [self._argument(each) for each in call.args]
        if not call.overloads:
            return ZERO
        before, target = ZERO, None
        if call.target is not None:
            before = self.cost(call.target)
            target = self._argument(call.target)
        total, size = Range(UNBOUNDED, 0), None
        for overload in call.overloads:
            details = CallSizes(call.function, overload.id, target, args, self._element)
            found = self._function(call, details, costs)
            total = total.joined(found.cost)
            if found.size is not None:
                size = found.size if size is None else size.joined(found.size)
            size = self._indexed(call, overload.id, size)
            size = self._size(call) if size is None else size
        self._note_size(call, size)
        return before.plus(total)

    def _indexed(self, call: Call, overload: str, size: Range | None) -> Range | None:
        """Return the size of the result of a call, for one of its overloads.

        ``size``: the size that is known so far. It is returned unchanged for most overloads. For
        the overloads of ``list[index]`` and ``map[key]``, return the size of the element, and store
        the path of the element in ``_paths``.
        """
        part = {"index_list": "@items", "index_map": "@values"}.get(overload)
        if part is None:
            return size
        entries = self._entries_of(call.args[0])
        self._paths[call] = (*self._path(call.args[0]), part)
        return entries.value if entries else None

    def _argument(self, node: Node) -> Argument:
        path = self._path(node)
        if path and path[0] in ACCUMULATORS:
            path = ()
        return Argument(node, node.type, self._size_or_any(node), path)

    def _element(self, argument: Argument) -> Argument | None:
        if not argument.type.params:
            return None
        path = (*argument.path, "@items") if argument.path else ()
        size = self._declared_size(path) or ANY_SIZE
        return Argument(None, argument.type.params[0], size, path)

    def _function(self, node: Call, call: CallSizes, costs: Sequence[Range]) -> Estimate:
        """Return the cost of a call including its arguments, and the size of its result."""
        arguments = ZERO
        for cost in costs:
            arguments = arguments.plus(cost)
        if call.function in ("_&&_", "_||_"):
            return Estimate(Range(costs[0].low, arguments.high))
        if call.function == "_?_:_":
            return self._conditional(node, costs)
        found = rule_for(call, self._is_1_37)(call)
        if call.overload in ("add_string", "add_bytes", "add_list"):
            one, other = (self._entries_of(each) for each in node.args)
            self._note_entries(node, one.joined(other) if one else None)
        return Estimate(found.cost.plus(arguments), found.size)

    def _conditional(self, node: Call, costs: Sequence[Range]) -> Estimate:
        _, one, other = node.args
        entries = self._entries_of(one)
        self._note_entries(node, entries.joined(self._entries_of(other)) if entries else None)
        size = self._size_or_any(one).joined(self._size_or_any(other))
        return Estimate(costs[0].plus(costs[1].joined(costs[2])), size)


def _literal_size(node: Node) -> Range | None:
    match node:
        case Const(value=str() | bytes() as value):
            return exactly(len(value))
        case Const():
            return ONE
        case ListLiteral() | MapLiteral():
            count = len(node.elements if isinstance(node, ListLiteral) else node.entries)
            return exactly(count)
    return None


def _is_scalar(type_: Type) -> bool:
    if type_.name == "optional_type":
        return _is_scalar(type_.params[0])
    return type_ in types.SCALARS
