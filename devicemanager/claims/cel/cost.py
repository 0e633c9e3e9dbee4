"""Estimate the maximum cost of a CEL expression without evaluating it.

In:  the syntax tree of an expression, and the sizes of its variables.
Out: the maximum number of steps that an evaluation can take.
"""

# Why not stop an evaluation that takes too long? It runs in C++ without a way to interrupt it,
# and a time limit would give different results on different machines. The library limits
# nesting and iterations, but three costs can exceed these limits:
#
# * strings and lists that an expression builds, which can double with every level;
# * nested loops, each within the limit of iterations;
# * regular expressions: ``a{1000}`` repeated compiles into a huge program.
#
# So two upper bounds are computed for each node from the bounds of its children: the steps that
# its evaluation takes, and the size of its value, because later operations cost as much as their
# arguments are large. A loop multiplies steps and sizes by its number of elements. One step is
# about 100 ns. Numbers stop at ``_HUGE``, so that hostile expressions cannot create big integers.

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from devicemanager.claims.cel.tree import Node, children, literal

LIMIT = 300_000
"""Maximum number of steps of one evaluation."""

_HUGE = 10**12
_CALLBACK = 40
"""Steps to call a function that is written in Python."""
_UNKNOWN_PATTERN = 200_000
"""Maximum steps to compile a regular expression that is not a constant. RE2 has such a limit."""
_NATIVE = frozenset({"_&&_", "_||_", "!_", "_?_:_", "_[_]", "@not_strictly_false", "@in"})


@attrs.frozen
class Size:
    """Upper bound of the size of a value; elements exist only in lists and maps."""

    total: int = 8
    """Bytes of the whole value."""
    count: int = 0
    """Number of elements."""
    item: int = 8
    """Bytes of one element."""
    inner: int = 0
    """Number of elements of one element, such as of a list in a list."""

    def or_larger(self, other: Size) -> Size:
        """Return the larger bound of this size and ``other``, field by field."""
        return Size(
            max(self.total, other.total),
            max(self.count, other.count),
            max(self.item, other.item),
            max(self.inner, other.inner),
        )

    def joined(self, other: Size) -> Size:
        """Return the size of the concatenation of both values."""
        total, count = self.total + other.total, self.count + other.count
        larger = self.or_larger(other)
        return Size(min(total, _HUGE), min(count, _HUGE), larger.item, larger.inner)

    def times(self, number: int) -> Size:
        """Return the size of this value repeated ``number`` times."""
        total, count = self.total * number, self.count * number
        return Size(min(total, _HUGE), min(count, _HUGE), self.item, self.inner)

    def element(self) -> Size:
        """Return the size of one element of this value."""
        # Only two levels are known: deeper elements are assumed to be as large as this one.
        return Size(self.item, self.inner, self.item, self.inner)


def estimate(root: Node, variables: Mapping[str, Size]) -> int:
    """Return the maximum number of steps of evaluating ``root`` with variables of these sizes."""
    steps, _ = _node(root, variables)
    return steps


_Bound = tuple[int, Size]


def _node(node: Node, variables: Mapping[str, Size]) -> _Bound:
    match node.WhichOneof("kind"):
        case "const_expr":
            constant = node.const_expr
            length = 3 * len(constant.string_value) + len(constant.bytes_value)
            return 1, Size(8 + length)
        case "ident_expr":
            return 1, variables.get(node.ident_expr.name, Size())
        case "select_expr":
            steps, size = _node(node.select_expr.operand, variables)
            return steps + 1, size.element()
        case "call_expr":
            return _call(node, variables)
        case "comprehension_expr":
            return _loop(node.comprehension_expr, variables)
    return _literal(node, variables)


def _literal(node: Node, variables: Mapping[str, Size]) -> _Bound:
    """Return the maximum steps and size of a list or map literal."""
    bounds = [_node(child, variables) for child in children(node)]
    steps = 1 + len(bounds) + sum(steps for steps, _ in bounds)
    total = min(8 + sum(size.total for _, size in bounds), _HUGE)
    item = max((size.total for _, size in bounds), default=8)
    inner = max((max(size.count, size.inner) for _, size in bounds), default=0)
    return steps, Size(total, len(bounds), item, inner)


def _loop(loop: Node, variables: Mapping[str, Size]) -> _Bound:
    """Return the maximum steps and size of a loop: a macro such as ``all`` or ``map``."""
    # The result of a loop grows by the same size in each iteration.
    range_steps, collection = _node(loop.iter_range, variables)
    steps, start = _node(loop.accu_init, variables)
    inside = {**variables, loop.iter_var: collection.element(), loop.accu_var: Size(0)}
    condition_steps, _ = _node(loop.loop_condition, inside)
    body_steps, grown = _node(loop.loop_step, inside)
    number = collection.count
    collected = start.joined(grown.times(number))
    # The library copies a list whenever an element is added.
    body_steps += condition_steps + collected.count // 4 + 2
    result_steps, size = _node(loop.result, {**inside, loop.accu_var: collected})
    return min(range_steps + steps + number * body_steps + result_steps, _HUGE), size


def _call(node: Node, variables: Mapping[str, Size]) -> _Bound:
    arguments = children(node)
    bounds = [_node(argument, variables) for argument in arguments]
    sizes = [size for _, size in bounds]
    before = sum(steps for steps, _ in bounds)
    function = node.call_expr.function
    steps, size = _work(function, sizes)
    if function == "matches":
        steps = _matching(arguments[-1], sizes)
    return min(before + steps, _HUGE), size


def _work(function: str, sizes: list[Size]) -> _Bound:
    """Return the steps of a call, without those of its arguments, and the size of its result."""
    total = sum(size.total for size in sizes)
    match function, sizes:
        case "_+_", [left, right]:
            return 1 + total // 8, left.joined(right)
        case "_?_:_", [_, one, other]:
            return 1, one.or_larger(other)
        case "_[_]", [collection, _]:
            return 2, collection.element()
        case "@in", [_, collection]:
            return 2 + collection.total // 8 + collection.count, Size()
        case "contains", [text, part]:
            return 2 + text.total * (1 + min(part.total, text.total) // 64) // 8, Size()
    if function in _NATIVE:
        return 1, Size()
    # A function in Python gets copies of lists and maps.
    copied = 10 * sum(size.count * max(1, size.inner) for size in sizes)
    return min(_CALLBACK + total // 8 + copied, _HUGE), Size(total + 64)


def _matching(pattern: Node, sizes: list[Size]) -> int:
    text = literal(pattern)
    compiling = _UNKNOWN_PATTERN if text is None else pattern_steps(text)
    return compiling + sum(size.total for size in sizes) * (1 + sizes[-1].total // 512)


_TOKEN = re.compile(
    r"(?P<repeat>\{\d*,?\d*\})"
    r"|(?P<unicode>\\[pP](?:\{[^}]*\}|.)?)"
    r"|(?P<class>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]?)"
    r"|(?P<open>\()|(?P<close>\))|(?P<wide>\.|\\[DSWB])|(?P<plain>\\.|.)",
    re.DOTALL,
)
_WIDTH = {"unicode": 700, "wide": 20, "plain": 1, "class": 40}
"""Approximate number of instructions that RE2 compiles one atom to, by kind of atom."""


def pattern_steps(pattern: str) -> int:
    """Return the approximate number of steps that RE2 takes to compile ``pattern``."""
    # RE2 expands each repetition, so nested repetitions multiply. A group is counted at its end.
    groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        kind = str(token.lastgroup)
        if kind == "open":
            groups.append(0)
            last = 0
        elif kind == "close" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif kind == "repeat":
            repeated = min(last * _times(token[0]), _HUGE)
            groups[-1] += repeated - last
            last = repeated
        else:
            last = _WIDTH.get(kind, 1) + 700 * len(_UNICODE.findall(token[0]))
            groups[-1] += last
    return 20 + 4 * sum(groups) * (4 if "(?" in pattern else 1)


_UNICODE = re.compile(r"(?<=.)\\[pP]")


def _times(repeat: str) -> int:
    """Return the maximum count of a repetition such as ``{3,5}``; RE2 accepts at most 1000."""
    return max(1, *(min(int(number[:4] or 1), 1000) for number in repeat[1:-1].split(",")))
