"""Parse the text of an expression with the CEL library.

In:  the text of an expression.
Out: a syntax tree with the library's macros expanded, or SyntaxFault with the messages of cel-go.

Only this module uses the library (cel-expr-python, the CEL team's Python binding of its C++
library). The library has the same grammar file as cel-go, which Kubernetes uses, so most syntax
errors have the same message. The library is imported when the first expression is parsed.
"""

# Only the library's parser is used. Its runtime cannot count Kubernetes' cost, cannot be
# interrupted, and leaks the arguments of each call of a Python function
# (docs/decisions/cel-library.md).

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

import attrs
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory

from devicemanager.claims.cel import syntax
from devicemanager.claims.cel.syntax import Node
from devicemanager.claims.cel.values import UInt
from devicemanager.claims.errors import ClaimsUnavailable

MAX_NESTING = 32
"""Maximum nesting depth that the library parses. In ``a + b + c``, each operator counts as a
level."""


@attrs.frozen
class Issue:
    """Error in an expression: its message and its position, as an offset in characters."""

    position: int
    text: str


class SyntaxFault(Exception):
    """Error for an expression with a syntax error. ``text`` is the complete message."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)


class NotSupported(Exception):
    """Error for an expression that this package does not support, although Kubernetes may support
    it. The message says why."""


@cache
def _environment() -> Any:
    """Import the library and return its environment. Raises ClaimsUnavailable without it."""
    try:
        cel = importlib.import_module("cel_expr_python.cel")
        optional = importlib.import_module("cel_expr_python.ext.ext_optional")
        bindings = importlib.import_module("cel_expr_python.ext.ext_bindings")
    except ImportError as error:
        raise ClaimsUnavailable(
            "CEL expressions need cel-expr-python and google-re2:"
            f" pip install 'kubelet-devicemanager[claims]' ({error})"
        ) from None
    return cel.NewEnv(extensions=[optional.ExtOptional(), bindings.ExtBindings()])


_LOADING = threading.Lock()


def parse(text: str) -> Node:
    """Parse an expression.

    Raises SyntaxFault for a syntax error, NotSupported for an expression that is nested too deeply,
    and ClaimsUnavailable if the CEL library is not installed.
    """
    with _LOADING:
        environment = _environment()
    try:
        serialized = environment.compile(text, disable_check=True).serialize()
    except Exception as error:
        raise _fault(str(error), text) from None
    envelope = any_pb2.Any.FromString(serialized)
    parsed = _parsed_expr().FromString(envelope.value)
    positions = {entry.key: entry.value for entry in parsed.source_info.positions}
    return _Reader(positions).node(parsed.expr)


_FAULT = re.compile(r"\A[A-Z_]+: (.*?)(?: \[[A-Z_]+\])?\Z", re.DOTALL)
_GO_TEXTS = (
    ("has() argument must be a field selection", "invalid argument to has() macro"),
    ("variable name must be a simple identifier", "variable names must be simple identifiers"),
    ("invalid hex int literal", "invalid int literal"),
    ("invalid hex uint literal", "invalid uint literal"),
)
"""Messages of the library that differ from those of cel-go."""


def _fault(text: str, expression: str) -> Exception:
    if "recursion" in text:
        return NotSupported(f"nested too deeply: at most {MAX_NESTING} levels are allowed")
    match = _FAULT.match(text)
    if match is None:
        return SyntaxFault(text)
    # If parsing fails as a whole, the library adds an error without position.
    lines = [line for line in match[1].split("\n") if not line.startswith("ERROR: <input>:42949")]
    text = "\n".join(lines)
    for ours, theirs in _GO_TEXTS:
        text = text.replace(ours, theirs)
    if not expression:
        text = text.replace("<input>:1:1:", "<input>:1:0:")
    return SyntaxFault(text)


_WIDE_DOT, _WIDE_CARET = "\uff0e", "\uff3e"


def render(issues: Iterable[Issue], expression: str) -> str:
    """Return errors as cel-go prints them: position, message, source line, and a caret below it."""
    return "\n".join(_rendered(issue, expression) for issue in issues)


def _rendered(issue: Issue, expression: str) -> str:
    if issue.position < 0:
        return f"ERROR: <input>:-1:0: {issue.text}"
    before = expression[: issue.position]
    number, column = before.count("\n"), len(before) - (before.rfind("\n") + 1)
    line = expression.split("\n")[number].replace("\t", " ")
    # Under a full-width character, cel-go prints a full-width mark.
    marks = "".join(_WIDE_DOT if ord(char) > 0x7F else "." for char in line[:column])
    is_wide = column < len(line) and ord(line[column]) > 0x7F
    return (
        f"ERROR: <input>:{number + 1}:{column + 1}: {issue.text}\n"
        f" | {line}\n | {marks}{_WIDE_CARET if is_wide else '^'}"
    )


# Fields of the messages in cel.expr.ParsedExpr: name, number, type or message name, True if
# repeated.
_INT32, _INT64, _UINT64, _DOUBLE, _BOOL, _STRING, _BYTES, _MESSAGE = 5, 3, 4, 1, 8, 9, 12, 11
_OPTIONAL, _REPEATED = 1, 3
_MESSAGES: dict[str, tuple[tuple[str, int, int | str, bool], ...]] = {
    "ParsedExpr": (("expr", 2, "Expr", False), ("source_info", 3, "SourceInfo", False)),
    "Position": (("key", 1, _INT64, False), ("value", 2, _INT32, False)),
    "SourceInfo": (("positions", 4, "Position", True),),
    "Ident": (("name", 1, _STRING, False),),
    "Select": (
        ("operand", 1, "Expr", False),
        ("field", 2, _STRING, False),
        ("test_only", 3, _BOOL, False),
    ),
    "Call": (
        ("target", 1, "Expr", False),
        ("function", 2, _STRING, False),
        ("args", 3, "Expr", True),
    ),
    "CreateList": (("elements", 1, "Expr", True), ("optional_indices", 2, _INT32, True)),
    "Entry": (
        ("id", 1, _INT64, False),
        ("field_key", 2, _STRING, False),
        ("map_key", 3, "Expr", False),
        ("value", 4, "Expr", False),
        ("optional_entry", 5, _BOOL, False),
    ),
    "CreateStruct": (("message_name", 1, _STRING, False), ("entries", 2, "Entry", True)),
    "Comprehension": (
        ("iter_var", 1, _STRING, False),
        ("iter_range", 2, "Expr", False),
        ("accu_var", 3, _STRING, False),
        ("accu_init", 4, "Expr", False),
        ("loop_condition", 5, "Expr", False),
        ("loop_step", 6, "Expr", False),
        ("result", 7, "Expr", False),
    ),
    "Constant": (
        ("null_value", 1, _INT32, False),
        ("bool_value", 2, _BOOL, False),
        ("int64_value", 3, _INT64, False),
        ("uint64_value", 4, _UINT64, False),
        ("double_value", 5, _DOUBLE, False),
        ("string_value", 6, _STRING, False),
        ("bytes_value", 7, _BYTES, False),
    ),
    "Expr": (
        ("const_expr", 3, "Constant", False),
        ("ident_expr", 4, "Ident", False),
        ("select_expr", 5, "Select", False),
        ("call_expr", 6, "Call", False),
        ("list_expr", 7, "CreateList", False),
        ("struct_expr", 8, "CreateStruct", False),
        ("comprehension_expr", 9, "Comprehension", False),
    ),
}
_CHOICES = {"Expr": "kind", "Constant": "value"}
"""Name of the oneof of each message."""


@cache
def _parsed_expr() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="syntax.proto", package="cel.expr")
    file.syntax = "proto3"
    for name, fields in _MESSAGES.items():
        _declare(file.message_type.add(name=name), fields, _CHOICES.get(name))
    # In Expr, every field but ``id`` belongs to the oneof.
    file.message_type[-1].field.add(name="id", number=2, type=_INT64, label=_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("cel.expr.ParsedExpr"))


def _declare(
    message: Any, fields: tuple[tuple[str, int, int | str, bool], ...], choice: Any
) -> None:
    if choice:
        message.oneof_decl.add(name=choice)
    for name, number, kind, repeats in fields:
        label = _REPEATED if repeats else _OPTIONAL
        field = message.field.add(name=name, number=number, label=label)
        if isinstance(kind, str):
            field.type, field.type_name = _MESSAGE, f".cel.expr.{kind}"
        else:
            field.type = kind
        if choice:
            field.oneof_index = 0


class _Reader:
    """Convert the library's syntax tree to nodes."""

    def __init__(self, positions: dict[int, int]) -> None:
        self._positions = positions

    def node(self, expr: Any) -> Node:
        """Return the node of an expression."""
        kind = expr.WhichOneof("kind")
        part = getattr(expr, kind)
        node: Node = getattr(self, f"_{kind.removesuffix('_expr')}")(part, self._at(expr.id))
        return node

    def _at(self, number: int) -> int:
        return self._positions.get(number, -1)

    def _nodes(self, exprs: Any) -> list[Node]:
        return [self.node(each) for each in exprs]

    def _const(self, constant: Any, position: int) -> Node:
        kind = constant.WhichOneof("value")
        value = None if kind == "null_value" else getattr(constant, kind)
        value = UInt(constant.uint64_value) if kind == "uint64_value" else value
        return syntax.Const(position=position, value=value)

    def _ident(self, ident: Any, position: int) -> Node:
        return syntax.Ident(position=position, name=ident.name)

    def _select(self, select: Any, position: int) -> Node:
        return syntax.Select(
            position=position,
            operand=self.node(select.operand),
            field=select.field,
            is_test=select.test_only,
        )

    def _call(self, call: Any, position: int) -> Node:
        target = self.node(call.target) if call.HasField("target") else None
        return syntax.Call(
            position=position, function=call.function, target=target, args=self._nodes(call.args)
        )

    def _list(self, create: Any, position: int) -> Node:
        return syntax.ListLiteral(
            position=position,
            elements=self._nodes(create.elements),
            optional=frozenset(create.optional_indices),
        )

    def _struct(self, create: Any, position: int) -> Node:
        if create.message_name:
            fields = [
                (self._at(entry.id), entry.field_key, self.node(entry.value))
                for entry in create.entries
            ]
            return syntax.Message(position=position, name=create.message_name, fields=fields)
        entries = [
            syntax.Entry(self.node(entry.map_key), self.node(entry.value), entry.optional_entry)
            for entry in create.entries
        ]
        return syntax.MapLiteral(position=position, entries=entries)

    def _comprehension(self, loop: Any, position: int) -> Node:
        return syntax.Loop(
            position=position,
            var=loop.iter_var,
            var2="",
            range=self.node(loop.iter_range),
            accu=loop.accu_var,
            init=self.node(loop.accu_init),
            condition=self.node(loop.loop_condition),
            step=self.node(loop.loop_step),
            result=self.node(loop.result),
        )
