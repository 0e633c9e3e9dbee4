"""Every recorded admission, replayed; and a replay that can say no."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.paths import VECTORS
from tools.replay.admission import replay_file, replay_scenario
from tools.replay.report import ReplayError

_BESIDE = VECTORS
VECTORS = Path(os.environ.get("DEVICEMANAGER_VECTORS", _BESIDE)) / "admission.jsonl"

pytestmark = pytest.mark.skipif(not VECTORS.exists(), reason="the vectors are not at hand")


@pytest.fixture(scope="module")
def scenarios() -> list[dict[str, Any]]:
    return [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").split("\n") if line]


def test_all_agree(scenarios):
    outcomes = list(replay_file(VECTORS))
    assert len(outcomes) == len(scenarios) > 0
    assert {each.id: each.differences for each in outcomes if each.differences} == {}


@pytest.mark.parametrize("name", ["versions.jsonl", "versions-edge.jsonl"])
def test_each_version_agrees_with_its_own_results(name):
    path = VECTORS.with_name(name)
    outcomes = list(replay_file(path))
    versions = {json.loads(line)["kubelet"] for line in path.read_text("utf-8").splitlines()}
    assert len(outcomes) > 100 and len(versions) >= 5
    assert {each.id: each.differences for each in outcomes if each.differences} == {}


def test_one_policy_only(scenarios):
    of_policy = [each["id"] for each in scenarios if each["policy"] == "none"]
    assert [each.id for each in replay_file(VECTORS, "none")] == of_policy != []


FIELDS = ["admit", "affinity", "allocatable", "calls", "capacity", "device_counts", "devices",
          "hints", "message", "reason"]  # fmt: skip


def altered(value: Any) -> Any:
    """Something else in the same shape: the first value inside that can be another."""
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
def test_a_wrong_expectation_is_found(scenarios, field):
    # Whatever field of whatever step says something else, the replay disagrees.
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


def test_a_wrong_configuration_error_is_found(scenarios):
    wrong = next(copy.deepcopy(each) for each in scenarios if "config_error" in each["expect"])
    wrong["expect"]["config_error"] += "?"
    assert replay_scenario(wrong).differences
    wrong["expect"] = {"steps": []}
    assert replay_scenario(wrong).differences
    right = next(copy.deepcopy(each) for each in scenarios if "steps" in each["expect"])
    right["expect"]["config_error"] = "none of this is allowed"
    assert replay_scenario(right).differences


def test_a_wrong_input_is_found(scenarios):
    # One healthy device fewer than the recorded node had, everywhere: most must disagree.
    disagreed = 0
    chosen = [each for each in scenarios if each["resources"] and "steps" in each["expect"]][:40]
    for scenario in chosen:
        changed = copy.deepcopy(scenario)
        for plugin in changed["resources"].values():
            plugin["devices"] = plugin["devices"][:-1]
        disagreed += bool(replay_scenario(changed).differences)
    assert disagreed > len(chosen) / 2


def test_the_version_of_a_scenario(scenarios):
    zero = next(
        copy.deepcopy(each)
        for each in scenarios
        if any(
            "no healthy devices" in step.get("message", "")
            for step in each["expect"].get("steps", ())
        )
    )
    assert not replay_scenario(zero).differences
    # Before 1.25.10 nobody asked for health, and there was no such defect to bring back.
    assert "no healthy devices" in "".join(replay_scenario(zero | {"kubelet": "1.24"}).differences)
    with pytest.raises(ReplayError, match=f"scenario {zero['id']}: unknown kubelet version '1.19'"):
        replay_scenario(zero | {"kubelet": "1.19"})


def test_a_field_that_is_not_known_is_not_passed_over(scenarios):
    strange = next(copy.deepcopy(each) for each in scenarios if each["expect"].get("steps"))
    strange["expect"]["steps"][0]["mood"] = "good"
    with pytest.raises(ReplayError, match="mood"):
        replay_scenario(strange)
