"""How modules find the packages of this distribution while a project hides one of them."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import devicemanager
import protos
from devicemanager.io import own_packages
from devicemanager.io.own_packages import _Finder, _import, _Loader, install, loaded

OURS = Path(protos.__file__)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a package ``protos``, as if ours were not loaded."""
    path = tmp_path / "protos" / "__init__.py"
    path.parent.mkdir()
    path.touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "protos")
    return path


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is passed to Python's own import."""
    calls: list[tuple[Any, ...]] = []
    record = SimpleNamespace(__import__=lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(own_packages, "builtins", record)
    return calls


def test_nothing_is_found_if_nothing_is_hidden() -> None:
    for name in ("protos", "devicemanager", "_devicemanager_protos", "json"):
        assert _Finder().find_spec(name) is None
    assert [own_packages._hidden_by(name) for name in own_packages.NAMES] == [None] * 3
    assert own_packages.NAMES == ("checkpoint", "podresources", "protos")


def test_hidden_package_is_found_by_its_prefixed_name(project: Path) -> None:
    assert own_packages._hidden_by("protos") == str(project)
    assert own_packages._hidden_by("checkpoint") is None
    spec = _Finder().find_spec("_devicemanager_protos")
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).resolve() == OURS.resolve()
    assert (spec.name, type(spec.loader)) == ("_devicemanager_protos", _Loader)
    assert spec.loader.name == "_devicemanager_protos"
    below = _Finder().find_spec("_devicemanager_protos.podresources_v1", [str(OURS.parent)])
    assert below is not None and below.name == "_devicemanager_protos.podresources_v1"
    assert type(below.loader) is _Loader


def test_our_modules_get_another_loader_while_a_package_is_hidden(project: Path) -> None:
    spec = _Finder().find_spec("devicemanager.errors_example", devicemanager.__path__)
    assert spec is None
    spec = _Finder().find_spec("devicemanager.io", devicemanager.__path__)
    assert spec is not None and (spec.name, type(spec.loader)) == ("devicemanager.io", _Loader)
    # The project's own package, and packages of others, stay with Python.
    assert _Finder().find_spec("protos") is None
    assert _Finder().find_spec("json") is None
    assert _Finder().find_spec("_devicemanager_json") is None


def test_imports_of_hidden_names_get_the_prefix(
    project: Path, imported: list[tuple[Any, ...]]
) -> None:
    _import("protos.x", {}, None, ("a",))
    _import("protos", fromlist=None)
    _import("checkpoint")
    _import("json.decoder")
    _import("protos", level=1)
    assert imported == [
        ("_devicemanager_protos.x", {}, None, ("a",), 0),
        ("_devicemanager_protos", None, None, (), 0),
        ("checkpoint", None, None, (), 0),
        ("json.decoder", None, None, (), 0),
        ("protos", None, None, (), 1),
    ]


def test_missing_package_of_ours_is_an_error(
    project: Path, imported: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_packages, "_DIRECTORY", str(project.parent / "nowhere"))
    with pytest.raises(ImportError) as raised:
        _import("protos")
    assert str(raised.value) == (
        f"{project} hides the package protos that comes with devicemanager: rename {project}, or "
        "move it into a package"
    )
    assert imported == []


def test_hidden_package_that_is_loaded_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = ModuleType("ours"), ModuleType("other")
    monkeypatch.setitem(sys.modules, "protos.example", other)
    assert loaded("protos.example") is other
    monkeypatch.setitem(sys.modules, "_devicemanager_protos.example", ours)
    assert loaded("protos.example") is ours
    assert loaded("protos.absent") is None
    monkeypatch.setitem(sys.modules, "_devicemanager_protos", ours)
    assert own_packages._hidden_by("protos") == "protos"
    monkeypatch.delitem(sys.modules, "_devicemanager_protos")
    monkeypatch.setitem(sys.modules, "protos", other)  # a namespace package has no file
    assert own_packages._hidden_by("protos") is None


def test_loader_gives_a_module_its_own_import(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("answer = len('abc')")
    module = ModuleType("m")
    _Loader("m", str(tmp_path / "m.py")).exec_module(module)
    assert module.answer == 3
    assert vars(module)["__builtins__"]["__import__"] is _import
    assert vars(builtins)["__import__"] is not _import


def test_install_adds_one_finder_before_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [each for each in sys.meta_path if not isinstance(each, _Finder)]
    monkeypatch.setattr(sys, "meta_path", others[:])
    install()
    install()
    assert isinstance(sys.meta_path[0], _Finder)
    assert sys.meta_path[1:] == others
