"""Syntax trees of CEL expressions.

``parsing`` creates a tree, ``macros`` expands it, ``checker`` adds types and overloads,
``estimate`` computes its cost, and ``planning`` turns it into a program. After that, the tree
does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from devicemanager.claims.cel.types import DYN, Type
from devicemanager.claims.cel.values import Value

if TYPE_CHECKING:
    from devicemanager.claims.cel.declarations import Overload


@attrs.define(eq=False, kw_only=True)
class Node:
    """Node of a syntax tree, with its position. The checker sets its type."""

    position: int
    """Offset in the source, in characters; -1 if the offset is unknown.

    A node that a macro creates has the offset of the macro.
    """
    type: Type = DYN
    """Type of the node's value. The checker determines it; the default is ``dyn``."""
    overloads: tuple[Overload, ...] = ()
    """Overloads that the checker found for a call."""

    def children(self) -> list[Node]:
        """Return the child nodes in the order of their evaluation."""
        return []


@attrs.define(eq=False, kw_only=True)
class Const(Node):
    """Literal of a scalar type."""

    value: Value


@attrs.define(eq=False, kw_only=True)
class Ident(Node):
    """Reference to a variable, or to a type such as ``int``."""

    name: str


@attrs.define(eq=False, kw_only=True)
class Select(Node):
    """``operand.field``; or ``has(operand.field)`` if ``is_test`` is True."""

    operand: Node
    field: str
    is_test: bool = False

    def children(self) -> list[Node]:
        """Return the operand."""
        return [self.operand]


@attrs.define(eq=False, kw_only=True)
class Call(Node):
    """Call of a function, method or operator. Operators have names such as ``_+_``."""

    function: str
    target: Node | None = None
    args: list[Node] = attrs.field(factory=list)

    def children(self) -> list[Node]:
        """Return the target, if any, and the arguments."""
        return [*([self.target] if self.target else []), *self.args]


@attrs.define(eq=False, kw_only=True)
class ListLiteral(Node):
    """List literal ``[a, ?b]``."""

    elements: list[Node]
    optional: frozenset[int] = frozenset()
    """Indexes of the optional elements, such as ``?b``.

    The list omits an optional element whose value is ``optional.none()``.
    """

    def children(self) -> list[Node]:
        """Return the elements."""
        return self.elements


@attrs.define
class Entry:
    """Entry of a map literal."""

    key: Node
    value: Node
    is_optional: bool


@attrs.define(eq=False, kw_only=True)
class MapLiteral(Node):
    """Map literal ``{k: v, ?k: v}``."""

    entries: list[Entry]

    def children(self) -> list[Node]:
        """Return the key and value of the first entry, then those of the second, and so on."""
        return [part for entry in self.entries for part in (entry.key, entry.value)]


@attrs.define(eq=False, kw_only=True)
class Message(Node):
    """Message literal ``name{field: value}``."""

    name: str
    fields: list[tuple[int, str, Node]]
    """Position, name and value of each field."""

    def children(self) -> list[Node]:
        """Return the value of each field."""
        return [value for _, _, value in self.fields]


@attrs.define(eq=False, kw_only=True)
class Loop(Node):
    """Loop of a macro such as ``all``."""

    var: str
    var2: str
    """Name of the second variable, in a macro with two variables; else ``""``."""
    range: Node
    accu: str
    """Name of the accumulator, the variable that has the result so far."""
    init: Node
    condition: Node
    step: Node
    result: Node

    @property
    def is_binding(self) -> bool:
        """True for a loop that only binds a value to a name, as ``cel.bind`` does."""
        # ``isBind`` in checker/cost.go of cel-go v0.26.
        return (
            isinstance(self.range, ListLiteral)
            and not self.range.elements
            and isinstance(self.condition, Const)
            and self.condition.value is False
            and self.accu not in ACCUMULATORS
        )

    def children(self) -> list[Node]:
        """Return ``range``, ``init``, ``condition``, ``step`` and ``result``."""
        return [self.range, self.init, self.condition, self.step, self.result]


ACCUMULATOR = "@result"
ACCUMULATORS = frozenset({ACCUMULATOR, "__result__"})
"""Names that macros give to the accumulator of a loop. Expressions cannot contain ``@result``."""


def walk(node: Node) -> Iterator[Node]:
    """Yield ``node`` and its descendants; parents come before children."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(node.children())


def qualified_name(node: Node) -> str | None:
    """Return the dotted name of a variable or of a field of a variable, such as ``a.b.c``.

    Return None for any other node.
    """
    names: list[str] = []
    while isinstance(node, Select):
        if node.is_test:
            return None
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(names)])


def literal(node: Node) -> str | None:
    """Return the value of a string literal; None for other nodes."""
    return node.value if isinstance(node, Const) and isinstance(node.value, str) else None
