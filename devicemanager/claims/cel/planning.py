"""Turn a checked syntax tree into a program.

In:  a tree with types and overloads (``checker``), and the names of the variables.
Out: a ``Program``; or PlanFault for an expression that fails for every device.

Each node becomes a step (``steps``). As in cel-go (interpreter/planner.go, v0.26), conversions of
constants are evaluated here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from devicemanager.claims.cel import costs, steps
from devicemanager.claims.cel.declarations import type_identifiers
from devicemanager.claims.cel.dispatch import Dialect, implementation
from devicemanager.claims.cel.elements import checked_key
from devicemanager.claims.cel.functions import regex
from devicemanager.claims.cel.running import Program
from devicemanager.claims.cel.steps import LoopSteps, Step, constant, fold
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
    qualified_name,
)
from devicemanager.claims.cel.values import CelError, Map, TypeName, Value


class PlanFault(Exception):
    """Error for an expression that fails for every device, such as ``int('x')``."""


def plan(root: Node, variables: Iterable[str], dialect: Dialect) -> Program:
    """Return the program of a checked tree. Raises PlanFault if the expression fails for every
    device."""
    return Program(_Planner(dialect, frozenset(variables)).step(root))


class _Planner:
    def __init__(self, dialect: Dialect, names: frozenset[str]) -> None:
        self._dialect = dialect
        self._names = names
        """Names of variables; any other name denotes a type."""

    def step(self, node: Node) -> Step:
        """Return the step that evaluates a node."""
        match node:
            case Const(value=value):
                return constant(value)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Message():
                return steps.create_message(node.name, list(map(self.step, node.children())))
            case Loop():
                return self._binding(node) if _is_lazy(node) else self._loop(node)
        raise AssertionError(node)

    def _with(self, *names: str) -> _Planner:
        return _Planner(self._dialect, self._names | set(filter(None, names)))

    def _ident(self, node: Ident) -> Step:
        name = node.name.removeprefix(".")
        # cel-go treats a variable whose value is a type as the name of a type.
        if name not in self._names or node.type.name == "type":
            return _type_value(name)
        return steps.load(name)

    def _operand(self, node: Node) -> Step:
        """Return the step of the operand of a field selection or an index."""
        step = self.step(node)
        return step if _is_chain(node) else steps.charged(step)

    def _attribute(self, node: Node) -> Step:
        """Return the step of a branch of a conditional, or of the key of an index.

        In these two places, cel-go does not charge for reading a variable.
        """
        step = self.step(node)
        if not _is_chain(node) or not isinstance(node, Ident | Select | Call):
            return step
        if isinstance(node, Ident) and node.name not in self._names:
            return step
        return steps.uncharged(step)

    def _select(self, node: Select) -> Step:
        name = qualified_name(node)
        if name in type_identifiers() or (name and name.split(".")[0] not in self._names):
            return _type_value(name or "")
        operand = self._operand(node.operand)
        return (steps.has if node.is_test else steps.select)(operand, node.field)

    def _list(self, node: ListLiteral) -> Step:
        parts = [(self.step(each), i in node.optional) for i, each in enumerate(node.elements)]
        if self._is_constant(node):
            return constant([fold(step) for step, _ in parts])
        return steps.create_list(parts)

    def _map(self, node: MapLiteral) -> Step:
        entries = [
            (self.step(each.key), self.step(each.value), each.is_optional) for each in node.entries
        ]
        if self._is_constant(node):
            pairs = [(fold(key), fold(value)) for key, value, _ in entries]
            if not any(type(key) is bytes for key, _ in pairs):
                return constant(Map(pairs))
        return steps.create_map(entries)

    def _binding(self, loop: Loop) -> Step:
        value = self.step(loop.init)
        return steps.bind(loop.accu, value, self._with(loop.accu).step(loop.result))

    def _loop(self, loop: Loop) -> Step:
        inner = self._with(loop.accu, loop.var, loop.var2)
        return steps.repeat(
            loop,
            LoopSteps(
                range=self.step(loop.range),
                init=self.step(loop.init),
                condition=inner.step(loop.condition),
                step=inner.step(loop.step),
                result=self._with(loop.accu).step(loop.result),
            ),
        )

    def _call(self, call: Call) -> Step:
        if call.function == "_+_" and _is_appending(call):
            return steps.append(*map(self.step, call.args))
        special = _SPECIAL.get(call.function)
        if special is not None:
            return special(self, call)
        nodes = [*([call.target] if call.target else []), *call.args]
        if call.function in _CONVERSIONS and len(nodes) == 1 and self._is_constant(nodes[0]):
            return self._folded(call, nodes[0])
        return self._function(call, nodes)

    def _is_constant(self, node: Node) -> bool:
        """True if cel-go evaluates a node when it creates the program."""
        match node:
            case Const():
                return True
            case Ident(name=name):
                return name.removeprefix(".") not in self._names
            case ListLiteral(elements=elements, optional=optional):
                return not optional and all(map(self._is_constant, elements))
            case MapLiteral(entries=entries):
                is_whole = not any(entry.is_optional for entry in entries)
                return is_whole and all(map(self._is_constant, node.children()))
            case Call(function=function, args=args, target=None):
                is_folded = function in _CONVERSIONS and len(args) == 1
                return is_folded and self._is_constant(args[0])
        return False

    def _folded(self, call: Call, node: Node) -> Step:
        """Evaluate a conversion of a constant. Return a step that gives the result. Raises
        PlanFault if the conversion fails."""
        try:
            return constant(fold(self._function(call, [node])))
        except CelError as error:
            raise PlanFault(str(error)) from None

    def _function(self, call: Call, nodes: list[Node]) -> Step:
        """Return the step of a call that evaluates all arguments."""
        args = [self.step(node) for node in nodes]
        overload = call.overloads[0].id if len(call.overloads) == 1 else ""
        run = implementation(call, self._dialect)
        cost = costs.cost_of(call.function, overload, self._dialect.is_1_37)
        if call.function in _WITH_PATTERN and len(nodes) > 1 and self._is_constant(nodes[1]):
            _check_pattern(fold(args[1]))
        return steps.call(args, overload, run, cost)

    def and_(self, call: Call) -> Step:
        return steps.logic(list(map(self.step, _flattened(call, "_&&_"))), decisive=False)

    def or_(self, call: Call) -> Step:
        return steps.logic(list(map(self.step, _flattened(call, "_||_"))), decisive=True)

    def conditional(self, call: Call) -> Step:
        condition, *branches = call.args
        return steps.conditional(self.step(condition), *map(self._attribute, branches))

    def not_strictly_false(self, call: Call) -> Step:
        return steps.not_strictly_false(self.step(call.args[0]))

    def index(self, call: Call) -> Step:
        operand, key = call.args
        return steps.index(self._operand(operand), self._key(key))

    def optional_index(self, call: Call) -> Step:
        operand, key = call.args
        return steps.optional_index(self._operand(operand), self._key(key))

    def _key(self, node: Node) -> Step:
        """Return the step of the key of an index. Raises PlanFault for an invalid constant."""
        step = self._attribute(node)
        if self._is_constant(node):
            try:
                checked_key(fold(step))
            except CelError as error:
                raise PlanFault(str(error)) from None
        return step

    def or_value(self, call: Call) -> Step:
        assert call.target is not None
        optional, other = self.step(call.target), self.step(call.args[0])
        return steps.or_value(optional, other, self._dialect.is_1_37)

    def or_optional(self, call: Call) -> Step:
        assert call.target is not None
        optional, other = self.step(call.target), self.step(call.args[0])
        return steps.or_optional(optional, other, self._dialect.is_1_37)

    def inside(self, call: Call) -> Step:
        value, collection = call.args
        is_list = [each.id for each in call.overloads] == ["in_list"]
        if not is_list or not self._is_constant(collection):
            return self._function(call, call.args)
        elements: list[Value] = fold(self.step(collection))
        if not elements:
            return constant(False)
        if not all(isinstance(each, bool | int | float | str) for each in elements):
            return self._function(call, call.args)
        return steps.in_constants(self.step(value), elements)


_SPECIAL: dict[str, Callable[[_Planner, Call], Step]] = {
    "_&&_": _Planner.and_,
    "_||_": _Planner.or_,
    "_?_:_": _Planner.conditional,
    "@not_strictly_false": _Planner.not_strictly_false,
    "_[_]": _Planner.index,
    "_[?_]": _Planner.optional_index,
    "_?._": _Planner.optional_index,
    "orValue": _Planner.or_value,
    "or": _Planner.or_optional,
    "@in": _Planner.inside,
}
"""Functions whose calls do not evaluate all arguments, or have their own rule for the cost."""
_CONVERSIONS = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
"""Functions whose calls with a constant argument are evaluated when the program is created."""
_WITH_PATTERN = frozenset({"matches", "find", "findAll"})
"""Functions whose second argument is a regular expression."""
_SELECTIONS = frozenset({"_[_]", "_?._", "_[?_]"})


def _is_chain(node: Node) -> bool:
    """True for a variable, and for a chain of fields and indices of a value."""
    if isinstance(node, Call):
        return node.function in _SELECTIONS
    return isinstance(node, Ident) or (isinstance(node, Select) and not node.is_test)


def _is_appending(call: Call) -> bool:
    accu, added = call.args
    is_accu = isinstance(accu, Ident) and accu.name in ACCUMULATORS
    return is_accu and isinstance(added, ListLiteral)


def _is_lazy(loop: Loop) -> bool:
    return isinstance(loop.range, ListLiteral) and not loop.range.elements and loop.is_binding


def _type_value(name: str) -> Step:
    if name not in type_identifiers():
        raise PlanFault(f"reference to undefined type: {name}")
    return constant(TypeName(name))


def _flattened(node: Node, function: str) -> list[Node]:
    """Return the terms of nested calls of ``&&`` or ``||``."""
    if not isinstance(node, Call) or node.function != function:
        return [node]
    return [term for each in node.args for term in _flattened(each, function)]


def _check_pattern(pattern: Value) -> None:
    """Raise PlanFault if a constant regular expression is invalid."""
    if isinstance(pattern, str):
        try:
            regex.compiled(pattern)
        except CelError as error:
            raise PlanFault(str(error)) from None
