"""Hardware that this machine lacks: a warning, unless the caller declares what there is."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from devicemanager.cli import main
from devicemanager.conformance import (
    CheckError,
    Hardware,
    Outcome,
    PluginUnderTest,
    run,
    select,
)
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.settings import Settings
from devicemanager.testing.hardware import FakeSysfs
from tests.conformance.matrix import RESOURCE, limits, plugin

_NODE = 63
"""NUMA node of the devices."""


def _outcomes(hardware: Hardware, *ids: str) -> dict[str, Outcome]:
    """Return the outcomes of checks for a plugin whose hardware is not on this machine."""
    checked = attrs.evolve(
        plugin("numa-unknown", "no-device", "no-mount", "cdi"),
        resources=(RESOURCE,),
        hardware=hardware,
    )
    settings = Settings(durability="process")
    report = run(checked, select(ids), limits=limits(), settings=settings)
    return {each.check.id: each.outcome for each in report.verdicts}


def _directory(path: Path, *files: str) -> Path:
    path.mkdir()
    for name in files:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("")
    return path


def test_hardware_that_is_not_declared_is_only_a_warning() -> None:
    assert _outcomes(Hardware(), "T01", "A11", "A12", "A14") == {
        "T01": Outcome.WARN,
        "A11": Outcome.WARN,
        "A12": Outcome.WARN,
        "A14": Outcome.PASS,
    }


def test_declared_hardware_passes(tmp_path: Path) -> None:
    names = [f"device-{number}" for number in range(4)]
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "vendor.example.com/class",
        "devices": [{"name": name, "containerEdits": {"env": ["A=1"]}} for name in names],
    }
    hardware = Hardware(
        dev=_directory(tmp_path / "dev", *(f"mock/{name}" for name in names)),
        sys=FakeSysfs(tmp_path / "sys", NumaTopology.of([0, _NODE])).directory,
        cdi=_directory(tmp_path / "cdi"),
    )
    (tmp_path / "cdi" / "vendor.json").write_text(json.dumps(spec))
    assert set(_outcomes(hardware, "T01", "A11", "A14").values()) == {Outcome.PASS}


def test_plugin_is_judged_by_declared_hardware(tmp_path: Path) -> None:
    hardware = Hardware(
        numa=NumaTopology.of([0]),
        dev=_directory(tmp_path / "dev"),
        cdi=_directory(tmp_path / "cdi"),
    )
    assert _outcomes(hardware, "T01", "A11", "A14") == {
        "T01": Outcome.FAIL,
        "A11": Outcome.FAIL,
        "A14": Outcome.WARN,
    }


def test_t01_expects_declared_nodes() -> None:
    [t01] = select(["T01"])
    assert "--numa" in t01.expects and "--sys" in t01.expects


def test_missing_directory_is_an_error() -> None:
    with pytest.raises(CheckError, match="/nowhere is not a directory"):
        Hardware(dev=Path("/nowhere"))


def test_sysfs_without_nodes_is_an_error_before_the_plugin_starts(tmp_path: Path) -> None:
    """The nodes of this machine are not used: they have nothing to do with the directory."""
    sys = _directory(tmp_path / "sys")
    error = (
        r"^--sys: cannot read /.*/devices/system/node/online: No such file or directory: write "
        r"NUMA nodes such as 0-1 into this file, or use --numa 0,1 "
        r"\(if the program is a DRA driver, use --driver\)$"
    )
    hardware = Hardware(sys=sys)
    started = tmp_path / "started"
    checked = PluginUnderTest(command=["touch", str(started)], hardware=hardware)
    for call in (
        hardware.check,
        hardware.numa_nodes,
        lambda: run(checked, select(["R01"]), limits=limits()),
    ):
        with pytest.raises(CheckError, match=error):
            call()
    assert not started.exists()


def test_declared_nodes_replace_those_of_sysfs(tmp_path: Path) -> None:
    hardware = Hardware(numa=NumaTopology.of([5]), sys=tmp_path)
    hardware.check()
    assert hardware.declares_numa and hardware.numa_nodes() == {5}


def test_command_repeats_the_declaration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--numa", "0,1", "--dev", str(tmp_path), "--resource", RESOURCE]
    limit = ["--limit", "start_seconds=0.2"]
    assert main(["check", "--only", "R01", "-o", "json", *options, *limit, "--", "true"]) == 1
    [verdict] = json.loads(capsys.readouterr().out)["checks"]
    assert f"--numa 0,1 --dev {tmp_path} " in verdict["reproduce"]


@pytest.mark.parametrize(
    ("options", "file", "text"),
    [
        (["--dev", "dev"], "", "--dev: dev is not a directory: create it with the files"),
        (
            ["--sys", "sys"],
            "sys/card",
            "/sys/devices/system/node/online: No such file or directory: write NUMA nodes such as "
            "0-1 into this file, or use --numa 0,1",
        ),
        (["--sys", "sys"], "sys/devices/system/node/online", "node/online: invalid `text`: expect"),
        (["--cdi", "cdi"], "cdi/vendor.json", "correct this file or remove it"),
    ],
)
def test_invalid_declaration_is_rejected_before_the_plugin_starts(
    options: list[str],
    file: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if file:
        Path(file).parent.mkdir(parents=True)
        Path(file).write_text("text")
    assert main(["check", *options, "--", "touch", "started"]) == 2
    line = capsys.readouterr().err
    assert text in line and line.count("\n") == 1 and options[0] in line
    assert not Path("started").exists()


def test_list_of_online_nodes_declares_them(tmp_path: Path) -> None:
    """A directory made by hand needs no other file."""
    online = tmp_path / "devices/system/node/online"
    online.parent.mkdir(parents=True)
    online.write_text("0,3-4\n")
    hardware = Hardware(sys=tmp_path)
    hardware.check()
    assert hardware.declares_numa and hardware.numa_nodes() == {0, 3, 4}
