"""``python -m tools.differential`` without the Go program."""

import contextlib
import copy
import re
from itertools import groupby
from pathlib import Path

import pytest

from devicemanager.core.versions.verified import VERIFIED
from devicemanager.core.versions.version import DEFAULT, NEWEST_KNOWN, Verified
from tests.paths import ROOT
from tools.differential import __main__ as differential
from tools.differential import building, ours, recording, verified
from tools.differential.__main__ import main
from tools.differential.comparing import ABSENT, compare, expected
from tools.differential.deviations import DEVIATIONS
from tools.differential.generating import scenario
from tools.differential.newest import newest_release
from tools.differential.shrinking import shrink
from tools.differential.versions import release, staging_version

SCENARIO = {
    "id": "one",
    "numa_nodes": [0],
    "policy": "none",
    "scope": "container",
    "policy_options": {},
    "resources": {
        "vendor.com/gpu": {
            "devices": [
                {"id": "gpu-0", "health": "Healthy", "numa": [0]},
                {"id": "gpu-1", "health": "Healthy", "numa": None},
            ],
            "preferred": "reverse",
            "allocate_error": "",
        }
    },
    "steps": [
        {
            "admit": {
                "uid": "pod-0",
                "init_containers": [],
                "containers": [{"name": "main", "limits": {"vendor.com/gpu": 1}}],
            }
        },
        {"stop": "vendor.com/gpu"},
        {"delete": "pod-0"},
    ],
}
VERSION = "1.36.3"
RECORDED = Path(__file__).parent / "data" / "differential.jsonl"


@pytest.fixture(scope="module")
def played():
    return ours.play(SCENARIO, VERSION)


def answer(*runs):
    return {"runs": [copy.deepcopy(run["runs"][0]) for run in runs]}


def test_identical_outcomes_agree(played):
    assert compare(SCENARIO, VERSION, expected(answer(played, played)), played) == []


def test_different_message_is_a_disagreement(played):
    other = answer(played)
    other["runs"][0][0]["message"] = "no"
    (found,) = compare(SCENARIO, VERSION, expected(other), played)
    assert (found.step, found.path, found.expected, found.actual) == (0, "message", "no", "")
    assert found.deviation is None


def test_facts_that_differ_between_runs_are_random(played):
    first, second = answer(played), answer(played)
    second["runs"][0][0]["devices"]["pod-0"]["main"]["vendor.com/gpu"] = ["gpu-0"]
    wanted = expected({"runs": [*first["runs"], *second["runs"]]})
    assert "devices pod-0 main vendor.com/gpu" in wanted.random[0]
    assert wanted.steps[0]["count pod-0 main vendor.com/gpu"] == 1
    assert compare(SCENARIO, VERSION, wanted, played) == []


def test_missing_fact_is_a_disagreement(played):
    other = answer(played)
    del other["runs"][0][1]["capacity"]["vendor.com/gpu"]
    (found,) = compare(SCENARIO, VERSION, expected(other), played)
    assert (found.step, found.path, found.expected) == (1, "capacity vendor.com/gpu", ABSENT)


def test_devices_of_ended_pods_are_compared(played):
    # Until the next allocation or List, as in the kubelet (Q10).
    other = answer(played)
    other["runs"][0][2]["devices"]["pod-0"] = {"main": {"vendor.com/gpu": ["gpu-1"]}}
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
        "allocate_error": "",
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
    file.write_text(recording.line(VERSION, SCENARIO, wanted))
    (read,) = recording.read(file)
    assert [each.path for each in recording.differences(read)] == ["message"]


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
    for outcomes in found.get("runs", ()):
        outcomes[0]["capacity"] = {"vendor.com/none": 1}


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
    assert "\n| 1.37 | not compared, only read | | |\n" in page.read_text()


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
