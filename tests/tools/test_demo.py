"""``make demo`` and its processes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devicemanager.cli.options import CommandError
from tools.demo import acts, story
from tools.demo.__main__ import main
from tools.demo.processes import Process

DEADLINE = 90


def test_demo_passes_and_removes_its_directory() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.demo", "--no-go"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("== ")] == [
        "== A mock kubelet in a separate process",
        "== Plugins register and advertise their devices",
        "== Pods from examples/ are admitted, or rejected",
        "== Node agents use PodResources over gRPC",
        "== The kubelet is killed with SIGKILL and restarted",
        "== A manifest is removed: its pod ends and frees its devices",
        "== Another kubelet aligns devices to NUMA nodes, or explains why it cannot",
        "== Structured claims: partitions of a GPU, a rejection, a NIC that pods share",
        "== A DRA driver prepares the claims of pods; one pod waits for its driver",
        "== Everything stops at SIGTERM",
    ]
    assert "no-driver: DRA driver nic.example.com is not registered" in done.stdout
    assert "pod default/torn is rejected, TopologyAffinityError" in done.stdout
    assert acts.NOT_ALIGNED in done.stdout
    checks = [line for line in lines if line.startswith("  checked: ")]
    assert lines[-1] == f"All {len(checks)} checks passed."
    found = re.search(r"process \d+, in (\S+)", done.stdout)
    assert found is not None
    assert not Path(found[1]).exists()


def test_failed_check_ends_the_demo_and_keeps_the_logs(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(story, "_allocated", lambda _: {})
    assert main(["--no-go"]) == 1
    out, err = capsys.readouterr()
    assert "checks passed" not in out
    found = re.fullmatch(
        r"demo: error: check failed: it lists the devices that were "
        r"allocated; the logs are in (\S+)\n",
        err,
    )
    assert found is not None
    assert (Path(found[1]) / "kubelet.log").exists()
    shutil.rmtree(found[1])


def test_demo_has_all_examples() -> None:
    assert len(list(story.EXAMPLES.glob("*.yaml"))) == 4
    assert len(list(story.EXAMPLES.glob("numa/*.yaml"))) == 3


# --- processes


def python(tmp_path: Path, code: str) -> Process:
    return Process("the program", [sys.executable, "-c", code], tmp_path / "log")


def test_wait_for_finds_past_and_future_lines(tmp_path: Path) -> None:
    code = "print('{\"kind\": \"a\"}'); print('plain', flush=True); input()"
    with python(tmp_path, code) as process:
        assert process.wait_for("plain", lambda r: r.get("text") == "plain", DEADLINE)
        assert process.wait_for("a", lambda r: r.get("kind") == "a", 0) == {"kind": "a"}


def test_wait_for_fails_at_once_if_the_program_exits(tmp_path: Path) -> None:
    code = "import sys; print('so far', flush=True); sys.exit('no luck')"
    with (
        python(tmp_path, code) as process,
        pytest.raises(CommandError, match=r"the program did not print x: so far \| no luck$"),
    ):
        process.wait_for("x", lambda _: False, DEADLINE)


def test_wait_for_reports_missing_output(tmp_path: Path) -> None:
    with (
        python(tmp_path, "input()") as process,
        pytest.raises(CommandError, match="did not print x: no output"),
    ):
        process.wait_for("x", lambda _: False, 0)


def test_stop_kills_a_program_that_ignores_sigterm(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tools.demo.processes._STOP_TIMEOUT", 0.2)
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up', flush=True); signal.pause()"
    )
    with python(tmp_path, code) as process:
        process.wait_for("up", lambda r: r.get("text") == "up", DEADLINE)
        assert process.stop() == -9
