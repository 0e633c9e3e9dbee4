"""The command ``devicemanager check --client``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from devicemanager.cli import main
from tests.paths import ROOT

EXPORTER = str(ROOT / "tests/conformance/clients/exporter.py")
COMMAND = ["--", sys.executable, EXPORTER, "--socket", "{socket}"]
ENV = ["--env", f"PYTHONPATH={ROOT}"]


def test_a_client_is_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    places = {form: tmp_path / form for form in ("json", "junit", "markdown")}
    reports = [word for form, path in places.items() for word in ("--report", f"{form}={path}")]
    assert main(["check", "--client", "--only", "C01", *ENV, *reports, *COMMAND]) == 0
    assert "C01  pass    MUST    queries PodResources" in capsys.readouterr().out
    data = json.loads(places["json"].read_text())
    assert data["schema"] == "devicemanager.check-client/v1"
    assert [each["id"] for each in data["checks"]] == ["C01"]
    assert 'tests="1"' in places["junit"].read_text()
    assert "| C01 queries PodResources periodically | pass |" in places["markdown"].read_text()


def test_a_failure_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "--client", "--only", "C05", *ENV, *COMMAND, "--switch", "needs-pods"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "the client exited after empty lists: exit status 3, output: no pods" in out
    assert "repeat:    devicemanager check --client --only C05 --env" in out
    assert "fail 1 in" in out


def test_json_and_profile(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "--client", "--only", "C08", "--profile", "core", "-o", "json", *ENV]
    # C08 is a SHOULD, which the profile core does not require.
    assert main([*words, *COMMAND, "--switch", "unsigned-nodes"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"fail": 1}


def test_a_client_that_finds_no_socket_gets_advice(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "--client", "--only", "C01", "--limit", "start_seconds=0.2"]
    assert main([*words, "--", "sleep", "60"]) == 1
    assert "use {socket} in the command" in capsys.readouterr().out


def test_waivers_apply(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    waivers = tmp_path / "waivers.yaml"
    waivers.write_text("[{id: C01, reason: calls once, expires: 2999-01-01}]")
    words = ["check", "--client", "--only", "C01", "--limit", "start_seconds=0.2"]
    assert main([*words, "--waivers", str(waivers), "--", "sleep", "60"]) == 0
    assert "calls once" in capsys.readouterr().out


def test_the_checks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--client", "--list", "--skip", "C01"]) == 0
    assert capsys.readouterr().out.startswith("C02  SHOULD  can start before the kubelet")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--client"], "the client's command is missing"),
        (["--client", "--only", "K01", *COMMAND], "with --client, use C01 to C23"),
        (["--client", "--thorough", *COMMAND], "--thorough is for plugins and drivers"),
        (["--client", "--driver", *COMMAND], "--driver is for plugins and drivers"),
        (["--client", "--write-tests", "x", *COMMAND], "--write-tests is for plugins and drivers"),
        (["--client", "--previous", "x", *COMMAND], "--previous is for plugins and drivers"),
        (["--client", "--rootfs", "/", *COMMAND], "--rootfs is for plugins and drivers"),
        (["--client", "--nri", *COMMAND], "--nri is for plugins and drivers"),
        (["--client", "--reboot", *COMMAND], "--reboot is for plugins and drivers"),
        (["--client", "--private-root", *COMMAND], "--private-root is for plugins and drivers"),
        (["--client", "--restart", "always", *COMMAND], "--restart is for plugins and drivers"),
        (["--client", "--report", "badge=x", *COMMAND], "use one of json, junit, markdown"),
        (["--client", "--metrics", "localhost", *COMMAND], "invalid metrics URL"),
        (["--client", "--limit", "pods=1", *COMMAND], "unknown limit 'pods'"),
        (["--metrics", "http://localhost", *COMMAND], "--metrics needs --client"),
        (["--client", "--", "/no/such/exporter"], "cannot be started"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    assert main(["check", *words]) == 2
    captured = capsys.readouterr().err
    assert error in captured
    assert len(captured.splitlines()) == 1
