"""The wheel contains only the four packages and works without the source tree."""

import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.sessions import run_python

PACKAGES = {"devicemanager", "checkpoint", "podresources", "protos"}
HEAVY = ["google.protobuf", "grpc", "kubernetes", "rich", "watchdog", "yaml"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    # Without isolation, pip uses the installed build backend and needs no network.
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(directory), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = directory.iterdir()
    with zipfile.ZipFile(built) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = directory.iterdir()
    with tarfile.open(built) as archive:
        yield {
            name.partition("/")[2]: archive.extractfile(name).read()
            for name in archive.getnames()
            if archive.getmember(name).isfile()
        }


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    directory = tmp_path_factory.mktemp("installed")
    wheel.extractall(directory)
    return directory


def python(installed, code):
    """Run a new interpreter that finds the wheel's packages before this tree's."""
    arguments = ("-P", "-W", "error", "-c", code)
    done = run_python(*arguments, cwd=installed, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_wheel_contains_only_four_packages_and_metadata(wheel):
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert len(tops) == len(PACKAGES) + 1


def test_wheel_contains_every_file_of_packages(wheel):
    packed = {name for name in wheel.namelist() if name.partition("/")[0] in PACKAGES}
    here = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == here
    assert {f"{package}/py.typed" for package in PACKAGES} <= packed
    assert {"protos/deviceplugin_v1beta1.binpb", "protos/deviceplugin_v1beta1.proto"} <= packed


def test_metadata_has_licence_and_entry_points(wheel):
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    folder = metadata.removesuffix("METADATA")
    lines = wheel.read(metadata).decode().splitlines()
    assert {"Name: kubelet-devicemanager", "License-Expression: Apache-2.0"} <= set(lines)
    assert wheel.read(folder + "licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    points = ConfigParser()
    points.read_string(wheel.read(folder + "entry_points.txt").decode())
    assert dict(points["console_scripts"]) == {"devicemanager": "devicemanager.__main__:main"}
    assert dict(points["pytest11"]) == {"devicemanager": "devicemanager.testing.pytest_plugin"}


def test_sdist_contains_sources_of_wheel_and_tests(sdist, wheel):
    packed = {name for name in wheel.namelist() if name.partition("/")[0] in PACKAGES}
    assert {name: sdist.get(name) for name in packed} == {name: wheel.read(name) for name in packed}
    assert {"LICENSE", "Makefile", "README.md", "constraints/dev.txt"} <= set(sdist)
    assert "tests/test_packaging.py" in sdist
    assert not [name for name in sdist if name.startswith((".venv", ".cache", ".git/"))]


def test_tools_and_tests_are_not_in_wheel(wheel):
    assert {name.partition("/")[0] for name in wheel.namelist()}.isdisjoint({"tools", "tests"})


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_package_imports_from_wheel_without_warning(installed, package):
    found = python(installed, f"import {package}; print({package}.__file__)")
    assert Path(found) == installed / package / "__init__.py"


def test_messages_and_stubs_import_from_wheel(installed):
    code = (
        "from protos import deviceplugin_v1beta1 as dp, podresources_v1_grpc\n"
        "print(dp.Device(ID='gpu0').ID, dp.__file__)"
    )
    assert python(installed, code) == f"gpu0 {installed}/protos/deviceplugin_v1beta1.py"


def test_wheel_works_beside_modules_of_same_names(installed, tmp_path):
    for name in ["checkpoint", "podresources", "protos"]:
        (tmp_path / f"{name}.py").write_text("MINE = 1")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from devicemanager import MockKubelet\n"
        "with MockKubelet() as kubelet: kubelet.restart()\n"
        "import checkpoint, podresources, protos\n"
        "print(checkpoint.MINE, podresources.MINE, protos.MINE)"
    )
    assert python(installed, code) == "1 1 1"


def test_command_of_wheel_can_be_called(installed):
    assert python(installed, "from devicemanager.cli import main; print(callable(main))") == "True"


def test_pytest_plugin_imports_nothing_heavy(installed):
    code = (
        "import pytest, sys\n"
        "before = set(sys.modules)\n"
        "import devicemanager.testing.pytest_plugin\n"
        f"print(sorted(set({HEAVY}) & (set(sys.modules) - before)))"
    )
    assert python(installed, code) == "[]"
