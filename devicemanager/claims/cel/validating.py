"""Find errors in a type-checked expression: in constants, format strings and literals.

The checks are the validators of cel-go that Kubernetes enables (cel/validator.go and
ext/formatting.go, v0.26).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from devicemanager.claims.cel import types
from devicemanager.claims.cel.checker import in_order
from devicemanager.claims.cel.functions import conversions, formatting, regex
from devicemanager.claims.cel.parsing import Issue
from devicemanager.claims.cel.syntax import Call, Const, ListLiteral, MapLiteral, Node, walk
from devicemanager.claims.cel.types import Type
from devicemanager.claims.cel.values import CelError, Value


def validate(root: Node, allows_mixed: bool) -> list[Issue]:
    """Return the errors that the validators find in a checked tree, in source order.

    ``allows_mixed``: True if elements of a list or map literal may differ in type.
    """
    issues = [issue for node in walk(root) for issue in _of_node(node)]
    return in_order([*issues, *_mixed(root, is_exempt=allows_mixed)])


def _of_node(node: Node) -> Iterator[Issue]:
    if not isinstance(node, Call):
        return
    argument = node.args[0] if node.args else None
    check = _CHECKS.get(node.function)
    if check and isinstance(argument, Const) and not _accepts(check, argument.value):
        yield Issue(argument.position, f"invalid {node.function} argument")
    if node.function == "format" and node.target is not None:
        yield from _format(node, node.target)


def _accepts(check: Callable[[Value], object], value: Value) -> bool:
    try:
        check(value)
    except CelError:
        return False
    return True


def _conversion(name: str) -> Callable[[Value], object]:
    def convert(value: Value) -> object:
        kind = "string" if isinstance(value, str) else "int64"
        return conversions.IMPLEMENTATIONS[f"{kind}_to_{name}"](value)

    return convert


def _pattern(value: Value) -> object:
    return regex.compiled(value) if isinstance(value, str) else None


_CHECKS: dict[str, Callable[[Value], object]] = {
    "duration": _conversion("duration"),
    "timestamp": _conversion("timestamp"),
    "matches": _pattern,
}
"""Checks of constant first arguments, by function.

For ``matches(text, pattern)``, the first argument is the text. So the text is checked and not the
pattern, as in Kubernetes.
"""


def _mixed(node: Node, is_exempt: bool) -> Iterator[Issue]:
    """Yield an error for each literal whose elements differ in type, such as ``[1, dyn(1)]``.

    ``is_exempt``: True inside the arguments of ``format``, whose types may differ.
    """
    is_exempt = is_exempt or (isinstance(node, Call) and node.function == "format")
    if not is_exempt:
        if isinstance(node, ListLiteral):
            yield from _mixed_list(node)
        elif isinstance(node, MapLiteral):
            yield from _mixed_map(node)
    for child in node.children():
        yield from _mixed(child, is_exempt)


def _mixed_list(node: ListLiteral) -> Iterator[Issue]:
    expected: Type | None = None
    for index, each in enumerate(node.elements):
        found = each.type.params[0] if index in node.optional else each.type
        expected = expected or found
        if not _same(expected, found):
            yield _mismatch(each, expected, found)
            return


def _mixed_map(node: MapLiteral) -> Iterator[Issue]:
    keys: Type | None = None
    values: Type | None = None
    for entry in node.entries:
        value = entry.value.type.params[0] if entry.is_optional else entry.value.type
        keys, values = keys or entry.key.type, values or value
        if not _same(keys, entry.key.type):
            yield _mismatch(entry.key, keys, entry.key.type)
        if not _same(values, value):
            yield _mismatch(entry.value, values, value)


def _same(one: Type, other: Type) -> bool:
    return one == other


def _mismatch(node: Node, expected: Type, found: Type) -> Issue:
    return Issue(node.position, f"expected type '{expected}' but found '{found}'")


def _format(call: Call, target: Node) -> Iterator[Issue]:
    (args,) = call.args
    if not isinstance(target, Const) or not isinstance(args, ListLiteral):
        return
    elements = args.elements

    def show(letter: str, _: int, index: int) -> str:
        fault = _wrong_element(letter, elements[index])
        if fault is not None:
            raise formatting.wrong_type(letter, fault[1].name, index)
        return ""

    try:
        _, used = formatting.run(str(target.value), len(elements), show, is_checked=True)
    except formatting.FormatFault as fault:
        at = call if fault.index is None else elements[fault.index]
        yield Issue(at.position, str(fault))
        return
    if len(elements) > used:
        yield Issue(
            call.position,
            f"too many arguments supplied to string.format (expected {used}, got {len(elements)})",
        )


def _wrong_element(letter: str, node: Node) -> tuple[Node, Type] | None:
    """Return the first node whose type a clause does not accept, with its type; None if all fit."""
    accepted = formatting.ACCEPTED[letter]
    if node.type == types.DYN:
        return None
    if accepted is not None:
        return None if node.type.name in accepted else (node, node.type)
    if node.type.name not in _WITH_TEXT:
        return node, node.type
    parts = node.children() if isinstance(node, ListLiteral | MapLiteral) else []
    return next((found for part in parts if (found := _wrong_element(letter, part))), None)


_WITH_TEXT = frozenset(
    {
        "list",
        "map",
        "int",
        "uint",
        "double",
        "bool",
        "string",
        "bytes",
        "type",
        types.TIMESTAMP.name,
        types.DURATION.name,
        types.NULL.name,
    }
)
