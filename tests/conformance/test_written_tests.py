"""``check --write-tests``: tests fail for the reason of the finding, and pass without the fault."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from devicemanager import NumaTopology, conformance
from devicemanager.cli import main
from devicemanager.conformance import Hardware, Limits
from devicemanager.conformance.checks import all_checks
from devicemanager.conformance.written_tests import (
    _GO,
    _PYTHON,
    LANGUAGES,
    package_in,
    written_tests,
)
from tests.conformance.findings import FAULTS, LIMITS, TOGETHER, command, report
from tests.conformance.matrix import CASES
from tests.sessions import NO_SUITE_PLUGINS

REASONS = {
    "K01": "WaitTimeout: waited 5 s for any devices",
    "A02": "Failed: DID NOT RAISE",
    "A06": "assert ({'CALL_1'",
    "L01": "still runs after 1 s",
}
"""Texts in the output of pytest, by check."""


def test_faults_are_those_of_the_matrix() -> None:
    assert FAULTS.items() <= {(each.switch, each.fails[0]) for each in CASES}
    assert set(FAULTS.values()) <= _PYTHON.keys() & _GO.keys()


def run_pytest(directory: Path, text: str) -> str:
    (directory / "test_findings.py").write_text(text)
    words = [sys.executable, "-m", "pytest", "-q", *NO_SUITE_PLUGINS, "-rA", "--tb=short"]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.timeout(180)
@pytest.mark.parametrize("switches", TOGETHER, ids=lambda group: group[0])
def test_python_tests_fail_for_the_same_reason_and_pass_without_the_faults(
    tmp_path: Path, switches: tuple[str, ...]
) -> None:
    ids = [FAULTS[each] for each in switches]
    broken = written_tests(report(command(*switches), *ids), "python", LIMITS)
    assert broken.ids == tuple(each.id for each in all_checks() if each.id in ids)
    printed = run_pytest(tmp_path, broken.text)
    assert f"{len(ids)} failed" in printed, printed
    for check in ids:
        assert REASONS[check] in printed, (check, printed)
    fixed = written_tests(report(command(), *ids), "python", LIMITS)
    printed = run_pytest(tmp_path, fixed.text)
    assert f"{len(ids)} passed" in printed, printed


def test_other_checks_run_as_checks() -> None:
    text = written_tests(report(["./plugin"], "A08", "A02"), "python").text
    assert 'only=["A08"]' in text and "def test_rejects_an_unknown_device(" in text
    go = written_tests(report(["./plugin"], "A08"), "go").text
    assert 'options := []string{"--only", "A08"}\n' in go
    assert 'mockkubelet.Check(t, options, "./plugin")' in go
    assert "func start(" not in go


def test_other_checks_run_with_the_options_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numa = NumaTopology.of([0, 2], [[10, 30], [30, 10]])
    given = report(["./plugin"], "A08")
    plugin = attrs.evolve(
        given.plugin, resources=["a.b/c"], hardware=Hardware(numa=numa, dev=tmp_path)
    )
    of_run = attrs.evolve(given, plugin=plugin, seed=7)
    text = written_tests(of_run, "python", Limits(allocations=9)).text
    passed: list[Any] = []
    monkeypatch.setattr(
        conformance,
        "pytest_checks",
        lambda *args, **options: passed.append((*args, options)),
        raising=False,
    )
    exec(text, {})
    [(written, options)] = passed
    assert options == {"only": ["A08"], "limits": Limits(allocations=9), "seed": 7}
    assert written.hardware == plugin.hardware and written.resources == plugin.resources
    usual = written_tests(given, "python").text
    assert "limits" not in usual and "seed" not in usual and "hardware" not in usual


@pytest.mark.parametrize("language", LANGUAGES)
def test_plugin_without_a_resource_is_tested_only_by_checks(language: str) -> None:
    without = attrs.evolve(report(["./plugin"], "A02"), resources=())
    text = written_tests(without, language).text
    assert "resource" not in text.lower()
    assert {"python": 'only=["A02"]', "go": '"--only", "A02"'}[language] in text


def test_every_body_is_valid_python_with_known_limits() -> None:
    text = written_tests(report(["./plugin"], *_PYTHON), "python").text
    names = [each.name for each in ast.parse(text).body if isinstance(each, ast.FunctionDef)]
    assert len(names) == len(set(names)) == len(_PYTHON) + 1
    for language in LANGUAGES:
        assert "$" not in written_tests(report(["./plugin"], *_PYTHON), language).text
    assert _PYTHON.keys() == _GO.keys() <= {each.id for each in all_checks()}


def test_text_of_a_plugin_cannot_end_a_comment() -> None:
    text = written_tests(report(["./plugin"], "A02", seen='a """ b \\ \n c'), "python").text
    ast.parse(text)
    go = written_tests(report(["./plugin"], "A02", seen="a \n func x"), "go").text
    assert re.search(r"^// The check saw: a func x$", go, re.M)


def test_package_is_that_of_the_directory(tmp_path: Path) -> None:
    assert package_in(tmp_path) == "findings"
    (tmp_path / "a.go").write_text("// Comment\npackage vendor\n")
    assert package_in(tmp_path) == "vendor"


def test_command_writes_a_new_file_once(tmp_path: Path, capsys: Any) -> None:
    words = ["check", "--only", "A02", "--write-tests", str(tmp_path)]
    words += ["--limit", "settle_seconds=0.2", "--", *command("accept-unknown")]
    assert main(words) == 1
    assert f"{tmp_path}/test_findings.py: tests of A02" in capsys.readouterr().err
    assert "def test_rejects_an_unknown_device(" in (tmp_path / "test_findings.py").read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--write-tests", "/nowhere"], "--write-tests: /nowhere is not a directory"),
        (
            ["--write-tests", ".", "--kubelet-version", "all"],
            "--write-tests cannot be used with --kubelet-version all",
        ),
    ],
)
def test_mistakes_are_found_before_the_run(words: list[str], text: str, capsys: Any) -> None:
    assert main(["check", *words, "--", "./plugin"]) == 2
    assert text in capsys.readouterr().err
