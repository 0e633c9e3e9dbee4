"""``python -m tools.differential --dra`` without the Go program."""

from __future__ import annotations

import copy
import json
from itertools import groupby

import pytest

import checkpoint.dra
from checkpoint.dra import ClaimState, Device, DriverState, State
from devicemanager.core.versions.version import KubeletVersion
from tests.tools.dra_plants import PLANTS
from tools.differential import planting, recording
from tools.differential.__main__ import main
from tools.differential.building import BuildError
from tools.differential.comparing import Expected, Seen
from tools.differential.dra import coverage
from tools.differential.dra.facts import facts_of, with_known_changes
from tools.differential.dra.generating import scenario, scenarios, used
from tools.differential.dra.running import (
    RELEASES,
    compare,
    differences_of,
    expected_of,
    play,
)
from tools.differential.dra.shrinking import smaller
from tools.differential.shrinking import shrink
from tools.replay.dra_kubelet import DraKubelet

VERSION = "1.37.2"
SCENARIO = scenario("dra-test-2", 37)
NOTICED = json.loads(planting.DRA.noticed.read_text())


@pytest.fixture(scope="module")
def played():
    return play(SCENARIO, VERSION)


def answer(*runs):
    return {"runs": [copy.deepcopy(run["runs"][0]) for run in runs]}


def paths(wanted, played):
    found = compare(SCENARIO, VERSION, wanted, played)
    return [(each.step, each.path, each.deviation and each.deviation.name) for each in found]


def test_identical_outcomes_agree(played):
    assert paths(expected_of(answer(played, played)), played) == []


def test_differences_are_found(played):
    for number, step in enumerate(played["runs"][0]["steps"]):
        other = copy.deepcopy(played)
        other["runs"][0]["steps"][number] = {**step, "error": "other", "writes": 77}
        found = paths(expected_of(answer(played)), other)
        assert {(number, "error", None), (number, "writes", None)} <= set(found)


def test_random_order_may_be_another_permutation(played):
    call = {"method": "NodeUnprepareResources", "version": "v1", "claims": ["n/a/1", "n/b/2"]}

    def with_calls(*calls):
        run = copy.deepcopy(played)
        run["runs"][0]["steps"][0]["calls"] = list(calls)
        return run

    def of(*names):
        return {**call, "instance": "x", "claims": [f"n/{name}/u" for name in names]}

    seen = expected_of(answer(*[with_calls(of(*"abc")), with_calls(of(*"bca"))] * 2))
    assert paths(seen, with_calls(of(*"acb"))) == [(0, "order of claims of x", "order of a Go map")]
    found = paths(seen, with_calls(of(*"abd")))
    assert (0, "calls of x", None) in found
    # Without a random order, the order counts.
    fixed = expected_of(answer(with_calls(of(*"abc"))))
    assert paths(fixed, with_calls(of(*"acb"))) == [(0, "order of claims of x", None)]


def test_error_may_end_the_calls_in_another_order(played):
    def with_calls(*instances):
        run = copy.deepcopy(played)
        call = {"method": "NodePrepareResources", "version": "v1", "claims": ["n/a/1"]}
        run["runs"][0]["steps"][0]["calls"] = [{**call, "instance": each} for each in instances]
        return run

    seen = expected_of(answer(*[with_calls(*"bc"), with_calls(*"dbc")] * 2))
    assert paths(seen, with_calls(*"dc")) == [
        (0, "calls of b", None),
        (0, "order of calls", "order of a Go map"),
        (0, "order of claims of b", None),
    ]
    # The calls of each instance are compared on their own.
    assert (0, "calls of x", None) in paths(seen, with_calls(*"xc"))


def test_panic_of_a_lost_driver_is_a_deviation():
    claim = {"namespace": "ns", "name": "a", "uid": "1"}
    state = State((ClaimState("ns", "a", "1", drivers={"x": DriverState()}),))
    file = {"op": "file", "file": checkpoint.dra.dumps(state).decode()}
    prepare = {"op": "prepare", "pod": "p"}
    panic = "runtime error: invalid memory address or nil pointer dereference"
    wanted = expected_of({"runs": [{"steps": [{}, {}], "panic": panic}]})

    def name(drivers, version=VERSION, last=prepare, skip=()):
        results = [{"driver": each, "skip": [*skip]} for each in drivers]
        ops = [file, {"op": "claim", "claim": {**claim, "results": results}}, last]
        (found,) = compare({"ops": ops}, version, wanted, {"runs": [{"steps": [{}, {}]}]})
        return found.deviation and found.deviation.name

    assert name([]) == name("y") == "panic of a lost driver"
    assert name("x", skip=["NodePrepareResources"]) == "panic of a lost driver"
    assert (
        name("x")
        is name("xy")
        is name("x", skip=["NodeUnprepareResources"])
        is name([], "1.32.13")
        is None
    )
    assert name([], last={"op": "unprepare", "pod": "p"}) is None


@pytest.mark.parametrize(
    ("version", "ours", "accepted"),
    [
        ("1.32.13", "", True),
        ("1.32.13", "abab", True),
        # The kubelet has no device of another answer, and no more than one answer per attempt.
        ("1.32.13", "abc", False),
        ("1.32.13", "ababab", False),
        # Q35 is fixed.
        ("1.37.2", "", False),
    ],
)
def test_a_retry_adds_devices(version, ours, accepted):
    ops = [{"op": "prepare"}, {"op": "begin", "do": {"op": "prepare"}}, {"op": "container"}]

    def with_cdi(ids):
        return {"runs": [{"steps": [{}, {}, {"cdi": list(ids)}], "panic": None}]}

    for seen in (("ab", "abab") if ours == "" else ("", "ab")), ("ab", "ab"):
        wanted = expected_of(answer(*map(with_cdi, seen * 2)))
        found = compare({"ops": ops}, version, wanted, with_cdi(ours))
        is_random = len(set(seen)) > 1
        names = {each.deviation and each.deviation.name for each in found}
        assert names == {"devices of retries" if accepted and is_random else None}


def test_a_file_of_a_retry_has_other_devices():
    def with_file(count, pod="p"):
        device = Device("pool", "a")
        claim = ClaimState(
            "ns", "a", "1", pods=frozenset((pod,)), drivers={"x": DriverState((device,) * count)}
        )
        text = checkpoint.dra.dumps(State((claim,))).decode()
        return {"runs": [{"steps": [{}, {"file": text}], "panic": None}]}

    scenario = {"ops": [{"op": "prepare"}, {"op": "prepare"}]}
    wanted = expected_of(answer(*map(with_file, (0, 1, 0, 1))))

    def names(ours):
        found = compare(scenario, "1.32.13", wanted, ours)
        return {each.path: each.deviation and each.deviation.name for each in found}

    assert names(with_file(1)) == {}
    assert names(with_file(2)) == dict.fromkeys(("claims", "file"), "devices of retries")
    assert names(with_file(3)) == names(with_file(2, "q")) == {"claims": None, "file": None}


@pytest.mark.parametrize(
    ("ours", "accepted"),
    # Seen: x has prepared the claim, x and y have, or none has. A rotation without x is impossible.
    [((0, 1), True), ((0, 2), False), ((2, 0), False)],
)
def test_another_driver_was_called_before_the_one_that_fails(ours, accepted):
    def with_numbers(x, y, pod="p"):
        drivers = {
            name: DriverState((Device("pool", "a"),) * count)
            for name, count in (("x", x), ("y", y), ("z", 0))
        }
        claim = ClaimState("ns", "a", "1", pods=frozenset((pod,)), drivers=drivers)
        text = checkpoint.dra.dumps(State((claim,))).decode()
        return {"runs": [{"steps": [{}, {"file": text}], "panic": None}]}

    scenario = {"ops": [{"op": "prepare"}, {"op": "prepare"}]}
    seen = [with_numbers(*each) for each in ((1, 0), (1, 1), (0, 0))] * 2

    def names(wanted, played):
        found = compare(scenario, VERSION, wanted, played)
        return {each.path: each.deviation and each.deviation.name for each in found}

    name = "order of a Go map" if accepted else None
    assert names(expected_of(answer(*seen)), with_numbers(*ours)) == {"claims": name, "file": name}
    missing = {"runs": [{"steps": [{}, {}], "panic": None}]}
    without = expected_of(answer(*[seen[0], missing, seen[1]] * 2))
    assert names(without, with_numbers(*ours)) == {"claims": name, "file": name}
    # Another pod, or a value that is not random.
    assert set(names(expected_of(answer(*seen)), with_numbers(*ours, "q")).values()) == {None}
    assert set(names(expected_of(answer(*seen[:1] * 2)), with_numbers(*ours)).values()) == {None}


def test_order_of_claims_in_the_file_is_not_compared():
    one, two = ClaimState("ns", "a", "1"), ClaimState("ns", "b", "2")
    texts = [checkpoint.dra.dumps(State(each)).decode() for each in ((one, two), (two, one))]
    first, second, third = with_known_changes([{"file": text} for text in (*texts, "{}")])
    assert (first["file"], second, third) == (texts[0], {}, {"file": "{}"})
    facts = facts_of(first)
    assert facts["file"] == checkpoint.dra.checksum(State((one, two)))
    assert facts["claims"] == [["ns/a", "1", [], {}], ["ns/b", "2", [], {}]]
    assert facts_of({"file": "{ }"}) == {"file": "{ }"}


def test_transport_errors_are_one_text():
    lost = "rpc error: code = Unavailable desc = connection refused"
    assert facts_of({"error": lost})["error"].endswith("desc = TRANSPORT")
    own = "rpc error: code = Unavailable desc = driver: not now"
    assert facts_of({"error": own})["error"] == own


@pytest.mark.parametrize("release", RELEASES)
def test_scenarios_are_repeatable_and_use_all_operations(release):
    minor = KubeletVersion.parse(release).minor
    made = list(scenarios(3, 150, minor))
    assert made == list(scenarios(3, 150, minor))
    wanted = {name[4:] for name in coverage.listed(release) if name.startswith("op: ")}
    assert wanted <= set().union(*map(used, made))


@pytest.mark.parametrize("release", RELEASES)
def test_mock_plays_random_scenarios(release):
    version = KubeletVersion.parse(release)
    for made in scenarios(4, 8, version.minor):
        kubelet = DraKubelet(made, version)
        for op in made["ops"]:
            kubelet.step(op)


def test_scenario_is_shrunk():
    def shows(candidate):
        return any(op["op"] == "reconcile" for op in candidate["ops"])

    smallest = shrink(scenario("dra-test-4", 37), shows, smaller=smaller)
    assert [op["op"] for op in smallest["ops"]] == ["reconcile"]
    assert (smallest["pods"], smallest["instances"]) == ({}, {})


def test_coverage():
    steps = [{"error": "prepare dynamic resources: ResourceClaim c1: not allocated"}]
    done = {"ops": [{"op": "prepare"}]}
    found = coverage.reached(done, {"runs": [{"steps": steps}]})
    assert {"op: prepare", "text: as in v1.36 not_allocated"} <= found
    left = coverage.missing(dict.fromkeys(found, 1), VERSION)
    assert "op: prepare" not in left
    assert "text: as in v1.36 fetch" in left
    assert not any("v1.32" in name for name in left)
    assert len(list(coverage.table({}, 3, VERSION))) == len(coverage.listed(VERSION)) + 1


def test_command_needs_go(monkeypatch, capsys):
    def failing(*_, **__):
        raise BuildError("Go is not installed")

    monkeypatch.setattr("tools.differential.building.build", failing)
    assert main(["--dra", "--kubelet-version", "1.36"]) == 2
    assert capsys.readouterr().err == "differential: Go is not installed\n"


def of_versions():
    lines = recording.read(planting.DRA.recorded)
    return {name: list(each) for name, each in groupby(lines, key=lambda each: each.version)}


@pytest.mark.parametrize("version", of_versions())
def test_recorded_scenarios_agree(version):
    for each in of_versions()[version]:
        assert differences_of(each) == [], each.scenario["id"]


def test_recorded_scenarios_are_small():
    assert planting.DRA.recorded.stat().st_size < 500_000
    assert isinstance(next(recording.read(planting.DRA.recorded)).expected, Expected)
    assert Seen([1], True).is_complete


def test_at_least_twenty_plants_are_noticed():
    assert len(PLANTS) >= 20
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)
    assert len(NOTICED) >= planting.DRA.least
    assert planting.notices_all(planting.DRA, NOTICED) == NOTICED


def test_panic_of_pod_resources_is_a_deviation():
    steps = {"runs": [{"steps": []}]}
    panic = "runtime error: invalid memory address or nil pointer dereference"
    wanted = expected_of({"runs": [{"steps": [], "panic": panic}]})
    of_list = {**SCENARIO, "ops": [{"op": "pod_resources"}]}
    (found,) = compare(of_list, "1.32.13", wanted, steps)
    assert found.deviation is not None
    assert found.deviation.name == "panic of PodResources"
    for scenario_, version in ((of_list, "1.37.2"), ({"ops": [{"op": "start"}]}, "1.32.13")):
        (found,) = compare(scenario_, version, wanted, steps)
        assert found.deviation is None
