"""Names that a package loads at first use."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

from devicemanager.io.lazy import lazy_names
from tests.paths import ROOT


def test_lazy_names_are_loaded_from_modules_below_and_beside_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = ModuleType("lazy_example")
    below, beside = ModuleType("lazy_example.below"), ModuleType("lazy_example.beside")
    inner = ModuleType("lazy_example.inner")
    below.__dict__["one"], beside.__dict__["two"] = 1, 2
    for module in (package, below, beside, inner):
        module.__path__ = []  # a package
        monkeypatch.setitem(sys.modules, module.__name__, module)
    package.__getattr__, package.__dir__ = lazy_names("lazy_example", {"one": "below"})
    inner.__getattr__, inner.__dir__ = lazy_names("lazy_example.inner", {"two": ".beside"})
    assert "one" not in vars(package)
    assert {"one", "__path__"} <= set(dir(package))
    assert (package.one, inner.two) == (1, 2)
    assert (vars(package)["one"], vars(inner)["two"]) == (1, 2)
    assert dir(package) == sorted(vars(package))
    with pytest.raises(AttributeError, match=r"^module 'lazy_example' has no attribute 'two'$"):
        _ = package.two


def lazy_names_of(path: Path) -> set[str]:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return {
        ast.literal_eval(key)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "lazy_names"
        for key in getattr(call.args[1], "keys", ())
    }


@pytest.mark.parametrize("top", ["devicemanager", "checkpoint", "podresources"])
def test_no_lazy_name_is_also_a_module_of_its_package(top: str) -> None:
    """The import of the module would hide the name."""
    clashes = [
        f"{path.parent}: {name}"
        for path in (ROOT / top).rglob("__init__.py")
        for name in lazy_names_of(path)
        if (path.parent / f"{name}.py").exists() or (path.parent / name).is_dir()
    ]
    assert clashes == []
