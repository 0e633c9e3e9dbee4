"""Every type in a public signature is public itself, so that users can annotate their code."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache, cached_property
from typing import TypeVar

import pytest

from tools.api_page import PUBLIC

OURS = ("checkpoint", "devicemanager", "podresources")
PACKAGES = [
    "devicemanager.plugin",
    "devicemanager.plugin.recording",
    "devicemanager.plugin.simulated",
    "devicemanager.plugin.typed",
    "devicemanager.testing",
    "devicemanager.testing.mock_podresources",
]
PENDING = {"devicemanager.io.clock.Clock"}
"""Types of other packages that are not public yet."""


@cache
def public_ids() -> frozenset[int]:
    packages = [importlib.import_module(name) for name in PUBLIC]
    return frozenset(id(getattr(each, name)) for each in packages for name in each.__all__)


@cache
def imports(module: str) -> dict[str, tuple[str, str]]:
    """Home of each imported name, also of those imported only for type checkers."""
    statements = ast.walk(ast.parse(inspect.getsource(sys.modules[module])))
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in statements
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def names(annotation: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if isinstance(node, ast.Name):
            yield node.id


def resolve(module: str, name: str) -> tuple[str, object] | None:
    """Return the full name and the object of a name in an annotation; None if it is not ours."""
    home, original = imports(module).get(name, (module, name))
    if home.partition(".")[0] not in OURS:
        return None
    found = getattr(importlib.import_module(home), original, None)
    if found is None or inspect.ismodule(found) or isinstance(found, TypeVar):
        return None
    return f"{home}.{original}", found


def annotations(value: object) -> Iterator[tuple[str, str]]:
    """Yield module and annotation of each parameter, result and field of a public object."""
    if inspect.isfunction(value):
        for name, annotation in value.__annotations__.items():
            if isinstance(annotation, str) and not name.startswith("_"):
                yield value.__module__, annotation
    elif inspect.isclass(value):
        for base in value.__mro__:
            if base.__module__.partition(".")[0] in OURS:
                for name, annotation in vars(base).get("__annotations__", {}).items():
                    if isinstance(annotation, str) and not name.startswith("_"):
                        yield base.__module__, annotation
                for name, member in vars(base).items():
                    if not name.startswith("_") or name in ("__init__", "__call__"):
                        yield from annotations(function_of(member))


def function_of(member: object) -> object:
    match member:
        case property():
            return member.fget
        case cached_property():
            return member.func
        case classmethod() | staticmethod():
            return member.__func__
    return inspect.unwrap(member) if callable(member) else member


@pytest.mark.parametrize("package", PACKAGES)
def test_types_in_public_signatures_are_public(package: str) -> None:
    module = importlib.import_module(package)
    hidden = set()
    for public_name in module.__all__:
        for home, annotation in annotations(getattr(module, public_name)):
            for name in names(annotation):
                found = resolve(home, name)
                if found is not None and id(found[1]) not in public_ids():
                    hidden.add(found[0])
    assert hidden - PENDING == set()
