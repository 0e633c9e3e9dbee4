"""The driver of the Go programs and the builder, tried on programs in Python."""

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
    print(json.dumps({"event": "heard", "words": line.split()}), flush=True)
"""


@pytest.fixture
def echo():
    with GoProcess([sys.executable, "-c", ECHO]) as process:
        yield process


def test_each_event_is_used_once_and_order_between_names_does_not_matter(echo):
    assert echo.ask("a", "b", answer="heard")["words"] == ["a", "b"]
    assert echo.wait_for("ready")["n"] == 1
    assert echo.wait_for("ready")["n"] == 2
    with pytest.raises(AssertionError, match=r"no ready \{\}: .* gave nothing for 0\.05 s"):
        echo.wait_for("ready", deadline=0.05)
    assert [event["n"] for event in echo.events("ready")] == [1, 2]


def test_fields_choose_among_events(echo):
    assert echo.wait_for("ready", n=2)["n"] == 2
    assert echo.wait_for("ready")["n"] == 1


def test_forgotten_events_do_not_satisfy_a_wait(echo):
    echo.ask("x", answer="heard")
    echo.forget()
    with pytest.raises(AssertionError, match="gave nothing"):
        echo.wait_for("ready", deadline=0.05)


def test_a_program_that_ends_fails_the_wait_at_once_and_shows_what_happened(echo):
    echo.send("die")
    with pytest.raises(AssertionError, match=r"ended[\s\S]*\"ready\"[\s\S]*out of cheese"):
        echo.wait_for("heard", deadline=60)


def test_an_event_that_rules_out_the_other_fails_the_wait_at_once(echo):
    with pytest.raises(AssertionError, match="ready instead of heard"):
        echo.wait_for("heard", deadline=60, unless="ready")


def test_closing_stdin_ends_it(echo):
    assert echo.finish() == 0


def test_sigterm_ends_it(echo):
    echo.wait_for("ready")
    assert echo.terminate() == -15


def test_missing_go_is_a_reason(monkeypatch, tmp_path):
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
def test_modules_that_cannot_be_had_are_a_reason(line):
    reason = gobuild.explain(f"go: downloading x v1\n{line}\n")
    assert isinstance(reason, builds.Unavailable)
    assert str(reason) == line


def test_sources_that_do_not_compile_are_a_fault():
    stderr = "# x/cmd/plugin\ncmd/plugin/main.go:3:1: undefined: sim\n"
    assert isinstance(gobuild.explain(stderr), builds.BuildFailed)
