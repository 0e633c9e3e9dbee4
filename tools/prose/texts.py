"""Extract the sentences of a file: of a page, or of the strings, comments and test names of a
module."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

__all__ = ["texts"]

_FENCE = re.compile(r"^\s*(```|~~~)")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file with their line numbers. Raises SyntaxError for a module that
    cannot be parsed."""
    source = path.read_text()
    return _of_module(source) if path.suffix == ".py" else _of_page(source)


def _of_page(source: str) -> Iterator[tuple[int, str]]:
    # Skip fenced blocks: they quote the output of programs, whose texts are checked themselves.
    fenced = False
    for number, line in enumerate(source.splitlines(), start=1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def _of_module(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
        elif _is_test(node):
            yield node.lineno, node.name.replace("_", " ")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _is_test(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
        "test_"
    )
