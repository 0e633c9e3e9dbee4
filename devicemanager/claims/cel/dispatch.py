"""Choose the function that implements a call.

The checker finds overloads by types. If it finds several, the types of the arguments at run time
decide (interpreter/interpretable.go of cel-go, v0.26).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from devicemanager.claims.cel.declarations import Library
from devicemanager.claims.cel.functions import IMPLEMENTATIONS, Implementation
from devicemanager.claims.cel.operators import operator
from devicemanager.claims.cel.syntax import Call
from devicemanager.claims.cel.types import Type
from devicemanager.claims.cel.values import (
    COMPARABLE,
    NO_OVERLOAD,
    CelError,
    Value,
    compare,
    equality,
    type_name,
)


@attrs.frozen(eq=False)
class Dialect:
    """Functions, costs and comparison rules for the expressions of one API in one Kubernetes
    release."""

    library: Library
    implementations: Mapping[str, Implementation] = IMPLEMENTATIONS
    """Python functions that implement the overloads, by overload ID."""
    is_1_37: bool = True
    """True for the costs and ``orValue`` errors of Kubernetes 1.37, False for those of 1.36."""
    equal: Callable[[Value, Value], bool | None] = equality
    order: Callable[[Value, Value], int] = compare
    ordered: tuple[type, ...] = COMPARABLE
    """Python classes of values that ``<`` accepts on its left side."""


_PLAIN_ERRORS = frozenset({"contains", "startsWith", "endsWith"})
"""Functions whose type errors do not name the types of the arguments."""
_LENIENT = frozenset({"flatten"})
"""Functions that check only that their first argument is a list, not its elements."""


def implementation(call: Call, dialect: Dialect) -> Implementation:
    """Return the function that implements a call.

    The function raises CelError if no overload accepts its arguments.
    """
    name = call.function.removeprefix(".")
    found = operator(name, dialect.equal, dialect.order, dialect.ordered)
    if found is not None:
        return found
    # If the checker did not find exactly one overload, any overload of the function can apply.
    overloads = call.overloads
    if len(overloads) != 1:
        overloads = dialect.library[name]
    candidates = [(each.params, dialect.implementations.get(each.id)) for each in overloads]
    accepts = _accepts_class if name in _LENIENT else _accepts

    def run(*args: Value) -> Value:
        for params, candidate in candidates:
            fits = len(params) == len(args) and all(map(accepts, params, args))
            if candidate and fits:
                return candidate(*args)
        raise _no_overload(name, args)

    return run


def _no_overload(name: str, args: tuple[Value, ...]) -> CelError:
    if name in _PLAIN_ERRORS:
        return CelError(NO_OVERLOAD)
    names = list(map(type_name, args))
    receiver = f"{names.pop(0)}." if name in _LENIENT else ""
    return CelError(f"{NO_OVERLOAD}: {receiver}{name}({', '.join(names)})")


def _accepts_class(param: Type, value: Value) -> bool:
    return param.name != "list" or type(value) is list


def _accepts(param: Type, value: Value) -> bool:
    """True if a value has the type of a parameter. Of a list or map, check only the first entry."""
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
