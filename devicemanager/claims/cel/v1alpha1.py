"""Constraints of ``devmgmtproto.k8s.io/v1alpha1``: CEL expressions about one device.

In:  the text of a constraint; the attributes of a device.
Out: an ``Expression``, or CompileError for an invalid constraint. ``Expression.matches`` returns
     True or False for a device, or raises EvaluationError.

These constraints differ from DRA selectors (``dra``) in three ways:

* The variable ``device`` is a flat map of attributes.
* A string that is compared with a quantity or version is parsed as that type, as in ``device.memory
  >= '10Gi'``.
* ``==`` of values of different types is False, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache

import attrs

from devicemanager.claims.attributes import AttributeType, AttributeValue
from devicemanager.claims.cel import declarations, types
from devicemanager.claims.cel.checker import Environment
from devicemanager.claims.cel.compiling import Compiled, Fault, compile_expression
from devicemanager.claims.cel.dispatch import Dialect
from devicemanager.claims.cel.functions import IMPLEMENTATIONS, Implementation, amounts, lists
from devicemanager.claims.cel.limits import Spend
from devicemanager.claims.cel.parsing import NotSupported
from devicemanager.claims.cel.reading import Setting, keys_read
from devicemanager.claims.cel.semver import Version
from devicemanager.claims.cel.sizes import Sized
from devicemanager.claims.cel.values import (
    COMPARABLE,
    MISSING,
    CelError,
    EvaluationStopped,
    Map,
    Quantity,
    Value,
    compare,
    equality,
    type_name,
)
from devicemanager.claims.errors import CompileError, EvaluationError, one_line

MAX_LENGTH = 10 * 1024
"""Maximum length of a constraint, in bytes."""
_VARIABLE = "device"


@attrs.frozen
class Expression:
    """Compiled constraint. It is immutable, so threads can share it."""

    text: str
    reads: frozenset[str] | None
    """Names of the attributes that the constraint can read; None means all."""
    _compiled: Compiled = attrs.field(repr=False)

    def matches(self, attributes: Mapping[str, AttributeValue], spend: Spend | None = None) -> bool:
        """True if a device with these attributes satisfies the constraint.

        During the evaluation, ``spend`` is called with the number of cost units that were spent
        since its last call. If ``spend`` raises an exception, the evaluation ends. Raises
        EvaluationError if the evaluation fails, or if the result is not a bool.
        """
        try:
            device = Map([(name, _cel_value(value)) for name, value in attributes.items()])
            answer = self._compiled.program.run({_VARIABLE: device}, spend)
        except (CelError, EvaluationStopped) as error:
            raise EvaluationError(one_line(str(error))) from None
        if not isinstance(answer, bool):
            raise EvaluationError(f"the result has type {type_name(answer)}: expected bool")
        return answer


def _cel_value(attribute: AttributeValue) -> Value:
    if attribute.type is AttributeType.QUANTITY:
        return amounts.of_nanos(int(attribute.value))
    if attribute.type is AttributeType.SEMVER:
        return amounts.version(str(attribute.value))
    return attribute.value


@lru_cache(maxsize=1024)
def compile_v1alpha1(text: str) -> Expression | None:
    """Compile a constraint of ``devmgmtproto.k8s.io/v1alpha1``.

    Return None for an empty constraint: every device satisfies it. Raises CompileError with a
    one-line message, which has the position of a syntax or type error. Raises ClaimsUnavailable if
    the CEL library is not installed.
    """
    if not text:
        return None
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise CompileError("not valid Unicode text: it contains a lone surrogate") from None
    if length > MAX_LENGTH:
        raise CompileError(f"too long: {length} bytes, at most {MAX_LENGTH} are allowed")
    try:
        compiled = compile_expression(text, _setting())
    except NotSupported as error:
        raise CompileError(one_line(str(error))) from None
    except Fault as fault:
        raise CompileError(_first_error(str(fault))) from None
    return Expression(text, keys_read(compiled.root, _VARIABLE), compiled)


def _first_error(text: str) -> str:
    """Return the first of cel-go's errors, on one line."""
    first = text.partition("ERROR: <input>:")[2].partition("\n")[0]
    line, _, rest = first.partition(":")
    column, _, fault = rest.partition(": ")
    if not (line.isdigit() and column.isdigit()):
        return one_line(text.rpartition("failed: ")[2])
    return one_line(f"line {line}, column {column}: {fault}")


_COMPARISONS = "\n".join(
    f"{symbol}{one}{other} = {symbol}({one}, {other}) bool"
    for symbol in ("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_")
    for kind in ("Quantity", "Semver")
    for one, other in ((kind, kind), (kind, "string"), ("string", kind))
    if symbol not in ("_==_", "_!=_") or one != other
)


@cache
def _setting() -> Setting:
    library = declarations.merged(
        declarations.kubernetes_library(),
        declarations.declare(declarations.INCLUDES + _COMPARISONS),
    )
    implementations: dict[str, Implementation] = {
        **IMPLEMENTATIONS,
        "list_includes_dyn_dyn": lists.includes,
        "lists_range": lists.numbers_below,
    }
    dialect = Dialect(
        library,
        implementations,
        equal=_equal,
        order=_order,
        ordered=(*COMPARABLE, Quantity, Version),
    )
    device = types.map_of(types.STRING, types.DYN)
    # The sizes only affect the cost estimate. v1alpha1 limits only the cost at run time.
    environment = Environment({_VARIABLE: device}, {}, library)
    return Setting(environment, dialect, {_VARIABLE: Sized(0)}, allows_mixed=True)


_PARSERS: dict[type, Callable[[str], Value]] = {
    Quantity: amounts.quantity,
    Version: amounts.version,
}


def _coerced(one: Value, other: Value) -> tuple[Value, Value]:
    """Return both operands. If one is a string and the other a quantity or version, parse the
    string as that type."""
    if type(other) is str and type(one) in _PARSERS:
        return one, _PARSERS[type(one)](other)
    if type(one) is str and type(other) in _PARSERS:
        return _PARSERS[type(other)](one), other
    return one, other


def _equal(one: Value, other: Value) -> bool:
    return _same(*_coerced(one, other))


def _same(one: Value, other: Value) -> bool:
    """Evaluate ``==`` without coercion: values of different types differ, except numbers."""
    if type(one) is list and type(other) is list:
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_same(*pair) for pair in pairs)
    if type(one) is Map and type(other) is Map:
        found = [(value, other.find(key)) for key, value in one.items()]
        is_whole = len(one) == len(other) and all(each is not MISSING for _, each in found)
        return is_whole and all(_same(*pair) for pair in found)
    if type(one) is Quantity and type(other) is Quantity:
        return one.nanos == other.nanos
    return equality(one, other) is True


def _order(one: Value, other: Value) -> int:
    one, other = _coerced(one, other)
    if type(one) is Quantity and type(other) is Quantity:
        return compare(one.nanos, other.nanos)
    if type(one) is Version and type(other) is Version:
        return int(one > other) - int(one < other)
    if type(one) in _PARSERS and type(other) in _PARSERS:
        raise CelError("cannot compare a quantity with a version: use two values of one type")
    return compare(one, other)
