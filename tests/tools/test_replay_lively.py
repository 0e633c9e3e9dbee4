"""Lively scenarios, in which pods live, agree with the real kubelet."""

from __future__ import annotations

import copy
import json

import pytest

from tests.paths import SAMPLE
from tools.replay.__main__ import main
from tools.replay.lively import replay_file, replay_scenario
from tools.replay.lively_behaviours import BEHAVIOURS
from tools.replay.lively_expected import differences
from tools.replay.report import ReplayError

FILE = SAMPLE / "lively.jsonl"
SCENARIOS = [json.loads(line) for line in FILE.read_text().splitlines()]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each["id"])
def test_sample_agrees(scenario):
    assert replay_scenario(scenario).differences == []


def changed(scenario, step, path, value):
    scenario = copy.deepcopy(scenario)
    tree = scenario["expect"]["steps"][step]
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value
    return scenario


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("written",), "other"),
        (("calls",), {"vendor.com/gpu": []}),
        (("health_updates",), ["nobody"]),
        (("state", "capacity", "vendor.com/gpu"), 77),
        (("state", "devices", "pod-x"), {"main-0": {"vendor.com/gpu": ["x"]}}),
        (("state", "status", "pod-x"), {"main-0": {"vendor.com/gpu": "Healthy"}}),
        (("state", "checkpoint", "entries", "x/y/z"), {"devices": {}, "response": 1}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_expectation_is_found(path, value):
    scenario = SCENARIOS[0]
    wrong = changed(scenario, 0, path, value)
    found = replay_scenario(wrong).differences
    assert found[0].startswith(f"step 0, {' '.join(path)}") or found[0].startswith("step 0, ")


def test_random_facts_are_compared_with_the_values_seen():
    step = {"calls": {}, "random": [{"path": ["message"], "any_of": ["a", "b"]}]}
    for message, count in (("a", 0), ("b", 0), ("c", 1)):
        actual = {"steps": [{"message": message, "state": {}}]}
        assert len(list(differences({"steps": [step]}, actual))) == count


def test_random_facts_without_values_are_not_compared():
    step = {"random": [{"path": ["state", "devices", "p"]}]}
    actual = {"steps": [{"state": {"devices": {"p": {"c": {"r": ["x"]}}}}}]}
    assert list(differences({"steps": [step]}, actual)) == []


def test_state_is_patched_from_step_to_step():
    steps = [{"state": {"capacity": {"r": 1}}}, {"state": {"capacity": {"r": None}}}]
    actual = {"steps": [{"state": {"capacity": {"r": 1}}}, {"state": {"capacity": {}}}]}
    assert list(differences({"steps": steps}, actual)) == []
    [found] = differences({"steps": steps[:1]}, {"steps": actual["steps"][1:]})
    assert str(found).startswith("step 0, state")


def test_command_prints_a_summary(capsys, tmp_path):
    path = tmp_path / "two.jsonl"
    wrong = changed(SCENARIOS[1], 0, ("written",), "other")
    path.write_text(f"{json.dumps(SCENARIOS[0])}\n{json.dumps(wrong)}\n")
    assert main(["lively", str(path)]) == 1
    assert capsys.readouterr().out.endswith(
        "1 of 2 agree, 0 deviate as documented, 1 unexplained\n"
    )


def test_results_of_another_version_are_in_the_file_beside(tmp_path):
    scenario = SCENARIOS[0]
    path = tmp_path / "some.jsonl"
    path.write_text(json.dumps(scenario))
    beside = tmp_path / "some-1.36.jsonl"
    beside.write_text(json.dumps({"id": scenario["id"], "kubelet": "1.36.3", "expect": None}))
    assert list(replay_file(path, "1.36")) == []
    beside.unlink()
    with pytest.raises(ReplayError, match=r"some-1\.35\.jsonl: cannot be read"):
        list(replay_file(path, "1.35"))
    with pytest.raises(ReplayError, match="invalid kubelet version"):
        list(replay_file(path, "x"))


def test_panic_of_the_kubelet_is_expected_at_its_step():
    panic = {"step": 1, "text": "nil pointer"}
    [found] = differences({"steps": [{}], "panic": panic}, {"steps": [{}, {}]})
    assert str(found) == "step 1, panic: expected 'nil pointer', actual '(absent) at step 2'"
    played = {"steps": [{}], "panic": "nil pointer"}
    assert list(differences({"steps": [{}], "panic": panic}, played)) == []
    # Without a panic in what is expected, nothing is known after the last step.
    assert list(differences({"steps": [{}]}, played)) == []
    [found] = differences({"steps": [{}, {}]}, played)
    assert str(found) == "step 1, panic: expected '(absent)', actual 'nil pointer'"


@pytest.mark.parametrize("has", BEHAVIOURS, ids=lambda has: has.__name__)
def test_sample_has_every_behaviour(has):
    assert any(map(has, SCENARIOS))


def test_sample_has_a_sidecar_that_an_old_kubelet_forbids():
    outcomes = list(replay_file(FILE, "1.28"))
    assert [each.differences for each in outcomes] == [[]]
    text = FILE.with_name("lively-1.28.jsonl").read_text()
    assert "InitContainerRestartPolicyForbidden" in text
