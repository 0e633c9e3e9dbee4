"""Find the types in the signatures of public functions and classes."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import typing
from collections.abc import Iterator
from typing import Any

OURS = ("devicemanager", "checkpoint", "podresources", "protos")
_SPECIAL = ("__init__", "__call__", "__enter__", "__getitem__", "__iter__", "__next__")


def is_ours(thing: Any) -> bool:
    """True if a class or type is defined in one of the installed packages."""
    return (getattr(thing, "__module__", None) or "").partition(".")[0] in OURS


@functools.cache
def _namespace(module: str) -> dict[str, Any]:
    """Return the names of a module, including those imported only for type checkers."""
    found = importlib.import_module(module)
    names = {**vars(typing), **vars(found)}
    for node in ast.parse(inspect.getsource(found)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            exec(compile(ast.Module(node.body, []), module, "exec"), names)
    return names


def types_in(hint: Any) -> Iterator[Any]:
    """Return the classes and NewTypes in an annotation."""
    if isinstance(hint, (type, typing.NewType)) and not typing.get_args(hint):
        yield hint
    elif isinstance(hint, typing.TypeVar):
        yield from types_in(hint.__bound__)
    elif isinstance(hint, (list, tuple)):  # the parameters of a Callable
        for each in hint:
            yield from types_in(each)
    else:
        yield from types_in(typing.get_args(hint)) if typing.get_args(hint) else ()
        if isinstance(typing.get_origin(hint), type):
            yield typing.get_origin(hint)


def _hints(thing: Any, module: str, scope: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, hint in inspect.get_annotations(thing).items():
        if not name.startswith("_"):
            if isinstance(hint, str):
                hint = eval(hint, _namespace(module), scope)
            yield name, hint


def _is_generated(function: Any) -> bool:
    """Return True for a method that attrs has generated from attributes."""
    return bool(function.__code__.co_filename.startswith("<attrs generated"))


def _is_internal(thing: Any) -> bool:
    """True if a docstring declares that this is not for users."""
    return (inspect.getdoc(thing) or "").startswith("Internal: ")


def signature_types(where: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """Return place and type of all types in a function's signature, or in those of a class's
    public members, including inherited ones."""
    if inspect.isclass(thing):
        for base in filter(is_ours, thing.__mro__):
            yield from _of_class(where, base)
    elif inspect.isfunction(thing):
        for name, hint in _hints(thing, thing.__module__, {}):
            yield from ((f"{where}({name})", each) for each in types_in(hint))


def _of_class(where: str, owner: type) -> Iterator[tuple[str, Any]]:
    scope = dict(vars(owner))
    for name, hint in _hints(owner, owner.__module__, scope):
        yield from ((f"{where}.{name}", each) for each in types_in(hint))
    for name, member in scope.items():
        if name.startswith("_") and name not in _SPECIAL:
            continue
        if isinstance(member, property):
            member = member.fget
        elif isinstance(member, functools.cached_property):
            member = member.func
        elif isinstance(member, (classmethod, staticmethod)):
            member = member.__func__
        if inspect.isfunction(member) and not _is_generated(member) and not _is_internal(member):
            for parameter, hint in _hints(member, member.__module__, scope):
                place = f"{where}.{name}({parameter})"
                yield from ((place, each) for each in types_in(hint))
