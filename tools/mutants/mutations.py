"""Find the mutants of a module. Each mutant is one small change of its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import attrs

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_SWAPPED: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}
_SPOIL = "XX"
_LOGGERS = frozenset({"_log", "_LOG", "logger", "_logger"})


@attrs.frozen
class Mutant:
    """Small change of a source file: the text from ``start`` to ``end`` is replaced by ``new``.

    ``where`` is the enclosing function or class. ``first`` and ``last`` are the first and the last
    line of the statement. ``at_import`` is true if it is outside of functions.
    """

    file: str
    where: str
    line: int
    first: int
    last: int
    start: int
    end: int
    old: str
    new: str
    at_import: bool

    def applied_to(self, source: str) -> str:
        """Return the mutated source. Raises ValueError if ``source`` is not the source of the
        mutant."""
        if source[self.start : self.end] != self.old:
            raise ValueError(
                f"{self.file} has changed at line {self.line} since the mutant was found"
            )
        return source[: self.start] + self.new + source[self.end :]


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Return all mutants of one module, in the order of the source."""
    return sorted(_Finder(file, source).find(), key=lambda each: (each.start, each.end, each.new))


class _Finder:
    def __init__(self, file: str, source: str) -> None:
        self._file = file
        self._source = source
        # ast counts columns in UTF-8 bytes, not in characters.
        self._lines = [line.encode() for line in source.splitlines(keepends=True)]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line.decode()))

    def find(self) -> Iterator[Mutant]:
        for statement in ast.parse(self._source).body:
            yield from self._statement(statement, "", True)

    def _statement(self, node: ast.stmt, where: str, at_import: bool) -> Iterator[Mutant]:
        if _is_left_alone(node):
            return
        for old, new in _instead_of_statement(node):
            # Skip the first assignment of an attribute: without it, any use of the attribute fails,
            # which proves nothing.
            if not (where.endswith(".__init__") and isinstance(node, ast.Assign)):
                yield self._mutant(node, where, at_import, old, new)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}".lstrip(".")
        inside = at_import and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for part in _parts(node):
            if isinstance(part, ast.stmt):
                yield from self._statement(part, where, inside)
            elif isinstance(part, ast.expr):
                for old, new in _expressions(part):
                    yield self._mutant(node, where, at_import, old, new)

    def _mutant(
        self, statement: ast.stmt, where: str, at_import: bool, old: ast.AST, new: ast.AST
    ) -> Mutant:
        start, end = self._span(old)
        text = ast.unparse(new)
        if not isinstance(new, ast.stmt):
            text = f"({text})"
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
        line = self._source.count("\n", 0, start) + 1
        return Mutant(
            file=self._file,
            where=where or "(module)",
            line=line,
            first=min(line, statement.lineno),
            last=max(line, last),
            start=start,
            end=end,
            old=self._source[start:end],
            new=text,
            at_import=at_import,
        )

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(
            node.end_lineno, node.end_col_offset
        )

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1][:column].decode())


def _is_left_alone(node: ast.stmt) -> bool:
    """True for a statement whose change no test can or should notice.

    Such statements are docstrings, ``__all__``, type aliases, imports, and names for type checkers.
    """
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "NewType"))):
            return True
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _parts(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield the statements and expressions inside a statement, without annotations and
    decorators."""
    match node:
        case ast.ClassDef(bases=[ast.Name(id="Enum")], body=members):
            yield from map(_unlabelled, members)
            return
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "bases", "targets", "type_params"}:
            continue
        yield from _flattened(value)


def _unlabelled(member: ast.stmt) -> ast.stmt:
    """Remove the label of an enum member, as in ``RED = "label", 3``. The label only makes the
    member unique."""
    match member:
        case ast.Assign(value=ast.Tuple(elts=[ast.Constant(value=str()), *others]) as value):
            value.elts = others
    return member


def _flattened(value: object) -> Iterator[ast.AST]:
    match value:
        case list():
            for each in value:
                yield from _flattened(each)
        case ast.stmt() | ast.expr():
            yield value
        case ast.arguments():
            yield from _flattened([*value.defaults, *value.kw_defaults])
        case ast.keyword(arg="strict" | "repr" | "total"):
            # Arguments without effect on results: zip(strict=) states a fact, attrs' repr= is for
            # debuggers, and TypedDict's total= is for type checkers.
            return
        case ast.excepthandler() | ast.match_case() | ast.withitem() | ast.keyword():
            for name, inner in ast.iter_fields(value):
                if name not in {"type", "pattern"}:
                    yield from _flattened(inner)


def _instead_of_statement(node: ast.stmt) -> Iterator[tuple[ast.AST, ast.AST]]:
    match node:
        # Do not replace constants None and False: callers that only test for truth cannot
        # distinguish them.
        case ast.Return(value=ast.expr() as value) if not _is_constant(value, None, False):
            yield value, ast.Constant(None)
        case ast.Expr(value=ast.Call()) | ast.Delete() | ast.Raise() | ast.AugAssign():
            yield node, ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield node, ast.Pass()
        case ast.Continue():
            yield node, ast.Break()
        case ast.Break():
            yield node, ast.Continue()
    match node:
        case ast.AugAssign(op=op) if type(op) in _CALCULATED:
            other = _CALCULATED[type(op)]()
            yield node, ast.AugAssign(node.target, other, node.value)
        case ast.If(test=test) | ast.While(test=test) if _is_plain(test):
            yield test, ast.UnaryOp(ast.Not(), test)


def _expressions(node: ast.expr) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield the mutants of an expression and of the expressions inside it."""
    match node:
        # Skip f-strings: before Python 3.12, ast has no positions of the texts in them.
        case ast.JoinedStr():
            return
        case ast.Subscript(value=ast.Name(id="Literal")):
            return
        # Skip the type of cast() and the text of a log call: tests should not depend on either.
        case ast.Call(func=ast.Name(id="cast"), args=[_, operand]):
            yield from _expressions(operand)
            return
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=args) if name in _LOGGERS:
            for argument in args:
                if not isinstance(argument, ast.Constant):
                    yield from _expressions(argument)
            return
    yield from _instead_of_expression(node)
    for child in ast.iter_child_nodes(node):
        for part in _flattened(child) if not isinstance(child, ast.expr) else [child]:
            if isinstance(part, ast.expr):
                yield from _expressions(part)
        if isinstance(child, ast.comprehension):
            for part in (child.iter, *child.ifs):
                yield from _expressions(part)


def _instead_of_expression(node: ast.expr) -> Iterator[tuple[ast.AST, ast.AST]]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            for index, op in enumerate(ops):
                changed = [*ops[:index], _COMPARED[type(op)](), *ops[index + 1 :]]
                yield node, ast.Compare(left, changed, others)
        case ast.BoolOp(op=joined, values=values):
            yield node, ast.BoolOp(_SWAPPED[type(joined)](), values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _CALCULATED:
            yield node, ast.BinOp(left, _CALCULATED[type(op)](), right)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield node, operand
        case ast.IfExp(test=test) if _is_plain(test):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Constant(value=value):
            for other in _instead_of_constant(value):
                yield node, ast.Constant(other)


def _instead_of_constant(value: object) -> Iterator[bool | int | float | str | bytes]:
    match value:
        case bool():
            yield not value
        case int() | float():
            yield value + 1
        case str():
            yield _SPOIL + value
        case bytes():
            yield _SPOIL.encode() + value


def _is_plain(test: ast.expr) -> bool:
    """True if no other mutant inverts this condition."""
    return not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant)


def _is_constant(value: ast.expr, *constants: object) -> bool:
    return isinstance(value, ast.Constant) and any(value.value is each for each in constants)
