"""``tools.differential --rehearse``, with the mock in place of the real device manager."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from devicemanager.core.versions.version import DEFAULT
from tools.differential import __main__ as differential
from tools.differential import ours
from tools.differential.__main__ import main
from tools.differential.rehearsing import cases, compare

VERSION = f"1.{DEFAULT}"


class Mock:
    """Reference that runs the mock kubelet; ``change`` changes what happens at the restart."""

    def __init__(self, change: dict[str, Any] | None = None) -> None:
        self._change = change or {}

    def ask(self, case: Any, runs: int) -> Any:
        answer = copy.deepcopy(ours.play(case, VERSION))
        for run in answer.get("runs", ()):
            for outcome in run["steps"][-1].get("readmitted", {}).values():
                outcome.update(self._change)
        return answer

    def __enter__(self) -> Mock:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def found() -> Any:
    return list(cases(3, 8, DEFAULT))


def test_cases_end_with_a_restart_of_started_pods(found: Any) -> None:
    assert len(found) == 8
    for case in found:
        *_, seen, last = case["steps"]
        assert seen == {"grace": 0, "lists": True}
        assert set(last["restart"]) == {"reboot", "before"}
    assert {case["steps"][-1]["restart"]["reboot"] for case in found} == {True, False}


def test_outcomes_of_the_mock_were_rehearsed(found: Any) -> None:
    counts = compare(Mock(), VERSION, found)
    assert counts.differences == []
    assert counts.cases == 8
    assert 0 < counts.lost < counts.pods


def test_outcome_that_was_not_rehearsed_is_a_difference(found: Any) -> None:
    wrong = {"admit": False, "reason": "Surprise", "message": "x"}
    counts = compare(Mock(wrong), VERSION, found)
    assert len(counts.differences) == counts.pods > 0
    assert "Surprise" in counts.differences[0].text()


@pytest.mark.parametrize(("change", "status"), [({}, 0), ({"admit": False, "reason": "x"}, 1)])
def test_exit_status_says_if_all_was_rehearsed(
    change: dict[str, Any], status: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(differential, "build", lambda version, *, jobs: None)
    monkeypatch.setattr(differential, "Reference", lambda program: Mock(change))
    arguments = ["--rehearse", "--scenarios", "2", "--seed", "3", "--kubelet-version", VERSION]
    assert main(arguments) == status
    assert "2 restarts and reboots rehearsed" in capsys.readouterr().out
