"""Types of CEL expressions, and the rules by which one type is assignable to another.

The rules and the text forms are those of cel-go (checker/types.go and format.go, v0.26).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple


class Type(NamedTuple):
    """A type with its name and parameters.

    Type variables have names such as ``A`` in a declaration, and ``_var0`` in an expression.
    """

    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        """Return the type as error messages show it, such as ``map(string, dyn)``."""
        name = _SHORT.get(self.name, self.name)
        return f"{name}({', '.join(map(str, self.params))})" if self.params else name

    @property
    def full_name(self) -> str:
        """The type as Go's ``cel.Type.String`` shows it, such as ``google.protobuf.Duration``."""
        if not self.params:
            return "null" if self == NULL else self.name
        return f"{self.name}({', '.join(each.full_name for each in self.params)})"

    @property
    def is_variable(self) -> bool:
        """True for a type variable."""
        return len(self.name) == 1 or self.name.startswith("_var")

    @property
    def is_dyn(self) -> bool:
        """True for dyn and Any: the types of their values are known only at run time."""
        return self.name in ("dyn", ANY.name)


_SHORT = {
    "google.protobuf.Any": "any",
    "google.protobuf.Duration": "duration",
    "google.protobuf.Timestamp": "timestamp",
    "null_type": "null",
}
"""Types that error messages name differently."""

DYN, ERROR = Type("dyn"), Type("!error!")
ANY = Type("google.protobuf.Any")
BOOL, BYTES, DOUBLE, INT = Type("bool"), Type("bytes"), Type("double"), Type("int")
NULL, STRING, UINT = Type("null_type"), Type("string"), Type("uint")
DURATION, TIMESTAMP = Type("google.protobuf.Duration"), Type("google.protobuf.Timestamp")
QUANTITY, SEMVER = Type("kubernetes.Quantity"), Type("kubernetes.Semver")
URL, FORMAT = Type("kubernetes.URL"), Type("kubernetes.NamedFormat")
IP, CIDR = Type("net.IP"), Type("net.CIDR")

SCALARS = frozenset({BOOL, DOUBLE, DURATION, INT, TIMESTAMP, UINT})
"""Types whose values have a fixed size in the cost estimate."""
MESSAGES = frozenset({QUANTITY, SEMVER, URL, FORMAT})
"""Types that the type checker treats as messages without fields."""
_NULLABLE = MESSAGES | {ANY, DURATION, TIMESTAMP, IP, CIDR}


def list_of(element: Type) -> Type:
    """Return the type ``list(element)``."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type ``map(key, value)``."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """Return the type ``optional_type(value)``."""
    return Type("optional_type", (value,))


def type_of(value: Type) -> Type:
    """Return the type of the expression ``type(x)``. ``value``: the type of ``x``."""
    return Type("type", (value,))


_TOKEN = re.compile(r"[\w.]+|[(),]")
_ALIASES = {
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "null": NULL,
    "optional": Type("optional_type"),
    "Quantity": QUANTITY,
    "Semver": SEMVER,
    "URL": URL,
    "Format": FORMAT,
    "IP": IP,
    "CIDR": CIDR,
}


@lru_cache(maxsize=1024)
def parse_type(text: str) -> Type:
    """Parse the text form of a type in a declaration, such as ``list(A)``."""
    (found,) = parse_types(text)
    return found


def parse_types(text: str) -> list[Type]:
    """Parse a comma-separated list of types, such as ``list(A), int``."""
    tokens = _TOKEN.findall(text)[::-1]
    types: list[Type] = []
    while tokens:
        types.append(_next_type(tokens))
        if tokens:
            tokens.pop()
    return types


def _next_type(tokens: list[str]) -> Type:
    word = tokens.pop()
    found = _ALIASES.get(word) or Type(word)
    if not tokens or tokens[-1] != "(":
        return found
    params: list[Type] = []
    while tokens.pop() != ")":
        params.append(_next_type(tokens))
    return Type(found.name, tuple(params))


Bindings = dict[Type, Type]
"""Mapping from type variables to their types."""


class Inference:
    """Type inference for one expression: finds the types of its type variables."""

    def __init__(self) -> None:
        """Start without type variables."""
        self._bindings: Bindings = {}
        self._count = 0

    def new_variable(self) -> Type:
        """Return an unused type variable."""
        self._count += 1
        return Type(f"_var{self._count - 1}")

    def assign(self, targets: Sequence[Type], values: Sequence[Type]) -> bool:
        """Return True if each type in ``values`` is assignable to its counterpart in ``targets``.

        If so, bind the type variables to the types that make this possible.
        """
        trial = dict(self._bindings)
        if not _assignable_all(trial, targets, values):
            return False
        self._bindings = trial
        return True

    def resolve(self, type_: Type, free_is_dyn: bool = False) -> Type:
        """Return ``type_`` with each type variable replaced by its type.

        A variable without a known type becomes ``dyn`` if ``free_is_dyn`` is True. Otherwise, the
        result contains the variable.
        """
        return _resolve(self._bindings, type_, free_is_dyn)


def _resolve(bindings: Bindings, type_: Type, free_is_dyn: bool) -> Type:
    bound = bindings.get(type_)
    if bound is not None:
        return _resolve(bindings, bound, free_is_dyn)
    if type_.is_variable:
        return DYN if free_is_dyn else type_
    if not type_.params:
        return type_
    params = [_resolve(bindings, param, free_is_dyn) for param in type_.params]
    return Type(type_.name, tuple(params))


def instantiate(type_: Type, variables: Bindings) -> Type:
    """Return a declared type with its type variables replaced.

    ``variables``: the replacement of each type variable.
    """
    return _resolve(variables, type_, free_is_dyn=False)


def _assignable_all(bindings: Bindings, ones: Sequence[Type], others: Sequence[Type]) -> bool:
    return len(ones) == len(others) and all(
        _assignable(bindings, one, other) for one, other in zip(ones, others, strict=True)
    )


def _assignable(bindings: Bindings, one: Type, other: Type) -> bool:
    if other.is_variable:
        fits, was_bound = _bind(bindings, other, one)
        if fits or was_bound:
            return fits
    if one.is_variable:
        return _bind(bindings, one, other)[0]
    if any(each.is_dyn or each == ERROR for each in (one, other)):
        return True
    if NULL in (one, other):
        rest = other if one == NULL else one
        return rest == NULL or rest in _NULLABLE or rest.name == "optional_type"
    if one.name != other.name:
        return False
    return one.name == "type" or _assignable_all(bindings, one.params, other.params)


def _bind(bindings: Bindings, variable: Type, type_: Type) -> tuple[bool, bool]:
    """Bind ``variable`` to ``type_``.

    Return two booleans: whether the type fits, and whether the variable already had a type.
    """
    if variable == type_:
        return True, True
    bound = bindings.get(variable)
    if bound is None:
        if _occurs(bindings, variable, type_):
            return False, False
        bindings[variable] = type_
        return True, False
    if bound != type_:
        if not _assignable(bindings, type_, bound):
            return False, True
        general = most_general(type_, bound)
        if not _occurs(bindings, variable, general):
            bindings[variable] = general
    return True, True


def _occurs(bindings: Bindings, variable: Type, type_: Type) -> bool:
    if variable == type_:
        return True
    if type_.is_variable:
        bound = bindings.get(type_)
        return bound is not None and _occurs(bindings, variable, bound)
    return any(_occurs(bindings, variable, param) for param in type_.params)


def most_general(one: Type, other: Type) -> Type:
    """Return the more general of two types, of which one is assignable to the other."""
    return one if _covers(one, other) else other


def _covers(one: Type, other: Type) -> bool:
    if one.is_dyn or one.is_variable:
        return True
    if other.is_dyn or other.is_variable or one.name != other.name:
        return False
    if one.name == "type":
        return True
    pairs = zip(one.params, other.params, strict=False)
    return len(one.params) == len(other.params) and all(_covers(*pair) for pair in pairs)
