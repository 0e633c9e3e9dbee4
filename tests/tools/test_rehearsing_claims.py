"""``tools.differential --rehearse --dra``, with the mock in place of the real DRA manager."""

from __future__ import annotations

from typing import Any

import attrs

from devicemanager.core.versions.version import DEFAULT
from tools.differential import __main__ as differential
from tools.differential.dra import running
from tools.differential.dra.rehearsing import cases, compare

VERSION = f"1.{DEFAULT}"


class Mock:
    """Reference that runs the mock; ``change`` changes the last step."""

    def __init__(self, *_: object, change: dict[str, Any] | None = None) -> None:
        self._change = change or {}

    def ask(self, case: Any, runs: int) -> Any:
        answer = running.play(case, VERSION)
        answer["runs"][0]["steps"][-1].update(self._change)
        return answer

    def __enter__(self) -> Mock:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_outcomes_of_the_mock_were_rehearsed() -> None:
    counts = compare(Mock(), VERSION, cases(1, 20))  # type: ignore[arg-type]
    assert counts.differences == []
    assert (counts.cases, counts.pods) == (20, 60)
    assert 0 < counts.lost < counts.pods


def test_outcome_that_was_not_rehearsed_is_a_difference() -> None:
    counts = compare(Mock(change={"error": "x"}), VERSION, cases(1, 4))  # type: ignore[arg-type]
    assert len(counts.differences) >= 4
    assert "'error': " in counts.differences[0].text()


def test_exit_status_says_if_all_was_rehearsed(monkeypatch: Any, capsys: Any) -> None:
    changes: dict[str, Any] = {"reference": Mock, "build": lambda *_, **__: ""}
    mocked = attrs.evolve(running.SUBJECT, **changes)
    monkeypatch.setattr(running, "SUBJECT", mocked)
    assert differential.main(["--rehearse", "--dra", "--scenarios", "3"]) == 0
    assert "3 changes of nodes with claims rehearsed: of 9 pods" in capsys.readouterr().out
