"""Scenarios of the DRA manager agree with the real kubelet, and wrong results are noticed."""

from __future__ import annotations

import copy
import json

import pytest

from devicemanager.core.versions.version import KubeletVersion
from tests.paths import SAMPLE
from tools.replay.__main__ import main
from tools.replay.dra import replay_file, replay_vector
from tools.replay.dra_expected import expected_steps
from tools.replay.report import ReplayError

FILE = SAMPLE / "dra-manager.jsonl"
SCENARIOS = [json.loads(line) for line in FILE.read_text().splitlines()]
VERSIONS = ("1.37", "1.36", "1.34")


@pytest.mark.parametrize("version", VERSIONS)
def test_sample_agrees(version):
    outcomes = list(replay_file(FILE, version))
    assert len(outcomes) > 40
    assert {each.id: each.differences for each in outcomes if each.differences} == {}


def first(**having):
    """Return a scenario with a step whose result has a field, and the number of the step."""
    ((name, kind),) = having.items()
    for scenario in SCENARIOS:
        if "1.36.3" in scenario.get("kubelet", ["1.36.3"]):
            for number, step in enumerate(scenario["expect"]):
                if isinstance(step.get(name), kind) and step[name]:
                    return copy.deepcopy(scenario), number
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("error", "other"),
        ("calls", []),
        ("writes", 77),
        ("wipes", ["spec.nodeName=other"]),
        ("prepared", ["default/other"]),
        ("checksum", 1),
        ("claims", []),
        ("file", "{}"),
        ("cdi", ["vendor.com/x=y"]),
        ("dynamic_resources", []),
        ("updates", ["other-uid"]),
    ],
)
def test_wrong_expectation_is_found(field, value):
    scenario, number = first(**{field: type(value)})
    scenario["expect"][number][field] = value
    version = KubeletVersion.parse("1.36")
    steps = expected_steps(scenario, version)
    assert steps is not None
    outcome = replay_vector("x", scenario, steps, version)
    assert any(f"step {number} " in each and field in each for each in outcome.differences)


def test_crash_is_a_difference():
    scenario = {**SCENARIOS[0], "ops": [{"op": "register", "instance": "gone"}]}
    outcome = replay_vector("x", scenario, [{}], KubeletVersion.parse("1.37"))
    assert outcome.differences == [
        "step 0 (register) error:\n  expected None\n  actual   'no manager'"
    ]
    scenario["ops"] = [{"op": "claim", "claim": 7}]
    (text,) = replay_vector("x", scenario, [{}], KubeletVersion.parse("1.37")).differences
    assert text.startswith("raised AttributeError")


def test_command(tmp_path, capsys):
    path = tmp_path / "file.jsonl"
    path.write_text(json.dumps(SCENARIOS[0]))
    assert main(["dra", str(path)]) == 0
    assert capsys.readouterr().out == "1 of 1 agree\n"
    with pytest.raises(ReplayError, match=r"no scenario has results of kubelet 1\.35"):
        list(replay_file(path, "1.35"))
    with pytest.raises(ReplayError, match="invalid kubelet version"):
        list(replay_file(path, "x"))
    path.write_text('{"id": "odd", "ops": []}')
    with pytest.raises(ReplayError, match="vector odd is not in the DRA format"):
        list(replay_file(path, "1.37"))
