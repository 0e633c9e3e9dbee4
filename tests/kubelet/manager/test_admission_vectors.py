"""Recorded admissions are replayed, and the replay detects wrong results."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.paths import VECTOR_SETS, VECTORS
from tools.replay.admission import replay_file, replay_scenario
from tools.replay.report import ReplayError

ADMISSIONS = VECTORS / "admission.jsonl"


@pytest.fixture(scope="module")
def scenarios() -> list[dict[str, Any]]:
    return scenarios_in(ADMISSIONS)


def scenarios_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.parametrize("vectors", VECTOR_SETS)
def test_recorded_admissions_agree(vectors):
    path = vectors / "admission.jsonl"
    outcomes = list(replay_file(path))
    assert len(outcomes) == len(scenarios_in(path)) > 100
    assert {each.id: each.differences for each in outcomes if each.differences} == {}


@pytest.mark.parametrize("name", ["versions.jsonl", "versions-edge.jsonl"])
@pytest.mark.parametrize("vectors", VECTOR_SETS)
def test_recorded_admissions_of_each_version_agree(vectors, name):
    path = vectors / name
    outcomes = list(replay_file(path))
    assert len(outcomes) > 50 and len({each["kubelet"] for each in scenarios_in(path)}) >= 5
    assert {each.id: each.differences for each in outcomes if each.differences} == {}


def test_replay_of_one_policy(scenarios):
    of_policy = [each["id"] for each in scenarios if each["policy"] == "none"]
    assert [each.id for each in replay_file(ADMISSIONS, "none")] == of_policy != []


FIELDS = ["admit", "affinity", "allocatable", "calls", "capacity", "device_counts", "devices",
          "hints", "message", "reason"]  # fmt: skip


def altered(value: Any) -> Any:
    """Return a different value of the same shape."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}?"
        case None:
            return {"nodes": [7], "preferred": True}
        case list():
            return [altered(value[0]), *value[1:]] if value else ["something"]
        case dict():
            if not value:
                return {"something": 1}
            first = next(iter(value))
            return {**value, first: altered(value[first])}


@pytest.mark.parametrize("field", FIELDS)
def test_replay_detects_a_wrong_expectation(scenarios, field):
    tried = 0
    for scenario in scenarios:
        for number, step in enumerate(scenario["expect"].get("steps", ())):
            if field not in step or tried >= 25:
                continue
            wrong = copy.deepcopy(scenario)
            wrong["expect"]["steps"][number][field] = altered(step[field])
            assert replay_scenario(wrong).differences, (scenario["id"], number)
            tried += 1
            break
    assert tried


def test_replay_detects_a_wrong_configuration_error(scenarios):
    wrong = next(copy.deepcopy(each) for each in scenarios if "config_error" in each["expect"])
    wrong["expect"]["config_error"] += "?"
    assert replay_scenario(wrong).differences
    wrong["expect"] = {"steps": []}
    assert replay_scenario(wrong).differences
    right = next(copy.deepcopy(each) for each in scenarios if "steps" in each["expect"])
    right["expect"]["config_error"] = "none of this is allowed"
    assert replay_scenario(right).differences


def test_replay_detects_a_wrong_input(scenarios):
    # With one device fewer per resource, most scenarios must disagree.
    disagreed = 0
    chosen = [each for each in scenarios if each["resources"] and "steps" in each["expect"]][:40]
    for scenario in chosen:
        changed = copy.deepcopy(scenario)
        for plugin in changed["resources"].values():
            plugin["devices"] = plugin["devices"][:-1]
        disagreed += bool(replay_scenario(changed).differences)
    assert disagreed > len(chosen) / 2


def test_replay_uses_the_version_of_a_scenario(scenarios):
    zero = next(
        copy.deepcopy(each)
        for each in scenarios
        if any(
            "no healthy devices" in step.get("message", "")
            for step in each["expect"].get("steps", ())
        )
    )
    assert not replay_scenario(zero).differences
    # Kubelets before 1.25.10 do not check health, so they do not have this message.
    assert "no healthy devices" in "".join(replay_scenario(zero | {"kubelet": "1.24"}).differences)
    with pytest.raises(
        ReplayError, match=f"^scenario {zero['id']}: unknown kubelet version '1.19'"
    ):
        replay_scenario(zero | {"kubelet": "1.19"})


def test_replay_rejects_an_unknown_field(scenarios):
    strange = next(copy.deepcopy(each) for each in scenarios if each["expect"].get("steps"))
    strange["expect"]["steps"][0]["mood"] = "good"
    with pytest.raises(ReplayError, match="mood"):
        replay_scenario(strange)
