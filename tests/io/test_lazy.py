"""Names that a package loads at first use."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from devicemanager.io.lazy import lazy_names


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
