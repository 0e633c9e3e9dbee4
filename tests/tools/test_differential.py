"""``python -m tools.differential`` without the Go program."""

import base64
import contextlib
import copy
import json
import re
from itertools import groupby
from pathlib import Path

import pytest

from devicemanager.core.versions.verified import VERIFIED
from devicemanager.core.versions.version import DEFAULT, NEWEST_KNOWN, Verified
from tests.paths import ROOT
from tests.tools.plants import PLANTS
from tools.differential import __main__ as differential
from tools.differential import building, coverage, ours, planting, recording, running, verified
from tools.differential.__main__ import main
from tools.differential.comparing import ABSENT, Seen, compare, expected
from tools.differential.deviations import DEVIATIONS
from tools.differential.facts import facts_of
from tools.differential.generating import scenario
from tools.differential.newest import newest_release
from tools.differential.running import Comparison
from tools.differential.shrinking import shrink
from tools.differential.versions import release, staging_version

RESOURCE = {
    "devices": [
        {"id": "gpu-0", "health": "Healthy", "numa": [0]},
        {"id": "gpu-1", "health": "Healthy", "numa": None},
    ],
    "preferred": "reverse",
}
SCENARIO = {
    "id": "one",
    "numa_nodes": [0],
    "policy": "none",
    "scope": "container",
    "policy_options": {},
    "resources": {"vendor.com/gpu": RESOURCE},
    "steps": [
        {
            "admit": {
                "uid": "pod-0",
                "init_containers": [],
                "containers": [{"name": "main", "limits": {"vendor.com/gpu": 1}}],
            }
        },
        {"stop": "vendor.com/gpu"},
        {"delete": "pod-0", "lists": True},
    ],
}
VERSION = "1.36.3"
NOTICED = json.loads(planting.DEVICES.noticed.read_text())
RECORDED = Path(__file__).parent / "data" / "differential.jsonl"
PARTS = 3
"""Number of tests that share the planted errors."""


@pytest.fixture(scope="module")
def played():
    return ours.play(SCENARIO, VERSION)


def answer(*runs):
    return {"runs": [copy.deepcopy(run["runs"][0]) for run in runs]}


def with_value(played, step, *path_and_value):
    """Return a run with another value."""
    *path, last, value = path_and_value
    made = copy.deepcopy(played)
    place = made["runs"][0]["steps"][step]
    for name in path:
        place = place[name]
    place[last] = value
    return made


def test_identical_outcomes_agree(played):
    assert compare(SCENARIO, VERSION, expected(answer(played, played)), played) == []


def test_different_message_is_a_disagreement(played):
    wanted = expected(answer(with_value(played, 0, "message", "no")))
    (found,) = compare(SCENARIO, VERSION, wanted, played)
    assert (found.step, found.path, found.expected, found.actual) == (0, "message", "no", "")
    assert found.deviation is None


def test_random_facts_have_one_of_the_values_seen(played):
    path = ("devices", "pod-0", "main", "vendor.com/gpu")
    other = with_value(played, 0, *path, ["gpu-0"])
    wanted = expected(answer(played, other, played, other))
    assert wanted.random[0]["devices pod-0 main vendor.com/gpu"] == Seen(
        [["gpu-0"], ["gpu-1"]], is_complete=True
    )
    assert wanted.steps[0]["count pod-0 main vendor.com/gpu"] == 1
    assert compare(SCENARIO, VERSION, wanted, played) == []
    found = compare(SCENARIO, VERSION, wanted, with_value(played, 0, *path, ["gpu-2"]))
    assert [each.text() for each in found] == [
        "step 0, devices pod-0 main vendor.com/gpu: the reference one of "
        "[['gpu-0'], ['gpu-1']], ours ['gpu-2']"
    ]


def test_random_facts_of_which_a_value_was_seen_once_are_not_compared(played):
    path = ("devices", "pod-0", "main", "vendor.com/gpu")
    wanted = expected(answer(played, with_value(played, 0, *path, ["gpu-0"])))
    assert wanted.is_open
    assert compare(SCENARIO, VERSION, wanted, with_value(played, 0, *path, ["gpu-2"])) == []


def test_missing_fact_is_a_disagreement(played):
    other = answer(played)
    del other["runs"][0]["steps"][1]["capacity"]["vendor.com/gpu"]
    (found,) = compare(SCENARIO, VERSION, expected(other), played)
    assert (found.step, found.path, found.expected) == (1, "capacity vendor.com/gpu", ABSENT)


@pytest.mark.parametrize(
    ("step", "path", "value"),
    [
        (0, ("affinity", "main"), {"nodes": [0], "preferred": False}),
        (0, ("calls",), []),
        (0, ("written",), False),
        (2, ("written",), True),
        (0, ("checkpoint",), base64.b64encode(b'{"Data":{},"Checksum":0}').decode()),
        (2, ("lists", "list", "pod_resources"), [{"name": "pod-0", "namespace": "other"}]),
        (2, ("lists", "allocatable", "cpu_ids"), ["1"]),
        (2, ("lists", "get missing", "code"), "NotFound"),
        (2, ("lists", "get missing", "error"), "pod missing in namespace default not found "),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_everything_is_compared(played, step, path, value):
    wanted = expected(answer(played))
    found = compare(SCENARIO, VERSION, wanted, with_value(played, step, *path, value))
    assert found
    assert {each.step for each in found} == {step}


def test_order_of_calls_is_compared(played):
    calls = played["runs"][0]["steps"][0]["calls"]
    assert [call["method"] for call in calls] == ["GetPreferredAllocation", "Allocate"]
    found = compare(
        SCENARIO, VERSION, expected(answer(played)), with_value(played, 0, "calls", calls[::-1])
    )
    assert [each.path for each in found] == ["calls", "calls of vendor.com/gpu"]


def test_checkpoint_is_compared_as_text(played):
    outcome = played["runs"][0]["steps"][0]
    text = facts_of(outcome)["checkpoint text"]
    assert text.startswith('{"Data":{"PodDeviceEntries":[{"PodUID":"pod-0","ContainerName":"main"')
    spaced = base64.b64decode(outcome["checkpoint"]).replace(b'":{', b'": {')
    other = {**outcome, "checkpoint": base64.b64encode(spaced).decode()}
    assert facts_of(other)["checkpoint text"] == f"{text} not as Go writes JSON"


def test_panic_of_the_kubelet_is_compared(played):
    panicked = answer(played)
    del panicked["runs"][0]["steps"][1:]
    panicked["runs"][0]["panic"] = "nil pointer"
    wanted = expected(panicked)
    (found,) = compare(SCENARIO, VERSION, wanted, played)
    assert found.text() == "step 1, panic: the reference nil pointer, ours None"
    mine = {"runs": [{**panicked["runs"][0], "panic": "panic: nil pointer (Q33)"}]}
    assert compare(SCENARIO, VERSION, wanted, mine) == []
    (found,) = compare(SCENARIO, VERSION, expected(answer(played)), mine)
    assert (found.step, found.path, found.expected) == (1, "panic", None)


def test_panic_that_a_random_choice_decides_is_not_compared(played):
    panicked = answer(played, played)
    del panicked["runs"][0]["steps"][1:]
    panicked["runs"][0]["panic"] = "nil pointer"
    assert compare(SCENARIO, VERSION, expected(panicked), played) == []


def test_devices_of_ended_pods_are_compared(played):
    # Until the next allocation or List, as in the kubelet (Q10).
    other = answer(played)
    other["runs"][0]["steps"][2]["devices"]["pod-0"] = {"main": {"vendor.com/gpu": ["gpu-1"]}}
    found = compare(SCENARIO, VERSION, expected(other), played)
    assert found
    assert {each.deviation for each in found} == {None}


def test_configuration_errors_are_compared(played):
    assert (
        compare(SCENARIO, VERSION, expected({"config_error": "bad"}), {"config_error": "bad"}) == []
    )
    (found,) = compare(SCENARIO, VERSION, expected({"config_error": "bad"}), played)
    assert (found.path, found.expected, found.actual) == ("config error", "bad", None)


def test_scenario_depends_only_on_name_and_version():
    assert scenario("7-3", 36) == scenario("7-3", 36) != scenario("7-4", 36)


def test_pods_live_in_half_of_the_scenarios():
    names = [f"9-{number}" for number in range(10)]
    reached = [coverage.reached(each, ours.play(each, VERSION)) for each in map(generated, names)]
    alive = sum("branch: pods live over several steps" in each for each in reached)
    assert alive >= len(names) / 2


def generated(name):
    return scenario(name, 36)


def test_coverage_counts_texts_steps_and_branches():
    reached = coverage.reached(SCENARIO, ours.play(SCENARIO, VERSION))
    assert {"step: admit", "step: stop", "branch: preference asked"} <= reached
    assert not any(each.startswith("text: ") for each in reached)


def test_long_run_fails_if_something_is_never_reached(monkeypatch, capsys, tmp_path, played):
    class FakeReference:
        def __init__(self, program):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, scenario, runs):
            return answer(*[played] * runs)

    monkeypatch.setattr("tools.differential.__main__.build", lambda version, jobs: tmp_path)
    monkeypatch.setattr("tools.differential.__main__.Reference", FakeReference)
    monkeypatch.setattr("tools.differential.__main__.scenarios", lambda *_: [SCENARIO])
    arguments = ["--kubelet-version", "1.36", "--scenarios", "1"]
    assert main(arguments) == 0
    assert main([*arguments, "--coverage"]) == 1
    out = capsys.readouterr().out
    assert "1.36.3: never reached in 1 scenarios: step: grace\n" in out
    assert "never reached in 1 scenarios: step: admit" not in out


def test_error_of_the_mock_is_a_finding(monkeypatch):
    def fail(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(ours, "play", fail)
    tally = Comparison(None, VERSION).run([SCENARIO], 10)
    ((found,),) = [each.disagreements for each in tally.findings]
    assert found.text() == "step 0, mock: the reference results, ours RuntimeError('broken')"


def test_wait_that_times_out_is_repeated_alone(played):
    answers = iter([{"failed": "the manager did not process a list"}])

    class Busy:
        def ask(self, scenario, runs):
            return next(answers, answer(played))

    tally = Comparison(Busy(), VERSION).run([SCENARIO], 10)
    assert tally.findings == []


class Rarely:
    """Reference that has the mock's value in one run of many requests."""

    def __init__(self, played, nth):
        self._played, self._nth, self.asked = played, nth, 0

    def ask(self, scenario, runs):
        self.asked += 1
        found = [copy.deepcopy(self._played) for _ in range(2)]
        for number, run in enumerate(found):
            if self.asked != self._nth or number:
                run["runs"][0]["steps"][0]["capacity"] = {"vendor.com/gpu": 7}
        return answer(*found)


@pytest.mark.parametrize(("nth", "findings"), [(3, 0), (20, 0), (100, 1)])
def test_rare_value_is_looked_for_in_many_runs(played, nth, findings):
    tally = Comparison(Rarely(played, nth), VERSION).run([SCENARIO], 10)
    assert len(tally.findings) == findings


def test_finding_that_disappears_when_it_is_shrunk_is_reported_whole(played, monkeypatch):
    comparison = Comparison(Rarely(played, 100), VERSION)
    (finding,) = comparison.run([SCENARIO], 10).findings
    monkeypatch.setattr(comparison, "_reference", Rarely(played, 2))
    monkeypatch.setattr("tools.differential.running.shrink", lambda scenario, shows: {**scenario})
    comparison._reference.asked = 1
    assert comparison.shrunk(finding) == finding


WITHOUT_GATE = {
    **SCENARIO,
    "feature_gates": {"ResourceHealthStatus": False},
    "steps": [
        SCENARIO["steps"][0],
        {
            "list": {
                "resource": "vendor.com/gpu",
                "devices": [
                    {"id": "gpu-0", "health": "Healthy", "numa": [0]},
                    {"id": "gpu-1", "health": "Unhealthy", "numa": None},
                ],
            }
        },
    ],
}


@pytest.mark.parametrize(
    ("updates", "expected_updates", "name"),
    [
        (["pod-0"], [], "health updates without the gate"),
        # A pod that has no device of the list.
        (["pod-1"], [], None),
        # The other direction.
        ([], ["pod-0"], None),
    ],
)
def test_deviation_has_a_value_and_a_direction(updates, expected_updates, name):
    mine = ours.play(WITHOUT_GATE, VERSION)
    wanted = expected(answer(with_value(mine, 1, "health_updates", expected_updates)))
    found = compare(WITHOUT_GATE, VERSION, wanted, with_value(mine, 1, "health_updates", updates))
    assert [each.deviation and each.deviation.name for each in found] == [name]


def test_default_quirks_differ_only_as_documented(played):
    mine = ours.play(SCENARIO, VERSION, ours.Mode(quirks="default"))
    wanted = expected(answer(played))
    found = compare(SCENARIO, VERSION, wanted, mine, "default")
    assert {each.deviation.name for each in found} >= {"Q29 write"}
    assert not [each for each in found if each.deviation is None]


@pytest.mark.parametrize(
    ("step", "path", "value"),
    [
        (0, ("message",), "no"),
        (1, ("capacity", "vendor.com/gpu"), 1),
        (1, ("status", "pod-0", "main", "vendor.com/gpu"), {"gpu-1": "Unknown"}),
        (1, ("health_updates",), ["pod-1"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_false_value_is_found_with_default_quirks(played, step, path, value):
    mine = with_value(ours.play(SCENARIO, VERSION, ours.Mode(quirks="default")), step, *path, value)
    found = compare(SCENARIO, VERSION, expected(answer(played)), mine, "default")
    assert [each.step for each in found if each.deviation is None] == [step]


ON_SOCKETS = {
    **SCENARIO,
    "steps": [
        SCENARIO["steps"][0],
        # Equal to the list before: the checkpoint is written again.
        {"list": {"resource": "vendor.com/gpu", "devices": RESOURCE["devices"]}},
        {"start": "pod-0"},
        {"register": {"resource": "gpu", "version": "v1beta1"}},
        {"register": {"resource": "gpu", "version": "v9"}},
        {"register": {"resource": "vendor.com/gpu", **RESOURCE, "same_socket": True}},
        {"list_old": {"resource": "vendor.com/gpu", "devices": RESOURCE["devices"][:1]}},
        {"stop_old": "vendor.com/gpu", "lists": True},
        {"watch": {"resource": "vendor.com/nic", **RESOURCE, "pre_start": True}},
        {"unwatch": "vendor.com/nic"},
        {"grace": 301},
        {
            "restart": {
                "reboot": True,
                "before": [{"resource": "vendor.com/gpu", **RESOURCE, "preferred": "listed"}],
            },
            "lists": True,
        },
    ],
}


def test_mock_does_the_same_with_plugins_on_sockets():
    in_memory, on_sockets = (
        ours.play(ON_SOCKETS, VERSION, ours.Mode(sockets=sockets)) for sockets in (False, True)
    )
    found = compare(ON_SOCKETS, VERSION, expected(answer(in_memory)), on_sockets)
    assert [each.text() for each in found] == []


def test_shrink_removes_what_does_not_matter():
    def shows(candidate):
        plugins = candidate["resources"].values()
        return any(each["id"] == "gpu-1" for plugin in plugins for each in plugin["devices"])

    smallest = shrink(SCENARIO, shows)
    assert smallest["steps"] == []
    (plugin,) = smallest["resources"].values()
    assert plugin == {
        "devices": [{"id": "gpu-1", "health": "Healthy", "numa": None}],
        "preferred": "",
    }


def test_release_accepts_a_release_or_its_minor():
    assert release("1.34") == release("1.34.4") == "1.34.4"
    with pytest.raises(ValueError, match=r"'1.20' is not supported: use one of 1\.25\.16"):
        release("1.20")


def test_unpublished_modules_come_from_another_release():
    assert staging_version("1.32.13", "k8s.io/kube-scheduler") == "v0.32.10"
    assert staging_version("1.32.13", "k8s.io/api") == "v0.32.13"


def test_documentation_lists_all_deviations():
    page = (ROOT / "docs/kubelet-behaviour.md").read_text()
    named = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", page.partition("## Compared with")[2], re.M)
    assert sorted(named) == sorted(["name", *(each.name for each in DEVIATIONS)])


def recorded():
    of_versions = groupby(recording.read(RECORDED), key=lambda each: each.version)
    return {version: list(of_version) for version, of_version in of_versions}


@pytest.mark.parametrize("version", sorted(recorded()))
def test_mock_agrees_with_recorded_reference(version):
    """Recorded with ``python -m tools.differential --record``."""
    for each in recorded()[version]:
        found = recording.differences(each)
        assert not found, (each.scenario["id"], [one.text() for one in found])


def test_recorded_line_is_read_and_compared(played, tmp_path):
    file = tmp_path / "one.jsonl"
    wanted = expected(answer(played))
    file.write_text(recording.line(VERSION, SCENARIO, wanted) + "\n")
    (read,) = recording.read(file)
    assert (read.version, read.scenario, read.expected) == (VERSION, SCENARIO, wanted)
    assert recording.differences(read) == []
    wanted.steps[0]["message"] = "no"
    wanted.steps[1].pop("capacity vendor.com/gpu")
    file.write_text(recording.line(VERSION, SCENARIO, wanted))
    (read,) = recording.read(file)
    assert [each.path for each in recording.differences(read)] == [
        "message",
        "capacity vendor.com/gpu",
    ]


def test_recorded_scenarios_are_selected_by_what_they_reach(played):
    wanted = expected(answer(played))
    agreeing = [
        ({**SCENARIO, "id": "one"}, wanted, frozenset({"a"})),
        ({**SCENARIO, "id": "all"}, wanted, frozenset({"a", "b", "c"})),
        ({**SCENARIO, "id": "no"}, wanted, frozenset()),
    ]
    lines = [json.loads(each) for each in recording.selected(VERSION, agreeing)]
    assert [each["scenario"]["id"] for each in lines] == ["all", "one"]


def test_recorded_scenarios_are_small():
    assert RECORDED.stat().st_size < 1_500_000


def test_there_are_enough_planted_errors():
    assert len(PLANTS) >= 34
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)


def test_planted_error_is_noticed():
    name = PLANTS[0].name
    assert planting.notices(0, RECORDED, NOTICED[name]) == NOTICED[name]


@pytest.mark.parametrize("part", range(PARTS))
def test_planted_errors_are_noticed(part):
    """In a few processes, because each imports the same libraries first."""
    wanted = dict([*NOTICED.items()][part::PARTS])
    assert planting.notices_all(planting.DEVICES, wanted) == wanted


def test_recorded_scenarios_notice_enough_planted_errors():
    assert len(NOTICED) >= 32


def test_plant_that_does_not_fit_its_module_is_an_error():
    plant = PLANTS[0]._replace(old="not there")
    with pytest.raises(planting.PlantError, match="already imported"), planting.planted(plant):
        pass


def reference(change):
    """Return a class like ``Reference``: the mock's outcomes, changed by a function."""

    class Fake(contextlib.nullcontext):
        def __enter__(self):
            return self

        def ask(self, asked, runs):
            found = answer(*[ours.play(asked, VERSION)] * 2)
            change(found)
            return found

    return Fake


def disagree(found):
    for run in found.get("runs", ()):
        run["steps"][0]["capacity"] = {"vendor.com/none": 1}


@pytest.mark.parametrize(
    ("change", "arguments", "stored"),
    [
        (lambda found: None, ["--verified"], [Verified(VERSION, 3, 5)]),
        (lambda found: None, [], []),
        (lambda found: None, ["--verified", "--scenario", "5-1"], []),
        (disagree, ["--verified", "--no-shrink"], []),
    ],
)
def test_only_a_whole_run_without_a_finding_is_stored(monkeypatch, change, arguments, stored):
    found = []
    monkeypatch.setattr(running, "_REPEATS", 0)
    monkeypatch.setattr(differential, "build", lambda version, *, jobs: Path())
    monkeypatch.setattr(differential, "Reference", reference(change))
    monkeypatch.setattr(differential, "store", found.append)
    main(["--kubelet-version", VERSION, "--scenarios", "3", "--seed", "5", *arguments])
    assert found == stored


def test_stored_comparison_replaces_the_one_of_its_minor(tmp_path):
    file, page = tmp_path / "verified.py", tmp_path / "page.md"
    file.write_text(verified.text({29: Verified("1.29.6", 10, 1), 36: Verified("1.36.1", 20, 2)}))
    verified.store(Verified("1.36.3", 3000, 3), file=file, page=page)
    assert file.read_text() == verified.text(
        {29: Verified("1.29.6", 10, 1), 36: Verified("1.36.3", 3000, 3)}
    )
    assert "\n| 1.36 | 1.36.3 | 3,000 | 3 |\n" in page.read_text()
    assert "\n| 1.37 | not compared, based only on its source code | | |\n" in page.read_text()


def test_stored_comparisons_were_written_by_the_tool():
    assert verified.FILE.read_text() == verified.text(VERIFIED)
    assert all(each.release == release(f"1.{number}") for number, each in VERIFIED.items())


def test_default_version_was_compared():
    assert DEFAULT in VERIFIED


@pytest.fixture
def go(monkeypatch, tmp_path):
    """Return a function that installs a ``go`` with this output."""

    def install(output):
        program = tmp_path / "go"
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{output}'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(building, "CACHE", tmp_path / "cache")

    return install


def test_newest_is_the_highest_release_that_the_proxy_lists(go):
    go("k8s.io/kubernetes v1.13.0 v1.36.10 v1.36.9 v1.9.1 v1.37.0-rc.1")
    assert newest_release() == "1.36.10"


def test_proxy_without_a_release_is_a_one_line_error(go, capsys):
    go("k8s.io/kubernetes")
    with pytest.raises(SystemExit, match="2"):
        main(["--kubelet-version", "newest"])
    error = capsys.readouterr().err
    assert error.endswith("Go's module proxy lists no release of Kubernetes\n")


def test_newest_release_of_an_unknown_minor_is_compared_with_the_newest_known(
    go, monkeypatch, capsys
):
    go(f"k8s.io/kubernetes v1.36.3 v1.{NEWEST_KNOWN + 1}.4")
    built = []
    monkeypatch.setattr(running, "_REPEATS", 0)
    monkeypatch.setattr(differential, "build", lambda version, *, jobs: built.append(version))
    monkeypatch.setattr(differential, "Reference", reference(lambda found: None))
    main(["--kubelet-version", "newest", "--scenarios", "1", "--no-shrink"])
    assert built == [f"1.{NEWEST_KNOWN + 1}.4"]
    known = f"1.{NEWEST_KNOWN}"
    first = f"1.{NEWEST_KNOWN + 1}.4 is newer than all known versions: compared with {known}"
    assert capsys.readouterr().out.splitlines()[0] == first


def test_missing_go_is_a_one_line_error(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["--kubelet-version", "1.34"]) == 2
    assert capsys.readouterr().err == (
        "differential: Go is not installed: the real device manager is written in it\n"
    )
