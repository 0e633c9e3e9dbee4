"""Constraints of claims: CEL expressions about one device, compiled once, safe to evaluate.

In:  the text of a constraint; the attributes of a device.
Out: an ``Expression`` with ``matches`` and the names of the attributes that it reads; or
     CompileError at admission, EvaluationError for a device.

Only this package uses the CEL library (cel-expr-python, the CEL team's Python binding of its
C++ library). The library is optional, so it is imported when the first constraint is compiled.

This package adds three things to the library:

1. Limits. Any user can write a constraint, so none may hang or crash the kubelet: 10 KiB,
   32 levels of nesting, and a limit of cost that is checked before evaluation (``cost``).
2. Coercion. ``device.memory >= '10Gi'`` compares a quantity, or a version, with a string.
   Operators such as ``<`` can be overloaded in the library, ``==`` cannot. So the parsed tree
   is rewritten to call a function instead of ``==`` (``_coerce_equality``, ``tree``).
3. ``Expression.reads``, the attributes that a constraint reads. Devices with equal values of
   these attributes have the same result, so a constraint is evaluated once per combination of
   values (``v1alpha1.resolve``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import attrs

from devicemanager.claims.attributes import AttributeType, AttributeValue
from devicemanager.claims.cel import cost, library, values
from devicemanager.claims.cel.tree import Node, Tree, keys_read, walk
from devicemanager.claims.errors import CompileError, EvaluationError, one_line

MAX_LENGTH = 10 * 1024
"""Maximum length of an expression, in bytes."""
MAX_NESTING = 32
"""Maximum nesting that the CEL library parses, in levels. Chains of operators count as nesting."""

_TYPICAL = (64, 256)
"""Assumed number of attributes, and of bytes per attribute, for the cost at compile time.

The cost for a device with more attributes or bytes is checked again at evaluation.
"""


@attrs.frozen
class Expression:
    """Compiled constraint, which can be evaluated on any number of devices."""

    text: str
    reads: frozenset[str] | None
    """The names of the attributes that the constraint can read; None is all attributes."""
    steps: int
    """Upper bound of the steps of one evaluation, for a device of typical size (``cost``)."""
    _program: Any = attrs.field(repr=False)
    _tree: Node = attrs.field(repr=False)
    _variable: str = attrs.field(repr=False)

    def matches(self, attributes: Mapping[str, AttributeValue]) -> bool:
        """True if a device with these attributes satisfies the constraint.

        Raises EvaluationError for a runtime error, and for a result that is not a bool.
        """
        self._check_cost(attributes)
        device = {name: _cel_value(value) for name, value in attributes.items()}
        try:
            result = self._program.eval(data={self._variable: device})
            answer = result.value()
        except Exception as error:
            raise EvaluationError(_runtime_text(error)) from None
        kind = result.type().name()
        if kind == "ERROR":
            raise EvaluationError(_runtime_text(answer))
        if kind != "BOOL":
            raise EvaluationError(f"the result has type {kind.lower()}: expected bool")
        return bool(answer)

    def _check_cost(self, attributes: Mapping[str, AttributeValue]) -> None:
        # Nearly all devices are within the typical sizes, whose cost was checked at compile time.
        number = len(attributes)
        longest = max((_length(name, value) for name, value in attributes.items()), default=0)
        if number > _TYPICAL[0] or longest > _TYPICAL[1]:
            steps = _steps(self._tree, self._variable, number, longest)
            if steps > cost.LIMIT:
                raise EvaluationError(_too_costly(steps))


def _length(name: str, value: AttributeValue) -> int:
    # A character has up to 4 bytes in UTF-8.
    return max(len(name), len(value.value) if isinstance(value.value, str) else 0) * 4


def _cel_value(attribute: AttributeValue) -> Any:
    if attribute.type is AttributeType.QUANTITY:
        return values.of_nanos(int(attribute.value))
    if attribute.type is AttributeType.SEMVER:
        return values.of_version(str(attribute.value))
    return attribute.value


@lru_cache(maxsize=1024)
def compile_v1alpha1(text: str) -> Expression | None:
    """Compile a constraint of ``devmgmtproto.k8s.io/v1alpha1``.

    Return None for an empty constraint, which every device satisfies. Raises CompileError with
    one line (position and error), and ClaimsUnavailable if the CEL library is not installed.
    """
    if not text:
        return None
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise CompileError("not valid Unicode text: it contains a lone surrogate") from None
    if length > MAX_LENGTH:
        raise CompileError(f"too long: {length} bytes, at most {MAX_LENGTH} are allowed")
    return _compile(text, library.v1alpha1())


def _compile(text: str, environment: library.Environment) -> Expression:
    try:
        # Compile twice: with type checks to find the user's errors, and without type checks for
        # a tree that can be changed.
        environment.checking.compile(text)
        tree = Tree(environment.checking.compile(text, disable_check=True).serialize())
    except Exception as error:
        raise CompileError(_compile_text(error)) from None
    steps = _steps(tree.root, environment.variable, *_TYPICAL)
    if steps > cost.LIMIT:
        raise CompileError(_too_costly(steps))
    reads = keys_read(tree.root, environment.variable)
    _coerce_equality(tree.root)
    program = environment.running.deserialize(tree.serialize())
    return Expression(text, reads, steps, program, tree.root, environment.variable)


def _steps(tree: Node, variable: str, number: int, longest: int) -> int:
    total = number * (2 * longest + 16)
    return cost.estimate(tree, {variable: cost.Size(total, number, longest + 8)})


def _coerce_equality(root: Node) -> None:
    """Replace ``==`` and ``!=`` in a tree by functions that coerce strings.

    The functions parse a string as the type of the quantity or version on the other side.
    """
    # The library does not allow overloads of these two operators, so their calls are replaced.
    for node in walk(root):
        if node.WhichOneof("kind") == "call_expr":
            call = node.call_expr
            replacement = _EQUALITY.get(call.function)
            if replacement and not any(map(_is_other_constant, call.args)):
                call.function = replacement


_EQUALITY = {"_==_": library.EQUAL, "_!=_": library.UNEQUAL}


def _is_other_constant(node: Node) -> bool:
    """True for a constant that is not a string and therefore needs no coercion."""
    # The library's own operator is faster: it needs no call into Python.
    if node.WhichOneof("kind") != "const_expr":
        return False
    return bool(node.const_expr.WhichOneof("value") != "string_value")


def _too_costly(steps: int) -> str:
    return (
        f"too costly: evaluation can take {steps} steps, at most {cost.LIMIT} are allowed:"
        " shorten strings, lists or loops"
    )


def _compile_text(error: Exception) -> str:
    """Return the first error that the CEL library reports, on one line."""
    text = str(error)
    if "recursion" in text:
        return f"nested too deeply: at most {MAX_NESTING} levels are allowed"
    first = text.partition("ERROR: <input>:")[2] or text
    first = first.partition("\n")[0]
    line, _, rest = first.partition(":")
    column, _, fault = rest.partition(": ")
    if not (line.isdigit() and column.isdigit()):
        return one_line(text)
    return one_line(f"line {line}, column {column}: {fault}")


def _runtime_text(error: object) -> str:
    text = str(error)
    code, _, rest = text.partition(": ")
    return one_line(rest if code.isupper() and rest else text)
