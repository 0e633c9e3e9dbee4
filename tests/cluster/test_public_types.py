"""Every type of this wing in a public signature is public itself, in one place."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import devicemanager.cluster
from devicemanager.cluster import fake_apiserver

PACKAGES = (devicemanager.cluster, fake_apiserver)
MADE_BY_METHODS = {"Cluster", "ClusterNode", "NodeFaults"}
"""Classes that users do not construct: their ``__init__`` is not public."""


def defined_names() -> set[str]:
    """Names that the modules of the wing define."""
    found = set()
    for each in pkgutil.walk_packages(devicemanager.cluster.__path__, "devicemanager.cluster."):
        module = importlib.import_module(each.name)
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def annotations(value: type):
    """Yield the annotations of a class's public members, as text, with the member's name."""
    for name, member in vars(value).items():
        if name.startswith("_") and name != "__init__":
            continue
        if name == "__init__" and value.__name__ in MADE_BY_METHODS:
            continue
        function = member.fget if isinstance(member, property) else inspect.unwrap(member)
        function = getattr(function, "__func__", function)
        for annotation in getattr(function, "__annotations__", {}).values():
            yield name, str(annotation)
    for name, annotation in vars(value).get("__annotations__", {}).items():
        if not name.startswith("_"):
            yield name, str(annotation)


def names(annotation: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_types_in_public_signatures_are_public(package) -> None:
    public = {name for each in PACKAGES for name in each.__all__}
    ours = defined_names()
    for name in package.__all__:
        value = getattr(package, name)
        if not inspect.isclass(value) or not value.__module__.startswith("devicemanager.cluster"):
            continue
        for member, annotation in annotations(value):
            hidden = (names(annotation) & ours) - public
            assert not hidden, f"{name}.{member}: {annotation}"


def test_each_public_name_is_in_one_package() -> None:
    first, second = (set(package.__all__) for package in PACKAGES)
    assert not first & second


def test_cluster_is_imported_without_the_api_client() -> None:
    """``kubernetes`` takes a fifth of a second, and most of the memory of a process."""
    code = "import sys; from devicemanager.cluster import Cluster; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    loaded = output.stdout.decode().split()
    assert "devicemanager.cluster.cluster" in loaded
    assert not {"kubernetes", "urllib3"} & set(loaded)
