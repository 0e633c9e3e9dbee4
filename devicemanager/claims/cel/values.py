"""Values of CEL expressions: their classes, equality, order and size.

int, double, bool, string, bytes, null and list values are Python objects. All other types have a
class here. Evaluation errors are exceptions such as ``CelError``.
"""

# Equality follows cel-go (common/types, v0.26): numbers of different types compare by value; other
# values of different types are unequal. If the left side is a quantity or version, a right side of
# another type is an error.

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import attrs

from devicemanager.claims.cel import gotext
from devicemanager.claims.cel.semver import Version

Value = Any
"""Value of a CEL expression: a Python value such as an int, or an object such as a ``Quantity``."""

NO_OVERLOAD = "no such overload"


class CelError(Exception):
    """Evaluation error. ``||`` and ``&&`` ignore it if another operand decides the result."""


class EvaluationStopped(Exception):
    """Error that ends the evaluation. No operator ignores it."""


class CostExceeded(EvaluationStopped):
    """Error for an evaluation that exceeds its cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class InternalError(EvaluationStopped):
    """Error for an evaluation in which cel-go panics because of a bug."""

    def __init__(self, text: str) -> None:
        super().__init__(f"internal error: {text}")


class UInt(int):
    """Unsigned integer, which CEL distinguishes from int."""

    __slots__ = ()


class Duration(NamedTuple):
    """Duration in nanoseconds."""

    nanos: int


class Timestamp(NamedTuple):
    """Point in time in nanoseconds since 1970, and the UTC offset of its text form."""

    nanos: int
    offset: int = 0
    """Offset in seconds east of UTC. It affects only the text form."""


class TypeName(NamedTuple):
    """Type used as a value, such as the result of ``type(1)``."""

    name: str


@attrs.frozen
class Optional:
    """Optional value. ``NONE`` is the empty optional value."""

    value: Value
    has_value: bool = True


NONE = Optional(None, has_value=False)


@attrs.frozen(eq=False)
class Quantity:
    """Resource quantity in nano-units."""

    nanos: int
    integer: int | None = None
    """Value if Kubernetes stores the quantity as an integer (``AsInt64``); else None."""
    is_computed: bool = False
    """True for a result of ``add`` or ``sub``. Such a quantity as the right operand of ``==`` is an
    error in Kubernetes."""


@attrs.frozen(eq=False)
class Format:
    """Named format, the result of a function such as ``format.uuid()``."""

    name: str
    regex_size: int
    """Length of the format's regular expression, on which the cost of ``validate`` depends."""


@attrs.frozen(eq=False)
class Url:
    """Parsed URL."""

    text: str
    scheme: str
    host: str
    escaped_path: str
    query: str


@attrs.frozen
class IPAddress:
    """IP address: its family (4 or 6), and its value as an integer."""

    family: int
    number: int
    text: str = attrs.field(eq=False)

    @property
    def bits(self) -> int:
        """Length of an address of this family, in bits: 32 or 128."""
        return 32 if self.family == 4 else 128


@attrs.frozen
class Network:
    """Network address with a prefix length, such as ``10.0.0.1/8``."""

    address: IPAddress
    prefix: int

    @property
    def masked(self) -> int:
        """The address as an integer, with all bits after the prefix set to 0."""
        host_bits = self.address.bits - self.prefix
        return self.address.number >> host_bits << host_bits


class Map:
    """CEL map. Numbers of different types are the same key if their values are equal."""

    __slots__ = ("_default", "_entries", "_has_texts")

    def __init__(
        self,
        pairs: Iterable[tuple[Value, Value]],
        default: Value = None,
        has_texts: bool = False,
    ) -> None:
        """Create a map. Raises InternalError for a key that cannot be a map key in Go.

        ``default``: value that ``find`` returns for a missing key. If it is None, ``find`` returns
        MISSING. ``has_texts``: True if all keys are strings. ``find`` then treats keys of other
        types as missing.
        """
        self._entries = {_key(key): (key, value) for key, value in pairs}
        self._default = default
        self._has_texts = has_texts

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Value]:
        return (key for key, _ in self._entries.values())

    def __contains__(self, key: Value) -> bool:
        return self._found(key) is not None

    def items(self) -> Iterable[tuple[Value, Value]]:
        """Return the pairs of key and value."""
        return self._entries.values()

    def find(self, key: Value) -> Value:
        """Return the value of a key. For a missing key, return the map's ``default``, or MISSING if
        the map has no default."""
        found = self._found(key)
        if found is not None:
            return found[1]
        return MISSING if self._default is None else self._default

    def _found(self, key: Value) -> tuple[Value, Value] | None:
        if self._has_texts and type(key) is not str:
            return None
        return self._entries.get(_key(key))


MISSING = object()
"""Result of a lookup that finds nothing."""


def _key(key: Value) -> object:
    if type(key) in _UNHASHABLE:
        name = _UNHASHABLE[type(key)]
        raise InternalError(f"runtime error: hash of unhashable type {name}")
    if type(key) in (int, UInt, float, str):
        return key
    # In Python, True == 1; in CEL they differ. Classes below are pointers or structs in Go.
    return (type(key), key if type(key) in _HASHED else id(key))


_UNHASHABLE = {bytes: "types.Bytes", Version: "cel.Semver", Format: "cel.Format"}
"""Classes that cannot be keys in Go."""
_HASHED = (bool, type(None), Duration, Timestamp, TypeName, IPAddress, Network)
"""Classes whose equal values are the same key."""
_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    Map: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeName: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    Version: "kubernetes.Semver",
    Url: "kubernetes.URL",
    Format: "kubernetes.NamedFormat",
    IPAddress: "net.IP",
    Network: "net.CIDR",
}


def type_name(value: Value) -> str:
    """Return the name of the type of a value, such as ``null_type``."""
    return _NAMES[type(value)]


def is_number(value: Value) -> bool:
    """True for an int, uint or double."""
    return type(value) in (int, UInt, float)


def equality(one: Value, other: Value) -> bool | None:
    """Return True if two values are equal, False if not; None if comparing them is an error."""
    kind = type(one)
    if kind is str or one is None:
        return type(other) is kind and bool(one == other)
    if other is None:
        return False
    if is_number(one):
        return is_number(other) and _compare_numbers(one, other) == 0
    handler = _EQUALITIES.get(kind)
    if handler is not None:
        return handler(one, other)
    return type(other) is kind and bool(one == other)


def _equal_lists(one: list[Value], other: Value) -> bool:
    # cel-go treats elements whose comparison fails as equal.
    return (
        type(other) is list
        and len(one) == len(other)
        and all(equality(*pair) is not False for pair in zip(one, other, strict=True))
    )


def _equal_maps(one: Map, other: Value) -> bool:
    if type(other) is not Map or len(one) != len(other):
        return False
    return all(
        (found := other.find(key)) is not MISSING and equality(value, found) is not False
        for key, value in one.items()
    )


def _equal_optionals(one: Optional, other: Value) -> bool | None:
    if type(other) is not Optional or one.has_value != other.has_value:
        return False
    return equality(one.value, other.value) if one.has_value else True


def _equal_quantities(one: Quantity, other: Value) -> bool | None:
    if type(other) is not Quantity or other.is_computed:
        return None
    return one.nanos == other.nanos


def _same_kind_only(one: Value, other: Value) -> bool | None:
    return one == other if type(other) is type(one) else None


_EQUALITIES: dict[type, Callable[[Any, Any], bool | None]] = {
    list: _equal_lists,
    Map: _equal_maps,
    Optional: _equal_optionals,
    Quantity: _equal_quantities,
    Version: _same_kind_only,
    Url: lambda one, other: one.text == other.text if type(other) is Url else None,
    Format: lambda one, other: one.name == other.name if type(other) is Format else None,
    IPAddress: _same_kind_only,
    Network: _same_kind_only,
}

_ORDERED = (bool, str, bytes, Duration, Timestamp)
COMPARABLE = (*_ORDERED, int, UInt, float)
"""Classes whose values have an order."""


def compare(one: Value, other: Value) -> int:
    """Return -1, 0 or 1 if ``one`` is less than, equal to or greater than ``other``.

    Raises CelError for NaN, and for types that cannot be compared. Numbers of different types can
    be compared.
    """
    if is_number(one) and is_number(other):
        if math.isnan(one) or math.isnan(other):
            raise CelError("NaN values cannot be ordered")
        return _compare_numbers(one, other) or 0
    if type(one) is not type(other) or type(one) not in _ORDERED:
        raise CelError(NO_OVERLOAD)
    if type(one) is Timestamp:
        one, other = one.nanos, other.nanos
    return int(one > other) - int(one < other)


def _compare_numbers(one: Value, other: Value) -> int | None:
    """Return -1, 0 or 1; None if a number is NaN. If one is a double, convert both to double."""
    if type(one) is float or type(other) is float:
        one, other = float(one), float(other)
    return int(one > other) - int(one < other) if one == one and other == other else None


def size_of(value: Value) -> int:
    """Return the size of a value, on which costs depend.

    This is the number of characters, bytes, elements or entries. An IP address has the size 4 or
    16. The size of a network is its prefix length in bytes, rounded up. All other values have the
    size 1.
    """
    kind = type(value)
    if kind in (str, bytes, list, Map):
        return len(value)
    if kind is IPAddress:
        return int(value.bits // 8)
    if kind is Network:
        return -(-int(value.prefix) // 8)
    return 1


def text_of(value: Value) -> str:
    """Return the text of a map key or index as error messages show it (``%v`` in Go)."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return gotext.double(value)
    return "<nil>" if value is None else str(value)
