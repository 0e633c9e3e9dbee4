"""Steps of a program: Python functions that evaluate one node each.

A step gets the ``Scope`` of the evaluation. It returns a value or raises CelError, and charges its
cost. The functions here build a step from the steps of the node's children, as
interpreter/interpretable.go of cel-go (v0.26) does. The docstring of such a function describes what
its step does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from devicemanager.claims.cel import costs
from devicemanager.claims.cel.elements import (
    GO_CLASSES,
    checked_key,
    is_present,
    pairs,
    present,
    select_from,
    select_optional,
)
from devicemanager.claims.cel.functions import Implementation, arithmetic
from devicemanager.claims.cel.limits import Meter, check_size
from devicemanager.claims.cel.operators import SIZED
from devicemanager.claims.cel.syntax import Loop
from devicemanager.claims.cel.values import (
    MISSING,
    NO_OVERLOAD,
    CelError,
    InternalError,
    Map,
    Optional,
    Value,
)


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
    """Return the value of a step; if it raises CelError, return the error."""
    try:
        return step(scope)
    except CelError as error:
        return error


def constant(value: Value) -> Step:
    """Return a step that returns ``value``, at no cost."""
    return lambda _: value


def fold(step: Step) -> Value:
    """Return the value of a step that reads no variables. Raises CelError if the step fails."""
    return step(Scope({}, Meter()))


def load(name: str) -> Step:
    """Read a variable."""

    def run(scope: Scope) -> Value:
        scope.meter.charge(1)
        value = scope.values[name]
        if type(value) is _Lazy:
            value = value.get()
        if isinstance(value, CelError):
            raise value
        return value

    return run


def charged(step: Step) -> Step:
    """Return a step that evaluates ``step`` and costs one unit more than ``step``."""

    def run(scope: Scope) -> Value:
        value = step(scope)
        scope.meter.charge(1)
        return value

    return run


def uncharged(step: Step) -> Step:
    """Return a step that evaluates ``step`` and costs one unit less than ``step``.

    In some places, cel-go does not charge the unit that reading a variable normally costs.
    """

    def run(scope: Scope) -> Value:
        scope.meter.cost -= 1
        return step(scope)

    return run


def select(operand: Step, field: str) -> Step:
    """Evaluate ``operand.field``."""

    def run(scope: Scope) -> Value:
        value = operand(scope)
        scope.meter.charge(1)
        return select_from(value, field)

    return run


def has(operand: Step, field: str) -> Step:
    """Evaluate ``has(operand.field)``."""
    return lambda scope: is_present(operand(scope), field)


def create_list(parts: Sequence[tuple[Step, bool]]) -> Step:
    """Evaluate a list literal.

    ``parts``: for each element, the step that evaluates it, and True if the element is optional.
    """

    def run(scope: Scope) -> Value:
        found = [(step(scope), is_optional) for step, is_optional in parts]
        scope.meter.charge(costs.LIST)
        return [value for value in map(present, found) if value is not MISSING]

    return run


def create_map(entries: Sequence[tuple[Step, Step, bool]]) -> Step:
    """Evaluate a map literal.

    ``entries``: for each entry, the steps of its key and value, and True if the entry is optional.
    """

    def run(scope: Scope) -> Value:
        found = [
            (key(scope), present((value(scope), is_optional)))
            for key, value, is_optional in entries
        ]
        scope.meter.charge(costs.MAP)
        return Map([pair for pair in found if pair[1] is not MISSING])

    return run


def create_message(name: str, values: Sequence[Step]) -> Step:
    """Evaluate a message literal. This always raises CelError: no message can be created."""

    def run(scope: Scope) -> Value:
        for value in values:
            value(scope)
        scope.meter.charge(costs.MESSAGE)
        raise CelError(f"unknown type '{name.removeprefix('.')}'")

    return run


def bind(name: str, value: Step, result: Step) -> Step:
    """Evaluate ``cel.bind(name, value, result)``. ``value`` is evaluated at its first use."""

    def run(scope: Scope) -> Value:
        values = {**scope.values, name: _Lazy(value, scope)}
        return result(Scope(values, scope.meter))

    return run


@attrs.frozen
class LoopSteps:
    """Steps of the parts of a loop."""

    range: Step
    init: Step
    condition: Step
    step: Step
    result: Step


def repeat(loop: Loop, steps: LoopSteps) -> Step:
    """Evaluate a loop."""
    accu, var, var2 = loop.accu, loop.var, loop.var2
    range_, init, condition, body = steps.range, steps.init, steps.condition, steps.step
    result = steps.result

    def run(scope: Scope) -> Value:
        iterations = pairs(range_(scope), bool(var2))
        start = init(scope)
        # All evaluations share the list of a literal, and ``append`` changes it.
        start = list(start) if type(start) is list else start
        inside = Scope({**scope.values, accu: start}, scope.meter)
        for first, second in iterations:
            inside.values[var] = first
            if var2:
                inside.values[var2] = second
            if condition(inside) is not True:
                break
            inside.values[accu] = _value_or_error(body, inside)
        return result(Scope({**scope.values, accu: inside.values[accu]}, scope.meter))

    return run


def append(accu: Step, added: Step) -> Step:
    """Evaluate ``accu + added``, where ``accu`` is the list that a loop has built so far. This list
    is changed in place.

    No expression can refer to the list before the loop ends. A copy in each iteration would take
    quadratic time.
    """

    def run(scope: Scope) -> Value:
        values = accu(scope)
        values += added(scope)
        check_size(len(values))
        scope.meter.charge(1)
        return values

    return run


def call(steps: Sequence[Step], overload: str, run: Implementation, cost: costs.Cost) -> Step:
    """Evaluate a call: first all arguments, then the function ``run``.

    ``overload``: ID of the overload; "" if the checker found several.
    """
    panics_at = _panicking_argument(overload)

    def evaluate(scope: Scope) -> Value:
        args = _arguments(steps, scope, panics_at)
        meter = scope.meter
        for value in args:
            if type(value) in SIZED:
                meter.read(value)
        try:
            result = run(*args)
        except CelError:
            meter.charge(cost(args, None))
            raise
        meter.charge(cost(args, result))
        return result

    return evaluate


def _panicking_argument(overload: str) -> int | None:
    """Return the index of the argument whose error makes cel-go panic when it counts the cost.

    Return None if there is no such argument.
    """
    if overload.endswith("_sortByAssociatedKeys"):
        return 1
    return 0 if overload.endswith("_sort") or overload == "list_distinct" else None


def _arguments(steps: Sequence[Step], scope: Scope, panics_at: int | None) -> list[Value]:
    """Return the values of the arguments of a call. Raises the first error."""
    if len(steps) > 2:
        return [step(scope) for step in steps]
    # cel-go evaluates one or two arguments even if the first fails, and charges the call.
    values = [_value_or_error(step, scope) for step in steps]
    if panics_at is not None and type(values[panics_at]) is not list:
        raise _not_a_list(values[panics_at])
    for value in values:
        if isinstance(value, CelError):
            scope.meter.charge(1)
            raise value
    return values


def _not_a_list(value: Value) -> InternalError:
    """Return Go's error for a value that cel-go uses as a list without a check."""
    missing = "Contains" if type(value) in arithmetic.BINARY["_+_"][1] else "Add"
    name = GO_CLASSES[type(value)]
    return InternalError(
        f"interface conversion: {name} is not traits.Lister: missing method {missing}"
    )


def logic(terms: Sequence[Step], decisive: bool) -> Step:
    """Evaluate ``&&`` or ``||`` with any number of operands.

    ``decisive``: the value that decides the result: False for ``&&``, True for ``||``. If an
    operand has this value, the result is this value, and errors of other operands are ignored.
    """

    def run(scope: Scope) -> Value:
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

    return run


def conditional(condition: Step, one: Step, other: Step) -> Step:
    """Evaluate ``condition ? one : other``."""

    def run(scope: Scope) -> Value:
        value = condition(scope)
        if type(value) is not bool:
            raise CelError(NO_OVERLOAD)
        return one(scope) if value else other(scope)

    return run


def not_strictly_false(term: Step) -> Step:
    """Evaluate the loop condition of ``all`` or ``exists``. Only false gives False; an error gives
    True."""

    def run(scope: Scope) -> Value:
        value = _value_or_error(term, scope)
        scope.meter.charge(1)
        return value is not False

    return run


def index(operand: Step, key: Step) -> Step:
    """Evaluate ``operand[key]``."""

    def run(scope: Scope) -> Value:
        value, found = operand(scope), key(scope)
        if type(value) is not Optional:
            scope.meter.charge(1)
            return select_from(value, checked_key(found))
        return _charge_present(select_optional(value, found), scope)

    return run


def optional_index(operand: Step, key: Step) -> Step:
    """Evaluate ``operand[?key]`` or ``operand.?key``."""

    def run(scope: Scope) -> Value:
        found = select_optional(operand(scope), key(scope))
        return _charge_present(found, scope)

    return run


def _charge_present(found: Optional, scope: Scope) -> Optional:
    """Charge an optional selection. Only a present value has a cost."""
    if found.has_value:
        scope.meter.charge(1)
    return found


def or_value(optional: Step, other: Step, is_1_37: bool) -> Step:
    """Evaluate ``optional.orValue(other)``; evaluate ``other`` only if ``optional`` has no value.

    If the value of ``optional`` is not an optional value, ``is_1_37`` decides: if it is True, raise
    CelError, as Kubernetes 1.37 does. If it is False, return the value, as Kubernetes 1.36 does.
    """

    def run(scope: Scope) -> Value:
        value = _optional(optional(scope), is_1_37)
        if type(value) is not Optional:
            return value
        return value.value if value.has_value else other(scope)

    return run


def or_optional(optional: Step, other: Step, is_1_37: bool) -> Step:
    """Evaluate ``optional.or(other)``; evaluate ``other`` only if ``optional`` has no value.

    If the value of ``optional`` is not an optional value, ``is_1_37`` decides: if it is True, raise
    CelError, as Kubernetes 1.37 does. If it is False, return the value, as Kubernetes 1.36 does.
    """

    def run(scope: Scope) -> Value:
        value = _optional(optional(scope), is_1_37)
        if type(value) is not Optional or value.has_value:
            return value
        return other(scope)

    return run


def _optional(value: Value, is_1_37: bool) -> Value:
    """Return the value. Raises CelError if it is not optional; Kubernetes 1.36 accepts any
    value."""
    if type(value) is not Optional and is_1_37:
        raise CelError(NO_OVERLOAD)
    return value


def in_constants(wanted: Step, elements: Sequence[Value]) -> Step:
    """Evaluate ``wanted in elements``, where ``elements`` are constants. As in cel-go, the lookup
    costs nothing."""
    found = Map([(each, True) for each in elements])

    def run(scope: Scope) -> Value:
        return wanted(scope) in found

    return run
