"""``run --fault``, ``--faults``, ``--fault-seed`` and ``--chaos``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devicemanager.cli import _parser, main
from devicemanager.cli.fault_options import set_faults
from devicemanager.faults import chaos
from devicemanager.kubelet.mock import MockKubelet
from tests.cli.records import until_ready

RUN = [sys.executable, "-m", "devicemanager.cli", "run"]


def test_faults_and_chaos_are_set_by_flags(directory: Path) -> None:
    """The simulated plugin is rejected once and then registers."""
    command = [*RUN, "-o", "json", "--root", str(directory), "--simulate", "vendor.com/gpu=2"]
    faults = directory / "faults.yaml"
    faults.write_text("[reject-register:times=1]")
    command += [
        "--fault",
        "delay-call:seconds=0.01,times=1",
        "--faults",
        str(faults),
        "--chaos",
        "7",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        records = until_ready(process)
        process.terminate()
    kinds = [record["kind"] for record in records]
    fired = [record["details"]["fault_kind"] for record in records if record["kind"] == "fault"]
    assert fired == ["reject-register", "delay-call"]
    assert kinds.index("fault") < kinds.index("registration-rejected") < kinds.index("registered")
    picked = [record for record in records if record["kind"] == "chaos"]
    assert [record["fault"]["spec"] for record in picked] == list(map(str, chaos(7)))
    assert picked[0]["seed"] == 7
    assert picked[0]["message"] == f"chaos 7: {chaos(7)[0]}"


def seed_of(tmp_path: Path, *arguments: str) -> int:
    kubelet = MockKubelet(tmp_path / "r")
    set_faults(_parser(["run"]).parse_args(["run", *arguments]), kubelet)
    return kubelet.faults.seed


def test_seed_flag_overrides_the_seed_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("{seed: 5, faults: []}")
    assert seed_of(tmp_path) == 0
    assert seed_of(tmp_path, "--faults", str(path)) == 5
    assert seed_of(tmp_path, "--faults", str(path), "--fault-seed", "0") == 0
    assert seed_of(tmp_path, "--fault-seed", "3") == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fault", "nonsense"], "unknown fault 'nonsense': use one of reject-register, "),
        (["--fault", "restart"], "restart needs at=POINT, such as restart:at=registered"),
        (["--faults", "/none"], "/none: No such file"),
        (["--chaos", "x"], "invalid value 'x': expected a whole number of at least 0"),
        (["--fault-seed", "-1"], "invalid value '-1': expected a whole number of at least 0"),
    ],
)
def test_invalid_flag_is_a_one_line_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["run", *arguments]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_immediate_action_in_a_file_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("[away:seconds=3]")
    assert main(["run", "--root", str(tmp_path), "--faults", str(path)]) == 2
    assert f"{path}: away needs at=POINT" in capsys.readouterr().err


def test_binary_file_is_rejected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "faults"
    path.write_bytes(b"- restart\xff")
    assert main(["run", "--faults", str(path), "--root", str(tmp_path / "r")]) == 2
    said = f"devicemanager: error: {path}: not UTF-8 text (byte 9)\n"
    assert capsys.readouterr().err == said
