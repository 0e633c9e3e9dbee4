"""Compile a CEL expression into a program, and estimate the cost of the program.

The steps: parse the text, expand macros, check types, plan the program, estimate its cost.

In:  the text of an expression; a ``Setting``: the variables, functions and rules that apply to it.
Out: a ``Compiled`` expression. Errors: Fault for an expression that Kubernetes rejects, and
     NotSupported for one that this package cannot compile.
"""

from __future__ import annotations

import math
import re

import attrs

from devicemanager.claims.cel import (
    checker,
    estimate,
    macros,
    parsing,
    planning,
    running,
    validating,
)
from devicemanager.claims.cel.parsing import Issue, SyntaxFault, render
from devicemanager.claims.cel.reading import Setting
from devicemanager.claims.cel.syntax import Const, Node, walk


class Fault(Exception):
    """Error for an expression that Kubernetes rejects, with Kubernetes' message."""


@attrs.frozen(eq=False)
class Compiled:
    """Result of a compilation: the checked syntax tree, the program and the estimated cost."""

    root: Node
    program: running.Program
    estimated_cost: int


def compile_expression(text: str, setting: Setting) -> Compiled:
    """Compile an expression.

    Raises Fault if Kubernetes rejects the expression, NotSupported if this package does not support
    the expression, and ClaimsUnavailable if the CEL libraries are not installed.
    """
    try:
        root = _parse(text, setting)
    except SyntaxFault as fault:
        raise Fault(f"compilation failed: {fault.text}") from None
    issues = checker.check(root, setting.environment)
    issues = issues or validating.validate(root, setting.allows_mixed)
    if issues:
        raise Fault(f"compilation failed: {render(issues, text)}")
    if setting.results is not None and root.type not in setting.results:
        raise Fault(f"must evaluate to {setting.expected}, not {root.type.full_name}")
    try:
        program = planning.plan(root, setting.environment.variables, setting.dialect)
    except planning.PlanFault as fault:
        raise Fault(f"program instantiation failed: {fault}") from None
    cost = estimate.estimate(root, setting.sizes, setting.dialect.is_1_37)
    return Compiled(root, program, cost)


def _parse(text: str, setting: Setting) -> Node:
    root = macros.expand(parsing.parse(text), text)
    if not setting.allows_back_quotes and (found := _back_quote(text)) is not None:
        raise SyntaxFault(render([Issue(found, "unsupported syntax: '`'")], text))
    for node in walk(root):
        if isinstance(node, Const) and isinstance(node.value, float) and math.isinf(node.value):
            raise SyntaxFault(render([Issue(node.position, "invalid double literal")], text))
    return root


_TOKEN = re.compile(
    r"//[^\n]*|[bB]?[rR](?:\"\"\".*?\"\"\"|'''.*?'''|\"[^\"]*\"|'[^']*')"
    r"|\"\"\"(?:\\.|.)*?\"\"\"|'''(?:\\.|.)*?'''|\"(?:\\.|[^\"])*\"|'(?:\\.|[^'])*'|(`)",
    re.DOTALL,
)


def _back_quote(text: str) -> int | None:
    """Return the offset of the first field name in back quotes; None if there is none.

    Kubernetes 1.36 does not accept such names.
    """
    return next((match.start() for match in _TOKEN.finditer(text) if match[1]), None)
