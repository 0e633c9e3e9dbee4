"""The syntax tree of a CEL expression, in the format that the CEL library reads and writes.

In:  ``cel.expr.ParsedExpr`` (cel/expr/syntax.proto) as the library serializes it.
Out: nodes to walk and to change, the attributes that an expression reads (``keys_read``), and
     the changed message, serialized.
"""

# The library can serialize a compiled expression but offers no way to inspect it. Only the
# fields that this module reads are declared: protobuf preserves unknown fields, so the other
# fields survive a change. The declaration is built at first use, in a separate descriptor pool:
# a generated module would register ``cel.expr`` in the default pool and collide with any other
# copy of these messages in the user's program.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory

Node = Any
"""A ``cel.expr.Expr`` message."""

_PACKAGE = "cel.expr"
_INT64, _BOOL, _STRING, _BYTES, _MESSAGE = 3, 8, 9, 12, 11
_OPTIONAL, _REPEATED = 1, 3

# Message to its fields: name, number, type or message name, True if it is repeated.
_MESSAGES: Mapping[str, tuple[tuple[str, int, int | str, bool], ...]] = {
    "ParsedExpr": (("expr", 2, "Expr", False),),
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
    "CreateList": (("elements", 1, "Expr", True),),
    "Entry": (("map_key", 3, "Expr", False), ("value", 4, "Expr", False)),
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
    "Constant": (("string_value", 6, _STRING, False), ("bytes_value", 7, _BYTES, False)),
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
"""Message to the name of its oneof, for messages whose fields form one oneof."""


@cache
def _parsed_expr() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="syntax.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        _declare(file.message_type.add(name=name), fields, _CHOICES.get(name))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.ParsedExpr"))


def _declare(
    message: Any, fields: tuple[tuple[str, int, int | str, bool], ...], choice: Any
) -> None:
    if choice:
        message.oneof_decl.add(name=choice)
    for name, number, kind, repeats in fields:
        field = message.field.add(
            name=name, number=number, label=_REPEATED if repeats else _OPTIONAL
        )
        if isinstance(kind, str):
            field.type, field.type_name = _MESSAGE, f".{_PACKAGE}.{kind}"
        else:
            field.type = kind
        if choice:
            field.oneof_index = 0


class Tree:
    """Syntax tree of a parsed expression, which can be changed and serialized."""

    def __init__(self, serialized: bytes) -> None:
        self._envelope = any_pb2.Any.FromString(serialized)
        self._parsed = _parsed_expr().FromString(self._envelope.value)

    @property
    def root(self) -> Node:
        """Root node of the expression."""
        return self._parsed.expr

    def serialize(self) -> bytes:
        """Return the tree as bytes, which the library's ``deserialize`` accepts."""
        self._envelope.value = self._parsed.SerializeToString()
        return self._envelope.SerializeToString()


def children(node: Node) -> list[Node]:
    """Return the child expressions of ``node``, in the order of their evaluation."""
    match node.WhichOneof("kind"):
        case "select_expr":
            return [node.select_expr.operand]
        case "call_expr":
            call = node.call_expr
            return [*([call.target] if call.HasField("target") else []), *call.args]
        case "list_expr":
            return list(node.list_expr.elements)
        case "struct_expr":
            return [part for entry in node.struct_expr.entries for part in _parts(entry)]
        case "comprehension_expr":
            loop = node.comprehension_expr
            return [
                loop.iter_range,
                loop.accu_init,
                loop.loop_condition,
                loop.loop_step,
                loop.result,
            ]
    return []


def _parts(entry: Any) -> list[Node]:
    return [*([entry.map_key] if entry.HasField("map_key") else []), entry.value]


def walk(node: Node) -> Iterator[Node]:
    """Yield ``node`` and all its descendants."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += children(node)


def literal(node: Node) -> str | None:
    """Return the text of a string constant; None for any other node."""
    if node.WhichOneof("kind") != "const_expr":
        return None
    constant = node.const_expr
    return str(constant.string_value) if constant.WhichOneof("value") == "string_value" else None


def keys_read(root: Node, variable: str) -> frozenset[str] | None:
    """Return the keys of the map ``variable`` that an expression can read; None is any key.

    ``v.key``, ``v['key']``, ``has(v.key)`` and ``'key' in v`` read one key. Every other use
    of the variable, such as ``size(v)``, reads the whole map.
    """
    keys: set[str] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if _is_variable(node, variable):
            return None
        key = _key_of(node, variable)
        if key is None:
            stack += children(node)
        else:
            keys.add(key)
    return frozenset(keys)


def _key_of(node: Node, variable: str) -> str | None:
    """Return the key if ``node`` reads a constant key of ``variable``, else None."""
    # A computed key, such as in ``device[device.a]``, can be any key.
    kind = node.WhichOneof("kind")
    if kind == "select_expr" and _is_variable(node.select_expr.operand, variable):
        return str(node.select_expr.field)
    if kind != "call_expr" or len(node.call_expr.args) != 2:
        return None
    first, second = node.call_expr.args
    if node.call_expr.function == "_[_]" and _is_variable(first, variable):
        return literal(second)
    if node.call_expr.function == "@in" and _is_variable(second, variable):
        return literal(first)
    return None


def _is_variable(node: Node, variable: str) -> bool:
    return bool(node.WhichOneof("kind") == "ident_expr" and node.ident_expr.name == variable)
