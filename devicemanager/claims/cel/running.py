"""Turn a checked syntax tree into a program, and run it.

In:  a tree with types and overloads (``checker``), and the values of the variables.
Out: the value of the expression, and its cost in Kubernetes' units; or CelError.

Each node becomes a Python function of the scope. Calls of ``&&`` and ``||`` absorb errors, and
``cel.bind`` evaluates its value when it is used, as in cel-go (interpreter, v0.26).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from devicemanager.claims.cel import costs
from devicemanager.claims.cel.declarations import Library, type_identifiers
from devicemanager.claims.cel.functions import (
    addresses,
    amounts,
    arithmetic,
    conversions,
    formats,
    formatting,
    lists,
    regex,
    texts,
    urls,
)
from devicemanager.claims.cel.limits import MAX_COST, Meter, NoAnswer, Spend, check_size
from devicemanager.claims.cel.semver import Version
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
from devicemanager.claims.cel.types import Type
from devicemanager.claims.cel.values import (
    COMPARABLE,
    MISSING,
    NO_OVERLOAD,
    NONE,
    CelError,
    Duration,
    Format,
    InternalError,
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
    compare,
    equality,
    size_of,
    text_of,
    type_name,
)

Implementation = Callable[..., Value]

IMPLEMENTATIONS: dict[str, Implementation] = {
    **addresses.IMPLEMENTATIONS,
    **amounts.IMPLEMENTATIONS,
    **conversions.IMPLEMENTATIONS,
    **formats.IMPLEMENTATIONS,
    **formatting.IMPLEMENTATIONS,
    **lists.IMPLEMENTATIONS,
    **regex.IMPLEMENTATIONS,
    **texts.IMPLEMENTATIONS,
    **urls.IMPLEMENTATIONS,
}


class PlanFault(Exception):
    """Error for an expression that fails for all devices, such as ``int('x')``."""


@attrs.define
class Scope:
    """Values of the variables, and the meter of the evaluation."""

    values: dict[str, Value]
    meter: Meter


Step = Callable[[Scope], Value]


class _Lazy:
    """Value of a variable that is computed at its first use."""

    __slots__ = ("_scope", "_step", "_value")

    def __init__(self, step: Step, scope: Scope) -> None:
        self._step = step
        self._scope = scope
        self._value: Value = MISSING

    def get(self) -> Value:
        if self._value is MISSING:
            self._value = _value_or_error(self._step, self._scope)
        return self._value


def _value_or_error(step: Step, scope: Scope) -> Value:
    """Return the value of a step, or its error as a value."""
    try:
        return step(scope)
    except CelError as error:
        return error


_BUGS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


@attrs.frozen(eq=False)
class Program:
    """Expression that can be evaluated. It has no state, so threads can share it."""

    _step: Step

    def run(
        self,
        variables: Mapping[str, Value],
        limit: int = MAX_COST,
        spend: Spend | None = None,
    ) -> tuple[Value, int]:
        """Return the value of the expression, and its cost.

        ``spend`` gets the cost while the expression is evaluated. Raises CelError,
        EvaluationStopped, such as CostExceeded, and what ``spend`` raises.
        """
        meter = Meter(limit, spend)
        try:
            value = self._step(Scope(dict(variables), meter))
        except CelError:
            meter.report()
            raise
        except _BUGS as error:
            # A bug of this package must not stop the kubelet.
            raise NoAnswer(f"not supported: {error!r}") from error
        meter.report()
        return value, meter.cost


@attrs.frozen(eq=False)
class Dialect:
    """What differs between the environments that this module serves."""

    library: Library
    implementations: Mapping[str, Implementation] = IMPLEMENTATIONS
    is_1_37: bool = True
    """True for the cost of Kubernetes 1.37, False for that of 1.36."""
    equal: Callable[[Value, Value], bool | None] = equality
    order: Callable[[Value, Value], int] = compare
    ordered: tuple[type, ...] = COMPARABLE
    """Classes that the left side of ``<`` can have."""


def plan(root: Node, variables: Iterable[str], dialect: Dialect) -> Program:
    """Return the program of a checked tree. Raises PlanFault."""
    return Program(_Planner(dialect, frozenset(variables)).step(root))


class _Planner:
    def __init__(self, dialect: Dialect, names: frozenset[str]) -> None:
        self._dialect = dialect
        self._names = names
        """Names of variables; any other name is a type."""

    def step(self, node: Node) -> Step:
        """Return the function that evaluates a node."""
        match node:
            case Const(value=value):
                return _constant(value)
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
                return self._message(node)
            case Loop():
                return self._binding(node) if _is_lazy(node) else self._loop(node)
        raise AssertionError(node)

    def _with(self, *names: str) -> _Planner:
        return _Planner(self._dialect, self._names | set(filter(None, names)))

    def _ident(self, node: Ident) -> Step:
        name = node.name.removeprefix(".")
        # cel-go takes a variable whose value is a type for the name of a type.
        if name not in self._names or node.type.name == "type":
            return _type_value(name)

        def load(scope: Scope) -> Value:
            scope.meter.charge(1)
            value = scope.values[name]
            if type(value) is _Lazy:
                value = value.get()
            if isinstance(value, CelError):
                raise value
            return value

        return load

    def _operand(self, node: Node) -> Step:
        """Return the step of the operand of a field selection or an index."""
        step = self.step(node)
        if _is_chain(node):
            return step

        def charged(scope: Scope) -> Value:
            value = step(scope)
            scope.meter.charge(1)
            return value

        return charged

    def _attribute(self, node: Node) -> Step:
        """Return the step of a branch of a conditional, or of an index.

        cel-go does not count reading the variable there.
        """
        step = self.step(node)
        if not _is_chain(node) or not isinstance(node, Ident | Select | Call):
            return step
        if isinstance(node, Ident) and node.name not in self._names:
            return step

        def uncharged(scope: Scope) -> Value:
            scope.meter.cost -= 1
            return step(scope)

        return uncharged

    def _select(self, node: Select) -> Step:
        name = qualified_name(node)
        if name in type_identifiers() or (name and name.split(".")[0] not in self._names):
            return _type_value(name or "")
        operand, field = self._operand(node.operand), node.field
        if node.is_test:
            return lambda scope: _is_present(operand(scope), field)

        def select(scope: Scope) -> Value:
            value = operand(scope)
            scope.meter.charge(1)
            return select_from(value, field)

        return select

    def _list(self, node: ListLiteral) -> Step:
        parts = [(self.step(each), i in node.optional) for i, each in enumerate(node.elements)]
        if self._is_constant(node):
            return _constant([_fold(step) for step, _ in parts])

        def create(scope: Scope) -> Value:
            found = [(step(scope), is_optional) for step, is_optional in parts]
            scope.meter.charge(costs.LIST)
            return [value for value in map(_present, found) if value is not MISSING]

        return create

    def _map(self, node: MapLiteral) -> Step:
        entries = [
            (self.step(each.key), self.step(each.value), each.is_optional) for each in node.entries
        ]
        if self._is_constant(node):
            pairs = [(_fold(key), _fold(value)) for key, value, _ in entries]
            if not any(type(key) is bytes for key, _ in pairs):
                return _constant(Map(pairs))

        def create(scope: Scope) -> Value:
            found = [
                (key(scope), _present((value(scope), is_optional)))
                for key, value, is_optional in entries
            ]
            scope.meter.charge(costs.MAP)
            return Map([pair for pair in found if pair[1] is not MISSING])

        return create

    def _message(self, node: Message) -> Step:
        steps = [self.step(value) for _, _, value in node.fields]

        def create(scope: Scope) -> Value:
            for step in steps:
                step(scope)
            scope.meter.charge(costs.MESSAGE)
            raise CelError(f"unknown type '{node.name.removeprefix('.')}'")

        return create

    def _binding(self, loop: Loop) -> Step:
        init = self.step(loop.init)
        result = self._with(loop.accu).step(loop.result)

        def bind(scope: Scope) -> Value:
            values = {**scope.values, loop.accu: _Lazy(init, scope)}
            return result(Scope(values, scope.meter))

        return bind

    def _loop(self, loop: Loop) -> Step:
        range_, init = self.step(loop.range), self.step(loop.init)
        inner = self._with(loop.accu, loop.var, loop.var2)
        condition, body = inner.step(loop.condition), inner.step(loop.step)
        result = self._with(loop.accu).step(loop.result)
        accu, var, var2 = loop.accu, loop.var, loop.var2

        def run(scope: Scope) -> Value:
            pairs = _pairs(range_(scope), bool(var2))
            start = init(scope)
            # The list of a literal is shared by all evaluations.
            start = list(start) if type(start) is list else start
            inside = Scope({**scope.values, accu: start}, scope.meter)
            for first, second in pairs:
                inside.values[var] = first
                if var2:
                    inside.values[var2] = second
                if condition(inside) is not True:
                    break
                inside.values[accu] = _value_or_error(body, inside)
            return result(Scope({**scope.values, accu: inside.values[accu]}, scope.meter))

        return run

    def _call(self, call: Call) -> Step:
        if call.function == "_+_" and _is_appending(call):
            return self._append(call)
        special = _SPECIAL.get(call.function)
        if special is not None:
            return special(self, call)
        nodes = [*([call.target] if call.target else []), *call.args]
        if call.function in _CONVERSIONS and len(nodes) == 1 and self._is_constant(nodes[0]):
            return self._folded(call, nodes[0])
        return self._function(call, nodes)

    def _append(self, call: Call) -> Step:
        """Return the step of ``result + [element]`` in a loop, which changes the list in place.

        No expression can refer to the list before the loop ends. A copy in each step would take
        quadratic time.
        """
        accu, added = (self.step(each) for each in call.args)

        def append(scope: Scope) -> Value:
            values = accu(scope)
            values += added(scope)
            check_size(len(values))
            scope.meter.charge(1)
            return values

        return append

    def _is_constant(self, node: Node) -> bool:
        """True if Go evaluates a node when it creates the program."""
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
        """Return the step of a conversion of a constant, which is evaluated now."""
        try:
            return _constant(_fold(self._function(call, [node])))
        except CelError as error:
            raise PlanFault(str(error)) from None

    def _function(self, call: Call, nodes: list[Node]) -> Step:
        """Return the step of an ordinary call, which evaluates all arguments."""
        steps = [self.step(node) for node in nodes]
        overload = call.overloads[0].id if len(call.overloads) == 1 else ""
        run = self._implementation(call)
        cost = costs.cost_of(call.function, overload, self._dialect.is_1_37)
        if call.function in _WITH_PATTERN and len(nodes) > 1 and self._is_constant(nodes[1]):
            _check_pattern(_fold(steps[1]))

        panics_at = _panicking_argument(overload)

        def evaluate(scope: Scope) -> Value:
            args = _evaluated(steps, scope, panics_at)
            meter = scope.meter
            for value in args:
                if type(value) in _SIZED:
                    meter.read(value)
            try:
                result = run(*args)
            except CelError:
                meter.charge(cost(args, None))
                raise
            meter.charge(cost(args, result))
            return result

        return evaluate

    def _implementation(self, call: Call) -> Implementation:
        """Return the function that runs a call with any arguments."""
        name = call.function.removeprefix(".")
        operator = self._operator(name)
        if operator is not None:
            return operator
        # Only if the checker found several overloads, the call can run any of the function's.
        overloads = call.overloads
        if len(overloads) != 1:
            overloads = self._dialect.library[name]
        candidates = [
            (each.params, self._dialect.implementations.get(each.id)) for each in overloads
        ]
        plain = name in _PLAIN_ERRORS
        accepts = _accepts_class if name in _LENIENT else _accepts

        def run(*args: Value) -> Value:
            for params, implementation in candidates:
                fits = len(params) == len(args) and all(map(accepts, params, args))
                if implementation and fits:
                    return implementation(*args)
            if plain:
                raise CelError(NO_OVERLOAD)
            names = list(map(type_name, args))
            receiver = f"{names.pop(0)}." if name in _LENIENT else ""
            raise CelError(f"{NO_OVERLOAD}: {receiver}{name}({', '.join(names)})")

        return run

    def _operator(self, name: str) -> Implementation | None:
        """Return the function of an operator, which accepts all values; None for others."""
        dialect = self._dialect
        if name == "_==_":
            return lambda one, other: _checked(dialect.equal(one, other))
        if name == "_!=_":
            # A comparison that is an error counts as unequal.
            return lambda one, other: dialect.equal(one, other) is not True
        if name in arithmetic.BINARY:
            return _with_classes(name, *arithmetic.BINARY[name])
        if name in _ORDERS:
            return _with_classes(name, _ordering(dialect.order, _ORDERS[name]), dialect.ordered)
        return _OPERATORS.get(name)

    def _logic(self, call: Call, decisive: bool) -> Step:
        terms = [self.step(each) for each in _flattened(call, call.function)]

        def evaluate(scope: Scope) -> Value:
            fault: CelError | None = None
            for term in terms:
                value = _value_or_error(term, scope)
                if value is decisive:
                    return decisive
                if type(value) is not bool:
                    is_error = isinstance(value, CelError)
                    fault = fault or (value if is_error else CelError(NO_OVERLOAD))
            if fault is not None:
                raise fault
            return not decisive

        return evaluate

    def and_(self, call: Call) -> Step:
        """Return the step of ``&&``, whose terms can be errors."""
        return self._logic(call, decisive=False)

    def or_(self, call: Call) -> Step:
        """Return the step of ``||``, whose terms can be errors."""
        return self._logic(call, decisive=True)

    def conditional(self, call: Call) -> Step:
        """Return the step of ``condition ? one : other``."""
        condition = self.step(call.args[0])
        one, other = (self._attribute(each) for each in call.args[1:])

        def evaluate(scope: Scope) -> Value:
            value = condition(scope)
            if type(value) is not bool:
                raise CelError(NO_OVERLOAD)
            return one(scope) if value else other(scope)

        return evaluate

    def not_strictly_false(self, call: Call) -> Step:
        """Return the step of the condition of ``all`` and ``exists``: an error is not false."""
        term = self.step(call.args[0])

        def evaluate(scope: Scope) -> Value:
            value = _value_or_error(term, scope)
            scope.meter.charge(1)
            return value is not False

        return evaluate

    def _key(self, node: Node) -> Step:
        """Return the step of the key of an index. Raises PlanFault for an invalid constant."""
        step = self._attribute(node)
        if self._is_constant(node):
            try:
                _checked_key(_fold(step))
            except CelError as error:
                raise PlanFault(str(error)) from None
        return step

    def index(self, call: Call) -> Step:
        """Return the step of ``operand[key]``."""
        operand, key = self._operand(call.args[0]), self._key(call.args[1])

        def evaluate(scope: Scope) -> Value:
            value, index = operand(scope), key(scope)
            if type(value) is not Optional:
                scope.meter.charge(1)
                return select_from(value, _checked_key(index))
            return _charged(_select_optional(value, index), scope)

        return evaluate

    def optional_index(self, call: Call) -> Step:
        """Return the step of ``operand[?key]`` and ``operand.?key``."""
        operand, key = self._operand(call.args[0]), self._key(call.args[1])

        def evaluate(scope: Scope) -> Value:
            found = _select_optional(operand(scope), key(scope))
            return _charged(found, scope)

        return evaluate

    def _optional(self, value: Value) -> Value:
        """Check that a value is optional, and return it. Kubernetes 1.36 accepts any value."""
        if type(value) is not Optional and self._dialect.is_1_37:
            raise CelError(NO_OVERLOAD)
        return value

    def or_value(self, call: Call) -> Step:
        """Return the step of ``optional.orValue(other)``, which evaluates ``other`` if needed."""
        assert call.target is not None
        optional, other = self.step(call.target), self.step(call.args[0])

        def evaluate(scope: Scope) -> Value:
            value = self._optional(optional(scope))
            if type(value) is not Optional:
                return value
            return value.value if value.has_value else other(scope)

        return evaluate

    def or_optional(self, call: Call) -> Step:
        """Return the step of ``optional.or(other)``."""
        assert call.target is not None
        optional, other = self.step(call.target), self.step(call.args[0])

        def evaluate(scope: Scope) -> Value:
            value = self._optional(optional(scope))
            if type(value) is not Optional or value.has_value:
                return value
            return other(scope)

        return evaluate

    def inside(self, call: Call) -> Step:
        """Return the step of ``value in collection``."""
        value, collection = call.args
        is_list = [each.id for each in call.overloads] == ["in_list"]
        if not is_list or not self._is_constant(collection):
            return self._function(call, call.args)
        elements: list[Value] = _fold(self.step(collection))
        if not elements:
            return _constant(False)
        if not all(isinstance(each, bool | int | float | str) for each in elements):
            return self._function(call, call.args)
        # Go looks up constants in a hash table, at no cost.
        found, wanted = Map([(each, True) for each in elements]), self.step(value)

        def evaluate(scope: Scope) -> Value:
            return wanted(scope) in found

        return evaluate


def _panicking_argument(overload: str) -> int | None:
    """Return the argument whose error makes cel-go panic while it counts the cost."""
    if overload.endswith("_sortByAssociatedKeys"):
        return 1
    return 0 if overload.endswith("_sort") or overload == "list_distinct" else None


def _no_list(value: Value) -> InternalError:
    """Return the error for a value that cel-go takes for a list."""
    missing = "Contains" if type(value) in arithmetic.BINARY["_+_"][1] else "Add"
    name = _GO_CLASSES[type(value)]
    return InternalError(
        f"interface conversion: {name} is not traits.Lister: missing method {missing}"
    )


def _evaluated(steps: list[Step], scope: Scope, panics_at: int | None = None) -> list[Value]:
    """Return the values of the arguments of a call. Raises the first error."""
    if len(steps) > 2:
        return [step(scope) for step in steps]
    # With one or two arguments, Go evaluates both, and the call has its cost despite an error.
    values = [_value_or_error(step, scope) for step in steps]
    if panics_at is not None and type(values[panics_at]) is not list:
        raise _no_list(values[panics_at])
    for value in values:
        if isinstance(value, CelError):
            scope.meter.charge(1)
            raise value
    return values


_SELECTIONS = frozenset({"_[_]", "_?._", "_[?_]"})
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
"""Calls that do not evaluate all of their arguments, or at another cost."""
_CONVERSIONS = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
"""Functions that are evaluated at compile time if their argument is a constant."""
_PLAIN_ERRORS = frozenset({"contains", "startsWith", "endsWith"})
"""Functions whose errors of types do not name the types."""
_WITH_PATTERN = frozenset({"matches", "find", "findAll"})
"""Functions whose second argument is a regular expression."""
_LENIENT = frozenset({"flatten"})
"""Functions that only check the class of their first argument."""
_SIZED = frozenset({str, bytes, list, Map})
_ORDERS: dict[str, Callable[[int], bool]] = {
    "_<_": lambda order: order < 0,
    "_<=_": lambda order: order <= 0,
    "_>_": lambda order: order > 0,
    "_>=_": lambda order: order >= 0,
}


def _constant(value: Value) -> Step:
    return lambda _: value


def _fold(step: Step) -> Value:
    return step(Scope({}, Meter()))


def _is_chain(node: Node) -> bool:
    """True for variables, and for fields and elements of a value."""
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
    return _constant(TypeName(name))


def _present(found: tuple[Value, bool]) -> Value:
    """Return the value of an element of a literal; MISSING if it is left out."""
    value, is_optional = found
    if not is_optional:
        return value
    if type(value) is not Optional:
        raise CelError(f"cannot initialize optional list element from non-optional value {value}")
    return value.value if value.has_value else MISSING


def _pairs(values: Value, with_keys: bool) -> Iterable[tuple[Value, Value]]:
    """Return what a loop iterates over; the second of a pair is for macros with two variables."""
    if type(values) is list:
        return enumerate(values) if with_keys else ((each, None) for each in list(values))
    if type(values) is Map:
        return list(values.items())
    name = _GO_CLASSES[type(values)]
    if with_keys:
        raise CelError(f"unsupported comprehension range type: {name}")
    raise CelError(f"got '{name}', expected iterable type")


_GO_CLASSES: dict[type, str] = {
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
"""Classes of values in Go, which some error texts name."""


def _checked_key(key: Value) -> Value:
    if type(key) not in (bool, int, UInt, float, str):
        raise CelError(f"invalid qualifier type: {_GO_CLASSES[type(key)]}")
    return key


def select_from(value: Value, key: Value) -> Value:
    """Evaluate ``value[key]`` and ``value.key``."""
    if type(value) is Optional:
        return _select_optional(value, key)
    found = _look_up(value, key)
    if found is MISSING:
        what = "index out of bounds" if type(value) is list else "no such key"
        raise CelError(f"{what}: {text_of(key)}")
    return found


def _look_up(value: Value, key: Value) -> Value:
    """Return the element of a list or map; MISSING if there is none."""
    if type(value) is Map:
        return value.find(key)
    if type(value) is not list:
        return MISSING
    if type(key) not in arithmetic.NUMBERS:
        raise CelError(f"unsupported index type '{type_name(key)}' in list")
    if key != int(key):
        raise CelError(f"unsupported index value {text_of(key)} in list")
    return value[int(key)] if 0 <= key < len(value) else MISSING


def _charged(found: Optional, scope: Scope) -> Optional:
    """Count the cost of an optional selection, which only a present value has."""
    if found.has_value:
        scope.meter.charge(1)
    return found


def _select_optional(value: Value, key: Value) -> Value:
    if type(value) is Optional:
        if not value.has_value:
            return NONE
        value = value.value
    found = _look_up(value, _checked_key(key))
    return NONE if found is MISSING else Optional(found)


def _is_present(value: Value, field: str) -> bool:
    """Evaluate ``has(value.field)``."""
    if type(value) is Optional:
        return value.has_value and _is_present(value.value, field)
    return _look_up(value, field) is not MISSING


def _flattened(node: Node, function: str) -> list[Node]:
    """Return the terms of nested calls of ``&&`` or ``||``."""
    if not isinstance(node, Call) or node.function != function:
        return [node]
    return [term for each in node.args for term in _flattened(each, function)]


def _checked(answer: bool | None) -> bool:
    if answer is None:
        raise CelError(NO_OVERLOAD)
    return answer


def _with_classes(
    name: str, run: Callable[[Value, Value], Value], classes: tuple[type, ...]
) -> Implementation:
    def checked(one: Value, other: Value) -> Value:
        if type(one) not in classes:
            raise _without(name, one)
        return run(one, other)

    return checked


def _without(name: str, value: Value) -> CelError:
    """Return the error for a value whose class has no operator ``name``."""
    return CelError(NO_OVERLOAD if type(value) in _RECEIVERS else f"{NO_OVERLOAD}: {name}")


_RECEIVERS = (str, Duration, Timestamp)
"""Classes that can have methods in Go, so that their errors do not name the function."""


def _ordering(
    order: Callable[[Value, Value], int], is_wanted: Callable[[int], bool]
) -> Callable[[Value, Value], bool]:
    return lambda one, other: is_wanted(order(one, other))


def _not(value: Value) -> bool:
    if type(value) is not bool:
        raise CelError(NO_OVERLOAD)
    return not value


def _negate(value: Value) -> Value:
    if type(value) not in arithmetic.NEGATABLE:
        raise _without("-_", value)
    return arithmetic.negate(value)


def _size(value: Value) -> int:
    if type(value) not in _SIZED:
        raise _without("size", value)
    return size_of(value)


def _matches(text: Value, pattern: Value) -> bool:
    if type(text) is not str:
        raise _without("matches", text)
    if type(pattern) is not str:
        raise CelError(NO_OVERLOAD)
    return regex.matches(text, pattern)


def _of_non_zero(value: Value) -> Optional:
    is_zero = not value if type(value) in (bool, int, str, bytes, float, list, Map) else False
    return NONE if is_zero or value is None or value == 0 else Optional(value)


def _value(optional: Optional) -> Value:
    if not optional.has_value:
        raise CelError("optional.none() dereference")
    return optional.value


def _unwrap(values: list[Value]) -> list[Value]:
    for value in values:
        if type(value) is not Optional:
            raise CelError(f"value {text_of(value)} is not optional")
    return [value.value for value in values if value.has_value]


_OPERATORS: dict[str, Implementation] = {
    "!_": _not,
    "-_": _negate,
    "size": _size,
    "matches": _matches,
    "@in": lists.inside,
    "type": lambda value: TypeName(type_name(value)),
}
IMPLEMENTATIONS |= {
    "optional_of": Optional,
    "optional_ofNonZeroValue": _of_non_zero,
    "optional_none": lambda: NONE,
    "optional_value": _value,
    "optional_hasValue": lambda optional: optional.has_value,
    "list_last": lambda values: Optional(values[-1]) if values else NONE,
    "list_first": lambda values: Optional(values[0]) if values else NONE,
    "optional_unwrap": _unwrap,
    "optional_unwrapOpt": _unwrap,
}


def _accepts_class(param: Type, value: Value) -> bool:
    return param.name != "list" or type(value) is list


def _accepts(param: Type, value: Value) -> bool:
    """True if a value has the type of a parameter; of a list, the first element decides."""
    if param.is_dyn or param.is_variable:
        return True
    if param.name != type_name(value):
        return False
    if not param.params or param.name == "optional_type" or not len(value):
        return True
    if param.name == "list":
        return _accepts(param.params[0], value[0])
    key, first = next(iter(value.items()))
    return _accepts(param.params[0], key) and _accepts(param.params[1], first)


def _check_pattern(pattern: Value) -> None:
    """Raise PlanFault if a constant regular expression is invalid."""
    if isinstance(pattern, str):
        try:
            regex.compiled(pattern)
        except CelError as error:
            raise PlanFault(str(error)) from None
