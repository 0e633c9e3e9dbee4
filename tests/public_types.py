"""Which types occur in the public signatures of a package."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import typing
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

OURS = ("devicemanager", "checkpoint", "podresources")


def types_in_signatures(package: ModuleType) -> dict[type, str]:
    """Return this project's types in the signatures of public names, with one such name."""
    found: dict[type, str] = {}
    for name in package.__all__:
        for hint in _hints(getattr(package, name)):
            for each in _types(hint):
                found.setdefault(each, f"{package.__name__}.{name}")
    return found


def _hints(value: Any) -> Iterator[Any]:
    """The annotations of a function, or of a class's public attributes and methods."""
    if inspect.isfunction(value):
        yield from _of(value).values()
    if not inspect.isclass(value):
        return
    for base in value.__mro__:
        if not _is_ours(base):
            continue
        yield from (hint for name, hint in _of(base).items() if not name.startswith("_"))
        for name, member in vars(base).items():
            if name.startswith("_") and name != "__init__":
                continue
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if inspect.isfunction(function):
                # attrs makes an argument ``x`` of a private attribute ``_x``: not public.
                private = {each for each in _of(base) if each.startswith("_")}
                yield from (
                    hint for each, hint in _of(function).items() if f"_{each}" not in private
                )


@cache
def _of(value: Any) -> dict[str, Any]:
    names = _imported_for_types(value.__module__)
    return typing.get_type_hints(value, localns=names) if value.__module__ in sys.modules else {}


@cache
def _imported_for_types(module: str) -> dict[str, Any]:
    """The names that a module imports only if TYPE_CHECKING, and its private classes."""
    names = dict(vars(sys.modules[module]))
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                if isinstance(statement, ast.ImportFrom) and statement.module:
                    source = importlib.import_module(statement.module)
                    for alias in statement.names:
                        names[alias.asname or alias.name] = getattr(source, alias.name)
    return names


def _types(hint: Any) -> Iterator[type]:
    for each in hint if isinstance(hint, list | tuple) else typing.get_args(hint):
        yield from _types(each)
    origin = typing.get_origin(hint) or hint
    if (inspect.isclass(origin) or isinstance(origin, typing.NewType)) and _is_ours(origin):
        yield origin


def _is_ours(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in OURS
