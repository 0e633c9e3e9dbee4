"""Selecting checks, limits, hooks, and how the runner reaches its verdicts."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import attrs
import pytest

from devicemanager.conformance import (
    Check,
    CheckError,
    CheckRun,
    Failed,
    Hardware,
    Limits,
    Outcome,
    PluginUnderTest,
    Scene,
    Severity,
    Skipped,
    Stages,
    all_checks,
    check,
    pytest_checks,
    run,
    select,
    write,
)
from devicemanager.conformance.checks.lifecycle import (
    limited_inotify,
    why_inotify_cannot_be_limited,
)
from devicemanager.conformance.drivers import DRIVERS
from devicemanager.conformance.outcomes import HookFailed
from devicemanager.conformance.registry import addresses
from devicemanager.conformance.report import Cause
from devicemanager.conformance.reports.text import explain
from devicemanager.conformance.runner import Lane, in_order, take_lane
from devicemanager.conformance.running_plugin import RunningPlugin
from devicemanager.conformance.suite import PLUGINS
from devicemanager.kubelet.settings import Settings
from podresources.sockets import MAX_PATH_BYTES
from tests.conformance.matrix import HOOKS, RESOURCE, limits, plugin
from tests.paths import ROOT
from tools.conformance_page import PAGE, page

SETTINGS = Settings(durability="process")


def test_texts_name_no_other_check() -> None:
    """The runner adds the name, because it knows whether that check has failed."""
    for path in (ROOT / "devicemanager/conformance").glob("**/checks/*.py"):
        assert not re.search(r"(Failed|Skipped)\([^)]*see check", path.read_text()), path


_Z = {
    id_: check(
        id_,
        Severity.MUST,
        id_,
        does="d",
        expects="e",
        production="usual",
        scene=Scene.OWN,
        needs_registration=False,
    )
    for id_ in ("Z01", "Z02")
}


def _raises(error: Exception | None) -> Callable[[CheckRun], None]:
    def function(run: CheckRun) -> None:
        if error is not None:
            raise error

    return function


@pytest.mark.parametrize("cause", [Failed("cause"), Skipped("does not apply"), None])
@pytest.mark.parametrize("error", [Failed, Skipped])
def test_check_names_another_one_only_if_that_failed(
    error: Callable[..., Exception], cause: Exception | None
) -> None:
    checks = [_Z["Z01"](_raises(error("odd", cause="Z02"))), _Z["Z02"](_raises(cause))]
    published: list[str] = []
    report = run(
        _sleeping(resources=(RESOURCE,)),
        checks,
        limits=_SOON,
        settings=SETTINGS,
        on_verdict=lambda verdict: published.append(f"{verdict.check.id} {verdict.seen}".strip()),
    )
    first, _ = report.verdicts
    has_failed = isinstance(cause, Failed)
    alone = Outcome.FAIL if error is Failed else Outcome.SKIP
    assert first.outcome is (Outcome.SKIP if has_failed else alone)
    assert first.seen == ("odd: see check Z02" if has_failed else "odd")
    assert published == [f"Z02 {cause or ''}".strip(), f"Z01 {first.seen}"]
    causes = {each["check"]: each["skipped"] for each in map(Cause.data, report.causes)}
    assert causes.get("Z02") == (["Z01"] if has_failed else None)


def test_step_that_failed_in_its_own_check_is_not_tried_by_another() -> None:
    tried: list[str] = []

    def shown(run: CheckRun) -> None:
        with run.verifying("Z01"):
            raise Failed("no list")

    def assumed(run: CheckRun) -> None:
        with run.assuming("Z01"):
            tried.append("assumed")
            raise Failed("no list, after a long wait")

    def verdicts(*checks: Check) -> list[str]:
        known = _sleeping(resources=(RESOURCE,))
        found = run(known, checks, jobs=1, limits=_SOON, settings=SETTINGS).verdicts
        return [f"{each.outcome.value} {each.seen}" for each in found]

    assert verdicts(_Z["Z02"](assumed)) == ["skip no list, after a long wait: see check Z01"]
    assert tried == ["assumed"]
    # Z02 stands first, but begins after the check whose step it assumes.
    after = attrs.evolve(_Z["Z02"](assumed), assumes=("Z01",))
    assert verdicts(after, _Z["Z01"](shown)) == [
        "skip would repeat a failure: see check Z01",
        "fail no list",
    ]
    assert tried == ["assumed"]


def test_check_that_was_not_selected_is_named() -> None:
    [verdict] = run(
        _sleeping(resources=(RESOURCE,)),
        [_Z["Z01"](_raises(Skipped("odd", cause="Z02")))],
        limits=_SOON,
        settings=SETTINGS,
    ).verdicts
    assert (verdict.seen, verdict.cause) == ("odd: see check Z02", "")


def test_symptom_of_a_failure_replaces_that_of_its_check() -> None:
    for failed, symptom in ((Failed("x", symptom="other"), "other"), (Failed("x"), "usual")):
        [verdict] = run(
            _sleeping(resources=(RESOURCE,)),
            [_Z["Z01"](_raises(failed))],
            limits=_SOON,
            settings=SETTINGS,
        ).verdicts
        assert verdict.data()["production"] == symptom
        assert f"on a node: {symptom}\n" in explain(verdict)


def test_every_check_has_all_texts() -> None:
    for each in all_checks():
        for text in (each.title, each.does, each.expects, each.production):
            assert text and text == text.strip() and not text.endswith("."), each.id
        assert all(link.startswith("https://") for link in each.links), each.id


def test_checks_are_ordered_by_family_and_number() -> None:
    ids = [each.id for each in all_checks()]
    assert ids[0] == "R01" and ids[-1] == "L11"
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids, key=lambda id_: ("RKWTOAPSL".index(id_[0]), id_))


def test_no_check_waits_for_a_later_one() -> None:
    ids = [each.id for each in in_order(all_checks())]
    for each in all_checks():
        assert all(ids.index(cause) < ids.index(each.id) for cause in each.follows), each.id
    # They take longest if the plugin does not register again.
    assert ids.index("K08") < ids.index("R06")


def test_lane_that_need_not_wait_is_taken_first() -> None:
    decided: set[str] = set()
    lanes = [Lane([each], list) for each in select(["K02", "R06"])]
    lanes.sort(key=lambda lane: lane.checks[0].id)
    assert lanes[0].checks[0].repeats == ("K01",)

    def take() -> str:
        return take_lane(lanes, decided.__contains__).checks[0].id

    assert take() == "R06"
    assert take() == "K02"
    lanes += [Lane([each], list) for each in select(["R06"])]
    lanes.insert(0, Lane(select(["K02"]), list))
    decided.add("K01")
    assert take() == "K02"


def test_texts_name_the_real_limit_of_socket_paths() -> None:
    [r05] = select(["R05"])
    assert r05.expects == f"at most {MAX_PATH_BYTES} bytes"


def test_select_chooses_ids_and_families() -> None:
    assert [each.id for each in select(["K01", "T"])] == ["K01", "T01", "T02", "T03"]
    assert {each.family for each in select(skip="KLWA")} == set("RTOPS")
    with pytest.raises(CheckError, match=r"^unknown check 'K99': use an ID such as K01"):
        select(["K99"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("patience=3", "unknown limit 'patience': use one of start_seconds"),
        ("restarts=many", "invalid limit 'restarts=many': expected restarts=NUMBER"),
        ("restarts", "invalid limit 'restarts': expected restarts=NUMBER"),
        ("restarts=-1", "invalid limit restarts -1.0: expected a number of at least 1"),
        ("restarts=1.5", "invalid limit restarts 1.5: expected a whole number"),
        ("start_seconds=inf", "invalid limit start_seconds inf: expected a number of at least 0"),
    ],
)
def test_invalid_limits_are_rejected(setting: str, message: str) -> None:
    with pytest.raises(CheckError, match="^" + message):
        Limits().overridden([setting])


def test_limits_are_overridden_by_name() -> None:
    assert Limits().overridden(["restarts=3", "idle_seconds=0.5"]) == Limits(
        restarts=3, idle_seconds=0.5
    )


def test_invalid_plugins_are_rejected() -> None:
    with pytest.raises(CheckError, match=r"^the command is missing"):
        PluginUnderTest(command=[])
    with pytest.raises(CheckError, match=r"^unknown hook 'brake-device'"):
        PluginUnderTest(command=["x"], hooks={"brake-device": "true"})


def test_failed_shell_hook_shows_status_and_output() -> None:
    broken = PluginUnderTest(
        command=["x"], hooks={"add-device": "echo first; echo no room in {plugin_dir}; exit 3"}
    )
    text = "the hook add-device failed with status 3: no room in /tmp/a b: correct its command: "
    with pytest.raises(HookFailed, match=f"^{text}echo first; echo no room"):
        broken.call("add-device", {"plugin_dir": "/tmp/a b"})
    silent = PluginUnderTest(command=["x"], hooks={"add-device": "exit 3"})
    with pytest.raises(HookFailed, match=r"failed with status 3: no output: .*: exit 3$"):
        silent.call("add-device", {})


def test_exception_in_a_python_hook_is_a_failure() -> None:
    def gone(values: Mapping[str, str]) -> None:
        raise ProcessLookupError(3, "No such process")

    broken = PluginUnderTest(command=["x"], hooks={"add-device": gone})
    text = r"^the hook add-device failed: ProcessLookupError: .*No such process"
    with pytest.raises(HookFailed, match=text):
        broken.call("add-device", {})


@pytest.mark.parametrize(("is_running", "error"), [(True, HookFailed), (False, Failed)])
def test_failed_hook_of_an_exited_plugin_is_the_failure_of_the_plugin(
    is_running: bool, error: type[Exception]
) -> None:
    running: Any = RunningPlugin(
        PluginUnderTest(command=["x"], hooks={"add-device": "kill {pid}"}),
        SimpleNamespace(plugin_dir="/p", root="/r"),  # type: ignore[arg-type]
    )
    running.processes.append(
        SimpleNamespace(is_running=is_running, pid="none", exit_status=2, output=list)
    )
    with pytest.raises(error) as raised:
        running.change("add-device")
    assert ("before the hook add-device: exit status 2" in str(raised.value)) is not is_running


def test_failed_hook_does_not_fail_the_plugin() -> None:
    typo = attrs.evolve(
        plugin(), resources=(RESOURCE,), hooks={"break-device": "echo no card; exit 4"}
    )
    report = run(typo, select(["W07"]), limits=limits(), settings=SETTINGS)
    [verdict] = report.verdicts
    assert verdict.outcome is Outcome.ERROR and report.exit_status() == 2
    assert report.profile_text == "no profile passed: W07 could not run"
    assert verdict.seen.startswith("the hook break-device failed with status 4: no card: ")
    assert not any("recover-device" in line.text for line in verdict.timeline)


@pytest.mark.parametrize("jobs", [1, 3])
def test_failed_hook_is_reported_once(jobs: int) -> None:
    typo = attrs.evolve(plugin(), resources=(RESOURCE,), hooks={**HOOKS, "break-device": "exit 4"})
    report = run(typo, select(["W07", "W08", "W09"]), limits=limits(), settings=SETTINGS, jobs=jobs)
    [error] = report.of(Outcome.ERROR)
    skipped = report.of(Outcome.SKIP)
    assert len(skipped) == 2 and all(
        each.cause == error.check.id and each.seen.endswith(f"see check {error.check.id}")
        for each in skipped
    ), skipped
    [cause] = report.causes
    assert cause.verdict is error and set(cause.skipped) == set(skipped)


def test_a_plugin_that_sends_each_list_once_is_skipped() -> None:
    report = run(plugin("stale-handlers"), select(["W13"]), limits=limits(), settings=SETTINGS)
    [verdict] = report.verdicts
    assert verdict.outcome is Outcome.SKIP
    assert "it sends each list to only one stream" in verdict.seen


def test_failed_hook_before_the_start_is_reported_once() -> None:
    unprepared = _sleeping(resources=(RESOURCE,), hooks={"prepare": "exit 4"})
    report = run(unprepared, select(["R01", "K01", "W01"]), limits=_SOON, settings=SETTINGS)
    assert [each.outcome for each in report.verdicts] == [Outcome.ERROR, *[Outcome.SKIP] * 2]
    assert report.exit_status() == 2
    assert {each.seen for each in report.of(Outcome.SKIP)} == {
        "the plugin could not be started: see check R01"
    }
    with pytest.raises(CheckError, match=r"^the hook prepare failed with status 4: no output"):
        run(attrs.evolve(unprepared, resources=()), select(["R01"]), settings=SETTINGS)


def test_unknown_source_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"^invalid source 'unknown#3'"):
        addresses("DOC, unknown#3")


def _check(scene: Scene, run: object, id_: str = "K01") -> Check:
    [real] = select([id_])
    return attrs.evolve(real, scene=scene, run=run)


def test_own_check_runs_and_is_reported(tmp_path: Path) -> None:
    """In formats that group checks by family, too."""

    @check("Z01", Severity.MUST, "has a title", does="d", expects="e", production="p", links="DOC")
    def own(run: CheckRun) -> str:
        return f"{len(run.healthy_ids())} devices"

    known = attrs.evolve(plugin(), resources=(RESOURCE,))
    report = run(known, [own], settings=SETTINGS)
    assert [each.seen for each in report.of(Outcome.PASS)] == ["4 devices"]
    for form in ("html", "junit"):
        write(report, form, tmp_path / form)
        assert "Z01" in (tmp_path / form).read_text()


@pytest.mark.parametrize("id_", ["K99", "Z1", "z01"])
def test_own_check_needs_an_id_outside_the_families(id_: str) -> None:
    with pytest.raises(ValueError, match=f"^invalid check ID '{id_}': use a letter and two digits"):
        check(id_, Severity.INFO, "x", does="x", expects="x", production="x")


def test_unexpected_exception_is_an_error_of_the_suite() -> None:
    def wrong(run: CheckRun) -> None:
        raise KeyError("bug")

    known = attrs.evolve(plugin(), resources=(RESOURCE,))
    report = run(known, [_check(Scene.OWN, wrong)], settings=SETTINGS)
    assert report.exit_status() == 2
    assert report.verdicts[0].seen == "KeyError: 'bug'"


def test_failure_has_a_timeline() -> None:
    def fails(run: CheckRun) -> None:
        run.start()
        run.step("compare")
        raise Failed("different")

    [verdict] = run(plugin(), [_check(Scene.OWN, fails)], limits=limits(), seed=9,
                    settings=SETTINGS).verdicts  # fmt: skip
    assert verdict.outcome is Outcome.FAIL
    texts = [line.text for line in verdict.timeline]
    assert {line.source for line in verdict.timeline} == {"suite", "kubelet", "call"}
    assert any("compare" in text for text in texts)
    assert any("Register" in text for text in texts)
    assert [line.time for line in verdict.timeline] == sorted(
        line.time for line in verdict.timeline
    )


def test_plugin_that_exits_at_once_ends_the_run() -> None:
    silent = PluginUnderTest(command=[sys.executable, "-c", "print('no such device')"])
    with pytest.raises(
        CheckError, match=r"^the plugin exited before it .*: exit status 0.*no such dev"
    ):
        run(silent, select(["R01"]), settings=SETTINGS)


def _sleeping(**more: object) -> PluginUnderTest:
    return attrs.evolve(PluginUnderTest(command=["sleep", "100"]), **more)  # type: ignore[arg-type]


_SOON = Limits(start_seconds=0.5, stop_seconds=0.1, settle_seconds=0.1)


@attrs.define
class Starts:
    """Hook ``prepare`` that counts the starts of the plugin."""

    count: int = 0

    def __call__(self, values: Mapping[str, str]) -> None:
        self.count += 1


def test_wait_for_an_unregistered_plugin_gives_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """While waiting, and in the final error."""
    monkeypatch.setattr("devicemanager.conformance.suite_run._FIRST_NOTE_SECONDS", 0.0)
    lines: list[str] = []
    with pytest.raises(CheckError) as raised:
        run(_sleeping(), select(["R01"]), limits=_SOON, settings=SETTINGS, on_wait=lines.append)
    [line] = lines
    note = re.fullmatch(
        r"after 0 s, the plugin has not registered at (/.*/kubelet\.sock) \(limit 0\.5 s\); only "
        r"DEVICE_PLUGIN_DIRECTORY names the directory: .* if the plugin has a fixed path",
        line,
    )
    assert note
    assert str(raised.value) == (
        "the plugin did not register within 0.5 s (limit start_seconds): nothing called Register "
        f"at {note[1]}; only DEVICE_PLUGIN_DIRECTORY names the directory: use {{plugin_dir}} in "
        "the command or in --env, or --at-node-paths if the plugin has a fixed path. "
        "It printed: nothing"
    )


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({"at_node_paths": True}, "kubelet.sock in /var/lib/kubelet/device-plugins"),
        ({"env": {"WHERE": "{root}/x"}}, "kubelet.sock in the directory from its environment"),
        (
            {"command": ("./plugin", "--dir={plugin_dir}")},
            "kubelet.sock in the directory from its command",
        ),
        ({}, "only DEVICE_PLUGIN_DIRECTORY names the directory"),
    ],
)
def test_advice_depends_on_how_the_plugin_finds_the_kubelet(
    more: Mapping[str, object], advice: str
) -> None:
    assert advice in _sleeping(**more).advice


def test_only_one_start_waits_for_an_unregistered_plugin() -> None:
    """Without R01, the first check fails instead, and no other check waits."""
    starts = Starts()
    silent = _sleeping(resources=(RESOURCE,), hooks={"prepare": starts})
    report = run(silent, select(["K01", "K02", "W01", "L05"]), limits=_SOON, settings=SETTINGS)
    assert [each.outcome for each in report.verdicts] == [Outcome.FAIL] + [Outcome.SKIP] * 3
    [first, *others] = (each.seen for each in report.verdicts)
    assert first.startswith(
        f"{RESOURCE} is not registered, 0.5 s after its start: nothing called R"
    )
    assert {*others} == {"the plugin does not register: see check K01"}
    assert {each.cause for each in report.of(Outcome.SKIP)} == {"K01"}
    assert starts.count == 1
    # With R01, checks of attempts to register are not tried again either.
    starts.count = 0
    chosen = select(["R"], ["R06", "R07", "R08", "R09", "R10", "R11", "R12", "R13"])
    report = run(silent, chosen, limits=_SOON, settings=SETTINGS)
    assert [each.outcome for each in report.verdicts] == [Outcome.FAIL] + [Outcome.SKIP] * 4
    assert {each.seen for each in report.of(Outcome.SKIP)} == {
        "the plugin did not try to register: see check R01"
    }
    assert starts.count == 1


def test_plugin_that_gives_up_register_and_retries_is_only_warned_about() -> None:
    slow = attrs.evolve(limits(), register_delay_seconds=2.0)
    [verdict] = run(
        plugin("short-register"), select(["R07"]), limits=slow, settings=SETTINGS
    ).verdicts
    assert verdict.outcome is Outcome.WARN
    assert verdict.seen.startswith(f"the plugin gave up Register of {RESOURCE} after ")


def test_k14_is_skipped_if_responses_name_no_file() -> None:
    [verdict] = run(plugin(), select(["K14"]), limits=limits(), settings=SETTINGS).verdicts
    assert verdict.outcome is Outcome.SKIP


def test_w14_accepts_removed_devices_that_are_listed_as_unhealthy() -> None:
    """A plugin with a fixed number of devices lists them all."""
    hooks = {
        "remove-device": HOOKS["break-device"],
        "add-device": lambda values: HOOKS["recover-device"]({**values, "id": "device-0"}),
    }
    fixed = attrs.evolve(plugin(), hooks=hooks)
    [verdict] = run(fixed, select(["W14"]), limits=limits(), settings=SETTINGS).verdicts
    assert verdict.outcome is Outcome.PASS, verdict.seen


def test_device_that_w07_broke_is_recovered() -> None:
    """Otherwise later checks lack it, and the user's directory stays damaged."""
    called: list[str] = []
    hooks = {
        "break-device": lambda values: called.append(f"break {values['id']}"),
        "recover-device": lambda values: called.append(f"recover {values['id']}"),
    }
    soon = attrs.evolve(limits(), refresh_seconds=0.3)
    deaf = attrs.evolve(plugin(), hooks=hooks)
    [verdict] = run(deaf, select(["W07"]), limits=soon, settings=SETTINGS).verdicts
    assert verdict.outcome is Outcome.FAIL
    [broken, recovered] = called
    assert recovered.split() == ["recover", broken.split()[1]]


def test_r05_reads_the_output_of_a_plugin_that_cannot_bind() -> None:
    starts = Starts()
    shell = "echo listen unix: bind: invalid argument; exit 1"
    unable = PluginUnderTest(
        command=["sh", "-c", shell], resources=(RESOURCE,), hooks={"prepare": starts}
    )
    report = run(unable, select(["R01", "R02", "R05"]), limits=_SOON, settings=SETTINGS)
    assert {each.check.id: each.outcome for each in report.verdicts} == {
        "R01": Outcome.FAIL,
        "R02": Outcome.SKIP,
        "R05": Outcome.FAIL,
    }
    [_, seen] = [each.seen for each in report.of(Outcome.FAIL)]
    assert seen == "the plugin cannot bind its socket: listen unix: bind: invalid argument"
    assert starts.count == 1


def test_checks_that_share_a_stage_start_the_plugin_once() -> None:
    """Without R01, too: the start that shows that it registers is the shared one."""
    starts = Starts()
    good = attrs.evolve(plugin(), resources=(RESOURCE,), hooks={"prepare": starts})
    report = run(good, select(["T01", "O01", "A01"]), limits=limits(), settings=SETTINGS)
    assert report.exit_status() == 0
    assert starts.count == 1


@pytest.mark.parametrize("restart", ["never", "always"])
@pytest.mark.parametrize("only", [["R01"], ["T01", "O01"], ["W01"], ["R02"], ["L11"]])
def test_missing_command_ends_every_run(
    only: list[str], restart: Literal["never", "always"]
) -> None:
    """Even a run of checks that need no registration, or that expect an exit."""
    absent = PluginUnderTest(command=["/nowhere/plugin"], resources=(RESOURCE,), restart=restart)
    with pytest.raises(
        CheckError,
        match=r"^the plugin did not start: /nowhere/plugin: cannot be started: ",
    ):
        run(absent, select(only), settings=SETTINGS)


def test_exit_status_127_is_an_answer_if_the_plugin_starts_otherwise() -> None:
    """``misconfigure`` undoes what ``prepare`` did, so that the plugin exits like a missing
    command. With a good configuration it starts."""
    shell = 'test -f "$1" || { echo it needs it; exit 127; }; sleep 100'
    picky = PluginUnderTest(
        command=["sh", "-c", shell, "sh", "{root}/needed"],
        resources=(RESOURCE,),
        hooks={"prepare": "touch {root}/needed", "misconfigure": "rm {root}/needed"},
    )
    patient = attrs.evolve(_SOON, stop_seconds=20.0)
    [verdict] = run(picky, select(["L11"]), limits=patient, settings=SETTINGS).verdicts
    assert verdict.outcome is Outcome.PASS
    assert verdict.seen == "exit status 127: it needs it"
    broken = attrs.evolve(picky, hooks={"misconfigure": "true"})
    patient = attrs.evolve(patient, start_seconds=20.0)
    with pytest.raises(
        CheckError,
        match=r"^the plugin exited before it registered: exit status 127. It printed: it needs it",
    ):
        run(broken, select(["L11"]), limits=patient, settings=SETTINGS)


@pytest.mark.parametrize("name", ["", "notaresource", "kubernetes.io/gpu", 7])
def test_invalid_resource_name_is_rejected(name: Any) -> None:
    with pytest.raises(CheckError, match=rf"^invalid resource {name!r}: use a name with a domain"):
        PluginUnderTest(command=["x"], resources=(name,))


def test_failure_names_the_resource_that_was_registered_instead() -> None:
    other = attrs.evolve(plugin(), resources=("example.com/other",))
    [verdict] = run(other, select(["R01"]), limits=attrs.evolve(limits(), start_seconds=5.0),
                    settings=SETTINGS).verdicts  # fmt: skip
    assert verdict.seen == (
        "example.com/other is not registered, 5 s after its start; "
        f"it registered {RESOURCE} instead"
    )


def test_checks_that_need_registration_are_skipped_after_r01_failed() -> None:
    """Checks that can show the cause run."""
    known = attrs.evolve(plugin("bad-name"), resources=(RESOURCE,))
    report = run(known, select(["R01", "R04", "K01", "W01", "L05"]),
                 limits=attrs.evolve(limits(), start_seconds=12.0), settings=SETTINGS)  # fmt: skip
    outcomes = {each.check.id: each.outcome for each in report.verdicts}
    assert outcomes == {
        "R01": Outcome.FAIL, "R04": Outcome.FAIL,
        "K01": Outcome.SKIP, "W01": Outcome.SKIP, "L05": Outcome.SKIP,
    }  # fmt: skip
    assert "kubernetes.io/bad" in report.verdicts[1].seen
    assert {each.seen for each in report.of(Outcome.SKIP)} == {
        "the plugin does not register: see check R01"
    }
    assert report.exit_status() == 1


def test_l11_uses_the_hook_misconfigure() -> None:
    broken = attrs.evolve(
        plugin(), resources=(RESOURCE,), hooks={"misconfigure": "rm -r {plugin_dir}"}
    )
    # The plugin is a Python program, which starts slowly on a busy machine.
    patient = attrs.evolve(limits(), stop_seconds=30.0)
    [verdict] = run(broken, select(["L11"]), limits=patient, settings=SETTINGS).verdicts
    assert verdict.outcome is Outcome.PASS, verdict.seen
    assert verdict.seen.endswith("device-plugins is not a directory")


@pytest.mark.skipif(bool(why_inotify_cannot_be_limited()), reason=why_inotify_cannot_be_limited())
@pytest.mark.parametrize(("instances", "status"), [(0, 24), (1, 0)])
def test_inotify_instances_of_a_command_are_limited(instances: int, status: int) -> None:
    program = (
        "import ctypes, sys; libc = ctypes.CDLL(None, use_errno=True); "
        "sys.exit(ctypes.get_errno() if libc.inotify_init() < 0 else 0)"
    )
    done = subprocess.run([*limited_inotify(instances), sys.executable, "-c", program], check=False)
    assert done.returncode == status  # EMFILE


def test_calls_that_the_options_do_not_offer_are_not_required() -> None:
    """Not even S04: the plugin answers it with an error, but for no reason that matters here."""
    modest = attrs.evolve(plugin("no-calls"), resources=(RESOURCE,))
    ids = ["O02", "O03", "P", "S"]
    report = run(modest, select(ids), limits=limits(), settings=SETTINGS)
    seen = {each.check.id: each.seen for each in report.of(Outcome.SKIP)}
    assert seen.keys() == {each.id for each in select(ids)}
    assert set(seen.values()) == {
        "the plugin's options do not announce GetPreferredAllocation",
        "the plugin's options do not require PreStartContainer",
    }


def test_check_without_its_hook_is_skipped() -> None:
    plain = attrs.evolve(plugin(), hooks={}, resources=(RESOURCE,))
    report = run(plain, select(["W07"]), settings=SETTINGS)
    [verdict] = report.verdicts
    assert (verdict.outcome, verdict.seen) == (Outcome.SKIP, "needs the hook break-device")
    assert report.lacking == {"hook break-device": ["W07"]}


def test_pytest_checks_has_one_case_per_check() -> None:
    [mark] = pytest_checks(plugin(), only=["T"]).pytestmark  # type: ignore[attr-defined]
    assert [each.id for each in mark.args[1]] == ["T01", "T02", "T03"]


def _outcome(test: Callable[..., None], id_: str) -> str:
    """Run one of the tests and return its result as text."""
    try:
        [chosen] = select([id_])
        test(chosen)
    except (CheckError, pytest.fail.Exception, pytest.skip.Exception) as error:
        return f"{type(error).__name__}: {error}"
    return "passed"


def test_pytest_checks_wait_once_for_an_unregistered_plugin() -> None:
    starts = Starts()
    silent = _sleeping(hooks={"prepare": starts})
    unknown = pytest_checks(silent, limits=_SOON)
    first = _outcome(unknown, "R01")
    assert first.startswith("CheckError: the plugin did not register within 0.5 s")
    assert _outcome(unknown, "K01") == first
    assert starts.count == 1
    known = pytest_checks(attrs.evolve(silent, resources=(RESOURCE,)), limits=_SOON)
    assert "is not registered" in _outcome(known, "R01")
    assert _outcome(known, "K01") == "Skipped: the plugin does not register: see check R01"
    assert starts.count == 2


test_as_tests = pytest_checks(plugin("numa"), only=["T01", "A01"], limits=limits())


def test_page_of_checks_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run python -m tools.conformance_page"


def test_closed_stages_start_nothing() -> None:
    stages = Stages()
    stages.close()
    with pytest.raises(CheckError, match=r"^cannot start a check: the run was closed"):
        run(plugin(), select(["R01"]), settings=SETTINGS, stages=stages)


def test_one_job_never_runs_two_instances() -> None:
    """For hardware, or a fixed port, that only one instance can use."""
    running, most = 0, 0

    def prepare(_: Mapping[str, str]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)

    def cleanup(_: Mapping[str, str]) -> None:
        nonlocal running
        running -= 1

    known = attrs.evolve(
        plugin(), resources=(RESOURCE,), hooks={"prepare": prepare, "cleanup": cleanup}
    )
    short = attrs.evolve(limits(), idle_seconds=0.1)
    checks = select(["R01", "W02", "A02", "L02"])
    report = run(known, checks, limits=short, settings=SETTINGS, jobs=1)
    assert {each.outcome for each in report.verdicts} == {Outcome.PASS}
    assert (running, most) == (0, 1)


def _recording(ids: Sequence[str], act: Callable[[], object], *hooks: str) -> list[Check]:
    """Return checks that call ``act`` with no plugin running."""

    def function(run: CheckRun) -> None:
        act()

    return [
        check(
            id_,
            Severity.MUST,
            id_,
            does="d",
            expects="e",
            production="p",
            scene=Scene.OWN,
            hooks=hooks,
            needs_registration=False,
        )(function)
        for id_ in ids
    ]


def _alone(timeout: float) -> tuple[Callable[[], object], list[bool]]:
    """Return a function that appends True to a list if no other thread calls it meanwhile."""
    barrier, results = threading.Barrier(2), []

    def meet() -> None:
        try:
            barrier.wait(timeout)
            results.append(False)
        except threading.BrokenBarrierError:
            barrier.reset()
            results.append(True)

    return meet, results


def test_checks_whose_hooks_change_shared_hardware_run_alone(tmp_path: Path) -> None:
    """And last. Checks without such hooks still run in parallel."""
    order: list[str] = []
    meet, alone = _alone(30.0)
    single, hooked = _alone(0.2)
    checks = [
        *_recording(["Z01", "Z02"], single, "break-device"),
        *_recording(["Y01", "Y02"], meet),
    ]
    shared = _sleeping(
        resources=(RESOURCE,),
        hooks={"break-device": "rm hw/{id}"},
        hardware=Hardware(dev=tmp_path),
    )
    report = run(
        shared, checks, limits=_SOON, settings=SETTINGS,
        on_verdict=lambda verdict: order.append(verdict.check.id),
    )  # fmt: skip
    assert {each.outcome for each in report.verdicts} == {Outcome.PASS}
    assert (alone, hooked) == ([False, False], [True, True])
    assert sorted(order[:2]) == ["Y01", "Y02"] and sorted(order[2:]) == ["Z01", "Z02"]


def test_hook_of_each_start_that_changes_shared_hardware_allows_one_instance(
    tmp_path: Path,
) -> None:
    single, alone = _alone(0.2)
    shared = _sleeping(
        resources=(RESOURCE,), hooks={"prepare": "touch hw/a"}, hardware=Hardware(dev=tmp_path)
    )
    run(shared, _recording(["Z01", "Z02"], single), limits=_SOON, settings=SETTINGS)
    assert alone == [True, True]


@pytest.mark.parametrize(
    ("hook", "dev", "is_shared"),
    [("rm hw/{id}", True, True), ("rm {root}/{id}", True, False), ("rm hw/{id}", False, False)],
)
def test_hook_changes_shared_hardware(
    hook: str, dev: bool, is_shared: bool, tmp_path: Path
) -> None:
    hardware = Hardware(dev=tmp_path) if dev else Hardware()
    known = _sleeping(hooks={"prepare": hook}, hardware=hardware)
    assert known.changes_shared("prepare") is known.needs_one_instance is is_shared
    assert not known.changes_shared("cleanup")


def test_no_check_waits_for_one_that_runs_last() -> None:
    for suite in (PLUGINS, DRIVERS):
        with_hooks = {each.id for each in suite.checks() if each.hooks or each.optional_hooks}
        for each in suite.checks():
            assert not with_hooks & {*each.repeats}, each.id


def test_checks_name_an_accepted_exit() -> None:
    """A check that passes with an exit must not sound like a failure."""
    for path in (ROOT / "devicemanager/conformance").glob("**/checks/*.py"):
        assert "return run.plugin.exit_text()" not in path.read_text(), path


def test_plugin_whose_devices_are_all_unhealthy_is_not_green() -> None:
    """The verdict begins with the cause."""
    ill = attrs.evolve(plugin("all-unhealthy"), hooks={}, resources=(RESOURCE,))
    report = run(ill, select(["R01", "A01"]), limits=limits(), settings=SETTINGS)
    [verdict] = report.of(Outcome.SKIP)
    assert verdict.seen == "needs 1 healthy device, the plugin has none"
    text = f"the device list of {RESOURCE} has 4 devices, none is healthy: check the hardware, or"
    assert report.why_unusable.startswith(text)


@pytest.mark.parametrize(
    ("line", "ending"),
    [
        ("open /sys/class/nowhere: no such file", "/sys/class/nowhere does not exist on this "
         "machine: use --sys DIR, with the files that the plugin needs in place of /sys"),
        ("cannot watch /var/lib/kubelet/x", "/var/lib/kubelet/x is a fixed path of a node: use "
         "--at-node-paths"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["exit 1", "sleep 100"])
def test_error_of_an_unregistered_plugin_begins_with_its_output(
    line: str, ending: str, end: str
) -> None:
    silent = PluginUnderTest(command=["sh", "-c", f"echo '{line}'; echo '{line}'; {end}"])
    with pytest.raises(CheckError) as raised:
        run(silent, select(["R01"]), limits=_SOON, settings=SETTINGS)
    text = str(raised.value)
    assert f"It printed: {line}. {ending}" in text
    assert text.find("nothing called") < 0
    assert ("Nothing called Register" in text) is (end != "exit 1")


def test_plugin_that_exits_with_the_kubelet_gets_a_verdict() -> None:
    """Not an error of the suite, which measures the CPU time of the process at that moment."""
    known = attrs.evolve(plugin("exit-1-on-loss"), resources=(RESOURCE,))
    report = run(known, select(["K04"]), limits=limits(), settings=SETTINGS)
    [verdict] = report.verdicts
    assert verdict.outcome is Outcome.FAIL
    assert verdict.seen.startswith("the plugin exited when the kubelet stopped: exit status 1 ")
