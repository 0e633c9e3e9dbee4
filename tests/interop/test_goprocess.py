"""The helpers that control and build the Go programs, tested with a program in Python."""

import sys

import pytest

from tests.interop import builds, gobuild
from tests.interop.goprocess import GoProcess

ECHO = """
import json, sys
print(json.dumps({"event": "ready", "n": 1}), flush=True)
print(json.dumps({"event": "ready", "n": 2}), flush=True)
for line in sys.stdin:
    if line == "die\\n":
        sys.exit("out of cheese")
    print(json.dumps({"event": "echo", "words": line.split()}), flush=True)
"""


@pytest.fixture
def echo():
    with GoProcess([sys.executable, "-c", ECHO]) as process:
        yield process


def test_each_event_is_consumed_once_in_any_order_of_names(echo):
    assert echo.call("a", "b", reply="echo")["words"] == ["a", "b"]
    assert echo.wait_for("ready")["n"] == 1
    assert echo.wait_for("ready")["n"] == 2
    with pytest.raises(AssertionError, match=r"no ready \{\}: waited 0\.05 s"):
        echo.wait_for("ready", deadline=0.05)
    assert [event["n"] for event in echo.events("ready")] == [1, 2]


def test_fields_select_events(echo):
    assert echo.wait_for("ready", n=2)["n"] == 2
    assert echo.wait_for("ready")["n"] == 1


def test_forgotten_events_do_not_satisfy_wait(echo):
    echo.call("x", reply="echo")
    echo.forget()
    with pytest.raises(AssertionError, match="no ready"):
        echo.wait_for("ready", deadline=0.05)


def test_exit_of_program_fails_wait_at_once(echo):
    echo.send("die")
    with pytest.raises(AssertionError, match=r"exited[\s\S]*\"ready\"[\s\S]*out of cheese"):
        echo.wait_for("echo", deadline=60)


def test_excluded_event_fails_wait_at_once(echo):
    with pytest.raises(AssertionError, match="ready instead of echo"):
        echo.wait_for("echo", deadline=60, unless="ready")


def test_closed_stdin_ends_program(echo):
    assert echo.finish() == 0


def test_sigterm_ends_program(echo):
    echo.wait_for("ready")
    assert echo.terminate() == -15


def test_missing_go_is_unavailable(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(builds, "CACHE", tmp_path)
    with pytest.raises(builds.Unavailable, match="go is not installed"):
        gobuild.build(gobuild.CHECKPOINT)


@pytest.mark.parametrize(
    "line",
    [
        'go: k8s.io/kubelet@v0.32.13: Get "https://proxy/": dial tcp: lookup proxy: no such host',
        "go: a.b/c@v1.0.0: reading https://proxy/a.b/c/@v/v1.0.0.info: 403 Forbidden",
        "go: latest.mod requires go >= 1.26.0 (running go 1.24.1; GOTOOLCHAIN=local)",
    ],
)
def test_missing_modules_are_unavailable(line):
    reason = gobuild.explain(f"go: downloading x v1\n{line}\n")
    assert isinstance(reason, builds.Unavailable)
    assert str(reason) == line


def test_compile_error_is_failed_build():
    stderr = "# x/cmd/plugin\ncmd/plugin/main.go:3:1: undefined: sim\n"
    assert isinstance(gobuild.explain(stderr), builds.BuildFailed)
