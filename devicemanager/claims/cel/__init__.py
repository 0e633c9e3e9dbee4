"""Constraints: CEL expressions about one device, compiled once, safe to evaluate.

The only place that knows the CEL library. An expression may have 10 KiB, may be nested 32
levels deep, and an evaluation has a bound of its cost; whatever breaks one of these is an
error with a clear text, never a hang.
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
"""Bytes of an expression."""
MAX_NESTING = 32
"""The library's own limit, for operators in a chain as well."""

_USUAL = (64, 256)
"""Attributes, and bytes of one, for which the cost is bounded at compile time."""


@attrs.frozen
class Expression:
    """A compiled constraint."""

    text: str
    reads: frozenset[str] | None
    """The attributes it can look at; None is all. Devices that agree in these get one answer."""
    _program: Any = attrs.field(repr=False)
    _tree: Node = attrs.field(repr=False)
    _variable: str = attrs.field(repr=False)

    def matches(self, attributes: Mapping[str, AttributeValue]) -> bool:
        """Whether a device with these attributes satisfies the constraint.

        Raises EvaluationError for a runtime error and for a result that is no bool.
        """
        self._check_cost(attributes)
        view = {name: _seen(value) for name, value in attributes.items()}
        try:
            result = self._program.eval(data={self._variable: view})
            answer = result.value()
        except Exception as error:
            raise EvaluationError(_runtime_text(error)) from None
        kind = result.type().name()
        if kind == "ERROR":
            raise EvaluationError(_runtime_text(answer))
        if kind != "BOOL":
            raise EvaluationError(f"the result is of type {kind.lower()}, not bool")
        return bool(answer)

    def _check_cost(self, attributes: Mapping[str, AttributeValue]) -> None:
        number = len(attributes)
        longest = max((_length(name, value) for name, value in attributes.items()), default=0)
        if number > _USUAL[0] or longest > _USUAL[1]:
            steps = _steps(self._tree, self._variable, number, longest)
            if steps > cost.LIMIT:
                raise EvaluationError(_too_costly(steps))


def _length(name: str, value: AttributeValue) -> int:
    return max(len(name), len(value.value) if isinstance(value.value, str) else 0) * 4


def _seen(attribute: AttributeValue) -> Any:
    if attribute.type is AttributeType.QUANTITY:
        return values.of_nanos(int(attribute.value))
    if attribute.type is AttributeType.SEMVER:
        return values.of_version(str(attribute.value))
    return attribute.value


@lru_cache(maxsize=1024)
def compile_devmgmt(text: str) -> Expression | None:
    """Compile a constraint of ``devmgmtproto.k8s.io``; None for the empty one, always true.

    Raises CompileError with one line that says what is wrong where, and ClaimsUnavailable if
    the library is not installed.
    """
    if not text:
        return None
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise CompileError("is no Unicode text: it has half of a surrogate pair") from None
    if length > MAX_LENGTH:
        raise CompileError(f"is {length} bytes long, at most {MAX_LENGTH} are allowed")
    return _compile(text, library.devmgmt())


def _compile(text: str, environment: library.Environment) -> Expression:
    try:
        environment.checking.compile(text)
        tree = Tree(environment.checking.compile(text, disable_check=True).serialize())
    except Exception as error:
        raise CompileError(_compile_text(error)) from None
    steps = _steps(tree.root, environment.variable, *_USUAL)
    if steps > cost.LIMIT:
        raise CompileError(_too_costly(steps))
    reads = keys_read(tree.root, environment.variable)
    _coerce_equality(tree.root)
    program = environment.running.deserialize(tree.serialize())
    return Expression(text, reads, program, tree.root, environment.variable)


def _steps(tree: Node, variable: str, number: int, longest: int) -> int:
    total = number * (2 * longest + 16)
    return cost.estimate(tree, {variable: cost.Size(total, number, longest + 8)})


def _coerce_equality(root: Node) -> None:
    """Make ``==`` and ``!=`` read a text as the quantity or version on their other side.

    The library cannot extend these two operators, only replace them.
    """
    for node in walk(root):
        if node.WhichOneof("kind") == "call_expr":
            call = node.call_expr
            replacement = _EQUALITY.get(call.function)
            if replacement and not any(map(_is_no_text, call.args)):
                call.function = replacement


_EQUALITY = {"_==_": library.EQUAL, "_!=_": library.UNEQUAL}


def _is_no_text(node: Node) -> bool:
    """A constant that is no text: nothing to coerce, the library's own operator will do."""
    if node.WhichOneof("kind") != "const_expr":
        return False
    return bool(node.const_expr.WhichOneof("value") != "string_value")


def _too_costly(steps: int) -> str:
    return (
        f"may take {steps} steps, at most {cost.LIMIT} are allowed: shorten texts, lists or loops"
    )


def _compile_text(error: Exception) -> str:
    """The first complaint of the library, on one line."""
    text = str(error)
    if "recursion" in text:
        return f"is nested more than {MAX_NESTING} levels deep"
    first = text.partition("ERROR: <input>:")[2] or text
    first = first.partition("\n")[0]
    line, _, rest = first.partition(":")
    column, _, complaint = rest.partition(": ")
    if not (line.isdigit() and column.isdigit()):
        return one_line(text)
    return one_line(f"line {line}, column {column}: {complaint}")


def _runtime_text(error: object) -> str:
    text = str(error)
    code, _, rest = text.partition(": ")
    return one_line(rest if code.isupper() and rest else text)
