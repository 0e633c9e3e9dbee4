"""``devicemanager check``, and the script that runs it in CI."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from devicemanager.cli import main
from devicemanager.cli.check import _complete, _write_tests
from devicemanager.cli.check_repeat import repeating_command
from devicemanager.conformance import Check, written_tests
from devicemanager.conformance.limits import Limits
from tests.conformance.matrix import PLUGIN, RESOURCE
from tests.paths import ROOT


def _command(*options: str, switch: str = "") -> list[str]:
    words = [sys.executable, str(PLUGIN), "--dir", "{plugin_dir}"]
    words += ["--switch", switch] if switch else []
    return ["check", "--env", f"PYTHONPATH={ROOT}", "--limit", "settle_seconds=0.3", *options,
            "--", *words]  # fmt: skip


def test_check_prints_verdicts_and_writes_a_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "report.json"
    only = ["--only", "R13", "--only", "O01", "--only", "W07"]
    options = [*only, "--report", f"json={page}"]
    assert main(_command(*options, switch="options-differ")) == 0
    text = capsys.readouterr().out
    assert "R13  warn    SHOULD" in text
    assert "O01  pass    MUST" in text
    assert "would run with:\n  hook break-device: W07\n" in text
    assert "1 passed, 1 with a warning, 1 skipped in" in text
    assert text.rstrip().endswith(
        "; no profile passed: checks of core that were not selected: 43 of 45"
    )
    assert json.loads(page.read_text())["counts"] == {"pass": 1, "warn": 1, "skip": 1}


def test_check_of_an_unregistered_plugin_ends_with_the_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the output, with and without a named resource."""
    monkeypatch.setattr("devicemanager.conformance.suite_run._FIRST_NOTE_SECONDS", 0.0)
    soon = ["check", "--only", "R01", "--limit", "start_seconds=0.5"]
    assert main([*soon, "--", "sleep", "100"]) == 2
    waits, error = capsys.readouterr().err.splitlines()
    assert re.match(r"check on 1\.\d+: after 0 s, the plugin has not registered at /", waits)
    assert error.startswith("devicemanager: error: the plugin did not register within 0.5 s ")
    assert main([*soon, "--resource", RESOURCE, "--", "sleep", "100"]) == 1
    *_, cause, seen, where, _, last = capsys.readouterr().out.splitlines()
    assert cause == "  1. R01 MUST registers with the kubelet"
    assert seen.startswith(f"     {RESOURCE} is not registered, 0.5 s ")
    assert where == "     on a node: the resource never appears on the node"
    assert last.endswith("; no profile passed: R01 failed")


def test_program_that_is_recognized_as_a_plugin_is_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without ``--only``, the program is started once to see what it registers."""
    assert main(["check", "--limit", "start_seconds=2", "--", "./nowhere"]) == 2
    error = capsys.readouterr().err
    assert "error: the plugin did not start: ./nowhere: cannot be started: " in error
    assert "No such file or directory" in error
    assert main(["check", "--driver", "--only", "DR01", "--", "./nowhere"]) == 2
    assert "error: the driver did not start: ./nowhere: " in capsys.readouterr().err


def test_hook_that_no_check_uses_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the plugin is started."""
    hooks = [f"--hook={name}=true" for name in ("prepare", "add-device", "misconfigure")]
    assert main(["check", "--only", "L11", *hooks, "--", "./nowhere"]) == 2
    errors = capsys.readouterr().err
    assert "warning: no selected check uses the hook add-device; these do: W14, A19\n" in errors
    assert errors.count("warning") == 1


def test_failed_check_sets_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--only", "A02", "--profile", "core", "-o", "json", "--seed", "17"]
    assert main(_command(*options, switch="accept-unknown")) == 1
    data: Mapping[str, list[dict[str, str]]] = json.loads(capsys.readouterr().out)
    [only] = data["checks"]
    assert only["reproduce"].startswith("devicemanager check --only A02 --seed 17 ")
    assert only["reproduce"].endswith("--dir '{plugin_dir}' --switch accept-unknown")


def test_repeating_command_has_every_option() -> None:
    """All options of the run, except those that select checks, reports and their form."""
    parser = argparse.ArgumentParser()
    _complete(parser)
    words = (
        "--driver --client --metrics=u --profile=core --hook=prepare=a --env=A=b "
        "--resource=v.com/x --at-node-paths --restart=always --limit=a=1 --thorough --seed=7 "
        "--jobs=1 --numa=0,1 --dev=d --sys=s --cdi=c --private-root --previous=p --reboot "
        "--nri --rootfs=r "
        "--kubelet-version=1.32 --feature-gates=A=true,B=false"
    )
    args = parser.parse_args([*words.split(), "--", "./plugin", "{id}"])
    check = cast("Check", SimpleNamespace(id="A01"))
    for args.client in (False, True):
        command = repeating_command(args, check, "1.32")
        options, _, program = command.partition(" -- ")
        again = parser.parse_args(shlex.split(options)[2:])
        assert program == "./plugin '{id}'"
        expected = vars(args) | {"only": ["A01"], "command": [], "seed": 1 if args.client else 7}
        assert vars(again) == expected
    unset = {"only", "skip", "list", "report", "write_tests", "language", "waivers", "output"}
    defaults = vars(parser.parse_args([]))
    assert {name for name in defaults if vars(args)[name] == defaults[name]} == unset


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check"], "the plugin's command is missing: use `devicemanager check -- COMMAND`"),
        (
            ["check", "--driver"],
            "the driver's command is missing: use `devicemanager check --driver -- COMMAND`",
        ),
        (["check", "--driver", "--", "x", "{kubeconf}"], "did you mean {kubeconfig}?"),
        (["check", "--only", "Z", "--", "x"], "unknown check 'Z'"),
        (["check", "--report", "pdf=x", "--", "x"], "unknown report format 'pdf'"),
        (["check", "--report", "json=/nowhere/x", "--", "x"], "cannot write report /nowhere/x"),
        (["check", "--report", "json=/", "--", "x"], "cannot write report /"),
        (["check", "--hook", "x", "--", "x"], "invalid value 'x': expected NAME=VALUE"),
        (
            ["check", "--resource", "", "--", "x"],
            "invalid resource '': expected a name with a domain, such as vendor.com/gpu",
        ),
        (
            ["check", "--resource", "gpu", "--", "x"],
            "invalid resource 'gpu': expected a name with a domain",
        ),
        (["check", "--waivers", "/nowhere", "--", "x"], "waivers /nowhere"),
        (["check", "--kubelet-version", "1.2", "--", "x"], "1.2"),
    ],
)
def test_invalid_options_are_an_error(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_list_prints_the_selected_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list", "--only", "T"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["T01", "T02", "T03"]


def test_ci_script_installs_source_in_a_virtual_environment(tmp_path: Path) -> None:
    """The Python of the machine may reject packages."""
    for name, text in (("python3", 'mkdir -p "$3/bin" && cp "$(dirname "$0")/pip" "$3/bin"'),
                       ("pip", 'echo "$@" > installed; exit 3')):  # fmt: skip
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SOURCE": "x[conformance]", "COMMAND": "plugin"}
    script = ROOT / "ci/check.sh"
    assert subprocess.run([script], cwd=tmp_path, env=env, check=False).returncode == 2
    assert (tmp_path / "installed").read_text() == "install --quiet x[conformance]\n"


def test_ci_script_writes_all_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a plugin whose arguments need quoting."""
    command = f"'{sys.executable}' '{PLUGIN}' --dir {{plugin_dir}} --switch bad-cdi"
    env = os.environ | {
        "COMMAND": command,
        "OPTIONS": f"--only A14 --limit settle_seconds=0.2 --env 'PYTHONPATH={ROOT}'",
        "PROFILE": "core",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run([ROOT / "ci/check.sh"], cwd=tmp_path, env=env, capture_output=True)
    assert done.returncode == 1, done.stderr
    assert {path.name for path in (tmp_path / "conformance").iterdir()} == {
        "junit.xml", "report.html", "summary.md", "report.json",
    }  # fmt: skip
    assert "A14" in (tmp_path / "summary").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_removes_everything_that_the_run_created(
    number: signal.Signals, tmp_path: Path, directory: Path
) -> None:
    """Directories of kubelets are removed, and the hook ``cleanup`` runs."""
    started, cleaned = tmp_path / "started", tmp_path / "cleaned"
    os.mkfifo(started)
    command = [sys.executable, "-m", "devicemanager", "check", "--only", "R01"]
    command += ["--hook", f"cleanup=echo {{plugin_dir}} >> {cleaned}"]
    process = subprocess.Popen(
        [*command, "--", "sh", "-c", f"echo > {started}; exec sleep 60"],
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        started.read_text()
        (root,) = directory.iterdir()
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (-number, "")
    assert cleaned.read_text() == f"{root}/device-plugins\n"
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ((), "check: no check failed, so there are no tests to write\n"),
        (("A02", "B01"), "check: {path}: tests of A02, B01\n"),
    ],
)
def test_the_file_of_written_tests_is_named(
    ids: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    made = SimpleNamespace(ids=ids, name="test_findings.py", text="# tests\n")
    monkeypatch.setattr(written_tests, "written_tests", lambda *_: made)
    report: Any = None
    _write_tests(report, Limits(), tmp_path, "python")
    path = tmp_path / made.name
    assert capsys.readouterr() == ("", said.format(path=path))
    assert [each.read_text() for each in tmp_path.iterdir()] == ["# tests\n"] * bool(ids)
