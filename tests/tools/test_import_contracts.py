"""`make lint` reports each broken rule of the architecture."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.once import once
from tests.paths import ROOT

PACKAGES = ("devicemanager", "checkpoint", "podresources", "protos", "tools")
ROOMS: dict[str, dict[str, object]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "rooms"
]
FORBIDDEN = ("devicemanager.cli.options", "devicemanager.conformance.limits", "devicemanager")
"""Every room may import at most two of these."""


def copy_of_the_project(directory: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", directory)
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return directory


def module_of(project: Path, room: str) -> Path:
    top = project if (project / room.partition(".")[0]).is_dir() else project / "devicemanager"
    path = top / room.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


def lint(project: Path) -> str:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=project,
        env={"PYTHONPATH": str(project), "PATH": "/usr/bin:/bin", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def violations(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What lint prints of a copy in which each rule is broken once."""
    return once(
        tmp_path_factory,
        "import-violations",
        lambda: lint_broken(tmp_path_factory.mktemp("project")),
    )


def lint_broken(directory: Path) -> str:
    project = copy_of_the_project(directory)
    for room in ROOMS:
        append(module_of(project, room), f"import {forbidden(room)}")
    inside = project / "devicemanager"
    append(inside / "faults/registry.py", "import grpc")
    append(inside / "observe/view/pods.py", "import socket")
    append(inside / "kubelet/inmemory/kubelet.py", "import subprocess")
    append(inside / "core/bitset.py", "import threading")
    append(inside / "core/devices.py", "import urllib3")
    append(inside / "core/errors.py", "import devicemanager.core.allocation.pod")
    append(inside / "events/calls/log.py", "from importlib import import_module")
    append(inside / "events/calls/log.py", "import_module('grpc')")
    append(inside / "events/calls/file.py", "__import__('grpc')")
    append(inside / "kubelet/mock.py", "def old(settings): return settings.kubelet_version < 30")
    append(inside / "kubelet/direct.py", "def new(settings): return settings.v == '1.36'")
    append(inside / "stray.py", "")
    return lint(project)


def forbidden(room: str) -> str:
    allowed = ROOMS[room]["imports"]
    assert isinstance(allowed, list)
    own = {"cli": FORBIDDEN[0], "conformance": FORBIDDEN[1]}
    return next(
        name
        for name in FORBIDDEN
        if name != own.get(room)
        and not (room == "devicemanager" == name)
        and not any(name.startswith(f"devicemanager.{each}.") for each in allowed)
    )


@pytest.mark.parametrize("room", ROOMS)
def test_import_that_is_not_on_the_line(violations: str, room: str) -> None:
    name = module_of(ROOT, room).relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    importer = name.removesuffix(".__init__")
    assert f"- {importer} imports {forbidden(room)}: room" in violations


@pytest.mark.parametrize(
    "line",
    [
        "devicemanager.faults.registry uses grpc",
        "devicemanager.observe.view.pods uses socket",
        "devicemanager.kubelet.inmemory.kubelet uses subprocess",
        "devicemanager.core.bitset uses threading",
        "devicemanager.stray is in no room",
    ],
)
def test_rule_of_the_table(violations: str, line: str) -> None:
    assert f"- {line}" in violations


@pytest.mark.parametrize("module", ["log", "file"])
def test_import_by_name(violations: str, module: str) -> None:
    assert any(
        line.startswith(f"- devicemanager.events.calls.{module}:") and "import by name" in line
        for line in violations.splitlines()
    )


@pytest.mark.parametrize("module", ["mock", "direct"])
def test_comparison_of_versions(violations: str, module: str) -> None:
    assert any(
        line.startswith(f"- devicemanager.kubelet.{module}:") and "comparison of versions" in line
        for line in violations.splitlines()
    )


@pytest.mark.parametrize(
    "contract",
    [
        "the wings stand in layers",
        "packages import in one direction",
        "few modules use the API server's client",
    ],
)
def test_other_contract(violations: str, contract: str) -> None:
    assert f"{contract} BROKEN" in violations


EDITS = {
    "\npodresources = {": "\nghost = { imports = [] }\npodresources = {",
    'imports = ["core.api"]': 'imports = ["core.api", "core.versions"]',
    '    "checkpoint",\n': '    "checkpoint",\n    "checkpoint.fnv",\n',
}


def test_table_that_does_not_match_the_code(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    table = project / "pyproject.toml"
    text = table.read_text()
    for before, after in EDITS.items():
        assert before in text
        text = text.replace(before, after)
    table.write_text(text)
    found = lint(project)
    assert "- room devicemanager.ghost does not exist" in found
    assert "does not use its permission to import devicemanager.core.versions" in found
    assert "- checkpoint.fnv imports nothing by name" in found
