"""Replay *lively* scenarios, in which pods run and end. README-lively.md beside the vectors has the
format.

``lively_node`` runs a scenario on a mock kubelet with the quirks of the reference, and
``lively_expected`` compares the results. This module reads the files and selects the expected
results of a kubelet version. Results of versions other than the default are in files beside the
scenarios.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from devicemanager.core.versions.version import KubeletVersion, VersionError
from tools.replay.lively_expected import differences
from tools.replay.lively_node import play
from tools.replay.report import Outcome, ReplayError, read_vectors

DEFAULT: Final = "1.37"
"""Kubelet version whose results are in the same file as the scenarios."""
_SHOWN: Final = 4
_RANDOM: Final = 0.01
"""Maximum share of scenarios that may differ: in a few, a random value was the same in all runs of
the reference."""


def replay_file(path: Path, version: str = DEFAULT) -> Iterator[Outcome]:
    """Replay every scenario whose results are known for the version.

    Raises ReplayError for a file of another format and for a version without results.
    """
    results = _results(path, version)
    for scenario in read_vectors(path):
        name = scenario.get("id", "?")
        try:
            expect = _expect(scenario, results)
            if expect is None:
                continue
            outcome = replay_scenario({**scenario, "expect": expect}, version)
        except (KeyError, TypeError, AttributeError) as error:
            raise ReplayError(f"scenario {name} is malformed: {error!r}") from error
        yield outcome


def replay_scenario(scenario: Mapping[str, Any], version: str = DEFAULT) -> Outcome:
    """Replay one scenario with the results of a version."""
    found = differences(scenario["expect"], play(scenario, version))
    return Outcome(scenario["id"], [str(each) for each in found])


def _results(path: Path, version: str) -> Mapping[str, Any]:
    """Return the results of a version other than the default, by scenario."""
    try:
        minor = f"1.{KubeletVersion.parse(version).minor}"
    except VersionError as error:
        raise ReplayError(str(error)) from error
    if minor == DEFAULT:
        return {}
    beside = path.with_name(f"{path.stem}-{minor}{path.suffix}")
    return {each["id"]: each["expect"] for each in read_vectors(beside)}


def _expect(scenario: Mapping[str, Any], results: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the expected results of a scenario; None if they are unknown for the version."""
    usual: Mapping[str, Any] = scenario["expect"]
    expect = results.get(scenario["id"], usual)
    if expect is not None and "from" in expect:
        # The steps before are those of the default version.
        return {**expect, "steps": [*usual["steps"][: expect["from"]], *expect["steps"]]}
    return expect


def report(outcomes: Iterable[Outcome], out: TextIO) -> int:
    """Print the differences and a summary. Return 0 if nearly all scenarios agree, else 1."""
    total = agreed = 0
    for outcome in outcomes:
        total += 1
        if not outcome.differences:
            agreed += 1
            continue
        shown = outcome.differences[:_SHOWN]
        print(f"{outcome.id}: {len(outcome.differences)} differences", file=out)
        print(*(f"  {each}" for each in shown), sep="\n", file=out)
    unexplained = total - agreed
    print(
        f"{agreed} of {total} agree, 0 deviate as documented, {unexplained} unexplained", file=out
    )
    return 0 if total and unexplained <= _RANDOM * total else 1
