"""Run scenarios in the real DRA manager and in the mock."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from devicemanager.core.versions.changelog import DRA_COMPARED
from devicemanager.core.versions.version import KubeletVersion
from tools.differential import building, shrinking
from tools.differential.comparing import Disagreement, Expected, differences, expected
from tools.differential.deviations import Deviation, Fact
from tools.differential.dra import coverage
from tools.differential.dra.deviations import DEVIATIONS
from tools.differential.dra.facts import facts_of, with_known_changes
from tools.differential.dra.generating import scenarios
from tools.differential.dra.shrinking import smaller
from tools.differential.recording import Recorded
from tools.differential.reference import Reference
from tools.differential.running import Comparison, Plain
from tools.differential.scenarios import Scenario
from tools.differential.subject import Subject
from tools.replay.dra_kubelet import DraKubelet

RELEASES: Final = DRA_COMPARED
"""Releases to compare with: one for each version of the DRA manager."""
SOURCES: Final = Path(__file__).parent / "go"
CACHE: Final = building.CACHE.parent / "differential-dra"


def build(release: str, *, jobs: int = 2) -> Path:
    """Return the program with the release's DRA manager. Raises BuildError."""
    return building.build(release, jobs=jobs, sources=SOURCES, cache=CACHE)


class DraReference(Reference):
    """Process of the Go program. Its directory contains the state file and the drivers' sockets."""

    def _launch(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [str(self._program), str(self._directory)]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def _plain(self, line: str) -> str:
        return re.sub(rf"{re.escape(str(self._directory))}/(\w+)", r"ENDPOINT(\1)", line)


def play(scenario: Scenario, version: str) -> Plain:
    """Run a scenario in the mock, with all quirks of the version."""
    kubelet = DraKubelet(scenario, KubeletVersion.parse(version))
    return {"runs": [{"steps": [kubelet.step(op) for op in scenario["ops"]]}]}


class DraComparison(Comparison):
    """Comparison of the kubelet's DRA manager and the mock at one kubelet version."""

    def _repeats(self, scenario: Scenario) -> int:
        # A driver that does not respond in time makes each run slow.
        return 4 if '"hang": true' in json.dumps(scenario) else super()._repeats(scenario)

    def _play(self, scenario: Scenario) -> Plain:
        return play(scenario, self._version)

    def _expected(self, answer: Mapping[str, Any]) -> Expected:
        return expected_of(answer)

    def _compare(self, scenario: Scenario, wanted: Expected, played: Plain) -> list[Disagreement]:
        return compare(scenario, self._version, wanted, played)

    def _reached(self, scenario: Scenario, answer: Plain) -> frozenset[str]:
        return coverage.reached(scenario, answer)

    def _shrink(self, scenario: Scenario, shows: shrinking.Shows) -> Plain:
        return shrinking.shrink(scenario, shows, smaller=smaller)


def differences_of(recorded: Recorded) -> list[Disagreement]:
    """Run a recorded scenario in the mock. Return unexplained disagreements."""
    played = play(recorded.scenario, recorded.version)
    found = compare(recorded.scenario, recorded.version, recorded.expected, played)
    return [each for each in found if each.deviation is None]


def expected_of(answer: Mapping[str, Any]) -> Expected:
    """Divide the reference's results into constant and random facts."""
    runs = [
        {**run, "steps": with_known_changes(run["steps"] or ())} for run in answer.get("runs") or ()
    ]
    return expected({**answer, "runs": runs}, facts_of)


def compare(
    scenario: Scenario, version: str, wanted: Expected, played: Plain
) -> list[Disagreement]:
    """Return all disagreements, each with the deviation that explains it, if any."""
    steps = with_known_changes(played["runs"][0]["steps"])
    run = {"steps": steps, "panic": None}
    found = [
        each.explained(_named(each, scenario, version))
        for each in differences(wanted, run, facts_of)
    ]
    # A file is a checksum. If it is random, what explains its claims explains the file.
    claims = {each.step: each.deviation for each in found if each.path == "claims"}
    return [
        each.explained(claims.get(each.step)) if each.path == "file" and each.is_random else each
        for each in found
    ]


def _named(each: Disagreement, scenario: Scenario, version: str) -> Deviation | None:
    fact = Fact(
        scenario,
        version,
        each.step,
        each.path,
        each.expected,
        each.actual,
        is_random=each.is_random,
    )
    return next((deviation for deviation in DEVIATIONS if deviation.covers(fact)), None)


SUBJECT: Final = Subject(build, DraReference, DraComparison, scenarios, coverage, DEVIATIONS)
