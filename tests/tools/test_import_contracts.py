"""The import contracts: each of them can be broken, and then `make lint` says so."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.paths import ROOT

PACKAGES = ("devicemanager", "checkpoint", "podresources", "protos", "tools")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
ONLY = [contract for contract in CONTRACTS if contract["type"] == "only"]
EVERYTHING = "devicemanager"
"""Who may import this may import all of it."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which every contract is broken, each in a module of its own room."""
    copy = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for contract in ONLY:
        append(module_of(copy, contract["room"]), f"import {forbidden(contract)}")
    append(copy / "devicemanager/core/bitset.py", "import threading")
    append(copy / "checkpoint/fnv.py", "import grpc")
    append(copy / "devicemanager/core/devices.py", "import urllib3")
    append(copy / "devicemanager/core/errors.py", "import devicemanager.core.allocation.pod")
    append(copy / "devicemanager/stray.py", "")
    return copy


def forbidden(contract: dict[str, list[str]]) -> str:
    """A module that the room may not import; one it may, where it may import everything."""
    wanted = ["devicemanager.cli.options", "devicemanager.testing.manifest", "checkpoint.fnv"]
    allowed = contract["may_import"]
    return next(
        name
        for name in wanted
        if not any(name.startswith(f"{each}.") for each in (*allowed, contract["room"]))
        or EVERYTHING in allowed
    )


def module_of(project: Path, room: str) -> Path:
    path = project / room.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


@pytest.fixture(scope="module")
def verdicts(project: Path) -> dict[str, str]:
    """KEPT or BROKEN by the contract's name."""
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint, "--no-logo", "--no-cache"],
        cwd=project,
        env={"PYTHONPATH": str(project), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    return dict(re.findall(r"^(.+) (KEPT|BROKEN)", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("name", [contract["name"] for contract in CONTRACTS])
def test_a_contract_can_be_broken(verdicts: dict[str, str], name: str) -> None:
    broad = [each["name"] for each in ONLY if EVERYTHING in each["may_import"]]
    assert verdicts[name] == ("KEPT" if name in broad else "BROKEN")


def test_few_rooms_may_import_everything() -> None:
    rooms = {each["room"] for each in ONLY if EVERYTHING in each["may_import"]}
    assert rooms <= {"devicemanager.cli", "devicemanager.testing"}
