"""Macros that Kubernetes enables and the CEL library lacks.

These are the macros with two variables, such as ``list.exists(i, v, v == i)``, and ``sortBy``.
The expansions are those of cel-go (ext/comprehensions.go and ext/lists.go, v0.26), because the
cost depends on them.
"""

from __future__ import annotations

from collections.abc import Callable

from devicemanager.claims.cel.parsing import Issue, SyntaxFault, render
from devicemanager.claims.cel.syntax import (
    ACCUMULATOR,
    ACCUMULATORS,
    Call,
    Const,
    Entry,
    Ident,
    ListLiteral,
    Loop,
    MapLiteral,
    Message,
    Node,
    Select,
)
from devicemanager.claims.cel.values import Value

SORT_INPUT = "@__sortBy_input__"
"""Name of the variable for the list to sort, in the expansion of ``sortBy``.

Users cannot write this name in an expression.
"""


class _Fault(Exception):
    def __init__(self, position: int, text: str) -> None:
        self.issue = Issue(position, text)
        super().__init__(text)


def expand(root: Node, text: str) -> Node:
    """Return a tree with the macros expanded. Raises SyntaxFault for a misused macro."""
    try:
        return _expand(root)
    except _Fault as fault:
        raise SyntaxFault(render([fault.issue], text)) from None


def _expand(node: Node) -> Node:
    match node:
        case Select():
            node.operand = _expand(node.operand)
        case ListLiteral():
            node.elements = [_expand(each) for each in node.elements]
        case MapLiteral():
            node.entries = [
                Entry(_expand(each.key), _expand(each.value), each.is_optional)
                for each in node.entries
            ]
        case Message():
            node.fields = [(at, name, _expand(value)) for at, name, value in node.fields]
        case Loop():
            for part in ("range", "init", "condition", "step", "result"):
                setattr(node, part, _expand(getattr(node, part)))
        case Call():
            return _expand_call(node)
    return node


def _expand_call(call: Call) -> Node:
    call.args = [_expand(each) for each in call.args]
    if call.target is None:
        return call
    call.target = _expand(call.target)
    macro = _MACROS.get((call.function, len(call.args)))
    return macro(call.target, call) if macro else call


class _Maker:
    """Create the nodes of one expansion, all at the position of the macro."""

    def __init__(self, position: int) -> None:
        self.position = position

    def const(self, value: Value) -> Node:
        return Const(position=self.position, value=value)

    def ident(self, name: str) -> Node:
        return Ident(position=self.position, name=name)

    def accu(self) -> Node:
        return self.ident(ACCUMULATOR)

    def call(self, function: str, *args: Node) -> Node:
        return Call(position=self.position, function=function, args=list(args))

    def list(self, *elements: Node) -> Node:
        return ListLiteral(position=self.position, elements=list(elements))


def _loop(
    make: _Maker,
    range_: Node,
    names: tuple[str, str],
    init: Node,
    condition: Node,
    step: Node,
    result: Node | None = None,
) -> Node:
    return Loop(
        position=make.position,
        var=names[0],
        var2=names[1],
        range=range_,
        accu=ACCUMULATOR,
        init=init,
        condition=condition,
        step=step,
        result=result or make.accu(),
    )


def _variable(node: Node) -> str:
    if not isinstance(node, Ident):
        raise _Fault(node.position, "argument must be a simple name")
    return node.name


def _variables(call: Call) -> tuple[str, str]:
    first, second = call.args[:2]
    names = _variable(first), _variable(second)
    if names[0] == names[1]:
        raise _Fault(second.position, f"duplicate variable name: {names[0]}")
    for name, node in zip(names, (first, second), strict=True):
        if name in ACCUMULATORS:
            raise _Fault(node.position, "iteration variable overwrites accumulator variable")
    return names


def _all(target: Node, call: Call) -> Node:
    make, names = _Maker(call.position), _variables(call)
    condition = make.call("@not_strictly_false", make.accu())
    step = make.call("_&&_", make.accu(), call.args[2])
    return _loop(make, target, names, make.const(True), condition, step)


def _exists(target: Node, call: Call) -> Node:
    make, names = _Maker(call.position), _variables(call)
    condition = make.call("@not_strictly_false", make.call("!_", make.accu()))
    step = make.call("_||_", make.accu(), call.args[2])
    return _loop(make, target, names, make.const(False), condition, step)


def _exists_one(target: Node, call: Call) -> Node:
    make, names = _Maker(call.position), _variables(call)
    counted = make.call("_+_", make.accu(), make.const(1))
    step = make.call("_?_:_", call.args[2], counted, make.accu())
    result = make.call("_==_", make.accu(), make.const(1))
    return _loop(make, target, names, make.const(0), make.const(True), step, result)


def _collect(
    target: Node, call: Call, start: Node, add: Callable[[_Maker, str, Node], Node]
) -> Node:
    make, names = _Maker(call.position), _variables(call)
    step = add(make, names[0], call.args[-1])
    if len(call.args) == 4:
        step = make.call("_?_:_", call.args[2], step, make.accu())
    return _loop(make, target, names, start, make.const(True), step)


def _transform_list(target: Node, call: Call) -> Node:
    def add(make: _Maker, _: str, value: Node) -> Node:
        return make.call("_+_", make.accu(), make.list(value))

    return _collect(target, call, ListLiteral(position=call.position, elements=[]), add)


def _transform_map(target: Node, call: Call) -> Node:
    def add(make: _Maker, key: str, value: Node) -> Node:
        return make.call("cel.@mapInsert", make.accu(), make.ident(key), value)

    return _collect(target, call, MapLiteral(position=call.position, entries=[]), add)


def _transform_map_entry(target: Node, call: Call) -> Node:
    def add(make: _Maker, _: str, value: Node) -> Node:
        return make.call("cel.@mapInsert", make.accu(), value)

    return _collect(target, call, MapLiteral(position=call.position, entries=[]), add)


def _sort_by(target: Node, call: Call) -> Node:
    make = _Maker(call.position)
    if not isinstance(target, ListLiteral | Select | Ident | Loop | Call):
        raise _Fault(
            target.position,
            "sortBy can only be applied to a list, identifier, comprehension, call or select"
            " expression",
        )
    if not isinstance(call.args[0], Ident):
        raise _Fault(call.args[0].position, "argument is not an identifier")
    step = make.call("_+_", make.accu(), make.list(call.args[1]))
    variable = call.args[0].name
    keys = _loop(make, make.ident(SORT_INPUT), (variable, ""), make.list(), make.const(True), step)
    result = Call(
        position=make.position,
        function="@sortByAssociatedKeys",
        target=make.ident(SORT_INPUT),
        args=[keys],
    )
    return Loop(
        position=make.position,
        var="#unused",
        var2="",
        range=make.list(),
        accu=SORT_INPUT,
        init=target,
        condition=make.const(False),
        step=make.ident(SORT_INPUT),
        result=result,
    )


_MACROS: dict[tuple[str, int], Callable[[Node, Call], Node]] = {
    ("all", 3): _all,
    ("exists", 3): _exists,
    ("existsOne", 3): _exists_one,
    ("exists_one", 3): _exists_one,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): _transform_map,
    ("transformMap", 4): _transform_map,
    ("transformMapEntry", 3): _transform_map_entry,
    ("transformMapEntry", 4): _transform_map_entry,
    ("sortBy", 2): _sort_by,
}
"""Macros by name and number of arguments."""
