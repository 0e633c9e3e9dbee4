"""An upper limit of what an expression costs, found without evaluating it.

In:  the tree of an expression, and the sizes of its variables.
Out: the largest number of steps that an evaluation can take.
"""

# Why not stop an evaluation that takes too long? It runs in C++ without a way to interrupt it,
# and a limit of time would give different answers on different machines. The library limits
# nesting and iterations, but three things escape that:
#
# * strings and lists that an expression builds, which can double with every level;
# * nested loops, each of them within the limit of iterations;
# * regular expressions: ``a{1000}`` repeated compiles into a huge program.
#
# So each node gets two upper limits from those of its children: the steps that it takes, and
# the size of its value, because size is what later operations cost. A loop multiplies. One step
# is about 100 ns. Numbers stop at ``_HUGE``, so that hostile expressions cost no big integers.

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from devicemanager.claims.cel.tree import Node, children, literal

LIMIT = 300_000
"""The most steps of one evaluation."""

_HUGE = 10**12
_CALLBACK = 40
"""Steps of a function that is written in Python."""
_UNKNOWN_PATTERN = 200_000
"""Steps to compile a regular expression that is not a constant; RE2 limits it."""
_NATIVE = frozenset({"_&&_", "_||_", "!_", "_?_:_", "_[_]", "@not_strictly_false", "@in"})


@attrs.frozen
class Size:
    """The largest size of a value. Elements are those of lists and maps."""

    total: int = 8
    """Bytes of the whole value."""
    count: int = 0
    """Number of elements."""
    item: int = 8
    """Bytes of one element."""
    inner: int = 0
    """Number of elements of one element."""

    def or_larger(self, other: Size) -> Size:
        """Return a size that is enough for either value."""
        return Size(
            max(self.total, other.total),
            max(self.count, other.count),
            max(self.item, other.item),
            max(self.inner, other.inner),
        )

    def joined(self, other: Size) -> Size:
        """Return the size of both values concatenated."""
        total, count = self.total + other.total, self.count + other.count
        larger = self.or_larger(other)
        return Size(min(total, _HUGE), min(count, _HUGE), larger.item, larger.inner)

    def times(self, number: int) -> Size:
        """Return the size of a value repeated ``number`` times."""
        total, count = self.total * number, self.count * number
        return Size(min(total, _HUGE), min(count, _HUGE), self.item, self.inner)

    def element(self) -> Size:
        """Return the size of one element."""
        # Only two levels are known: deeper elements are taken to be as large as this one.
        return Size(self.item, self.inner, self.item, self.inner)


def estimate(root: Node, variables: Mapping[str, Size]) -> int:
    """Return the most steps that evaluating ``root`` takes, given the sizes of its variables."""
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
    """Limit a list or map literal."""
    bounds = [_node(child, variables) for child in children(node)]
    steps = 1 + len(bounds) + sum(steps for steps, _ in bounds)
    total = min(8 + sum(size.total for _, size in bounds), _HUGE)
    item = max((size.total for _, size in bounds), default=8)
    inner = max((max(size.count, size.inner) for _, size in bounds), default=0)
    return steps, Size(total, len(bounds), item, inner)


def _loop(loop: Node, variables: Mapping[str, Size]) -> _Bound:
    """Limit a macro such as ``all`` or ``map``; its result grows by the same in each step."""
    range_steps, collection = _node(loop.iter_range, variables)
    steps, start = _node(loop.accu_init, variables)
    inside = {**variables, loop.iter_var: collection.element(), loop.accu_var: Size(0)}
    condition_steps, _ = _node(loop.loop_condition, inside)
    body_steps, grown = _node(loop.loop_step, inside)
    number = collection.count
    collected = start.joined(grown.times(number))
    # The library copies a list each time that it grows.
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
    """Return the steps of a call itself, and the size of its result."""
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
"""About how many instructions RE2 makes of one atom."""


def pattern_steps(pattern: str) -> int:
    """Return about how many steps RE2 takes to compile ``pattern``."""
    # RE2 writes each repeat out, so nested repeats multiply. A group is counted when it closes.
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
    """Return the larger number of ``{3,5}``; RE2 accepts at most 1000."""
    return max(1, *(min(int(number[:4] or 1), 1000) for number in repeat[1:-1].split(",")))
