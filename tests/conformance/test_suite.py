"""Choosing checks, limits, hooks, verdicts; the command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from devicemanager.cli import main
from devicemanager.conformance import (
    Check,
    CheckError,
    Failed,
    Limits,
    Outcome,
    PluginUnderTest,
    Scene,
    all_checks,
    run,
    select,
)
from devicemanager.conformance.check_run import CheckRun, Stages
from devicemanager.conformance.links import addresses
from devicemanager.conformance.pytest import pytest_checks
from devicemanager.conformance.scarcity import scarce, scarce_fault
from devicemanager.kubelet.settings import Settings
from tests.conformance.matrix import PLUGIN, RESOURCE, limits, subject
from tests.paths import ROOT
from tools.conformance_page import PAGE, page

SETTINGS = Settings(durability="process")


def test_every_check_is_told_in_full() -> None:
    for each in all_checks():
        for text in (each.title, each.does, each.expects, each.production):
            assert text and text == text.strip() and not text.endswith("."), each.id
        assert all(link.startswith("https://") for link in each.links), each.id


def test_the_order_is_by_family_and_number() -> None:
    ids = [each.id for each in all_checks()]
    assert ids[0] == "R01" and ids[-1] == "L11"
    assert len(set(ids)) == len(ids)


def test_some_checks() -> None:
    assert [each.id for each in select(["K01", "T"])] == ["K01", "T01", "T02", "T03"]
    assert {each.family for each in select(skip="KLWA")} == set("RTOPS")
    with pytest.raises(CheckError, match="there is no check 'K99': name an id such as K01"):
        select(["K99"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("patience=3", "there is no limit 'patience': choose from start_seconds"),
        ("restarts=many", "limit restarts is set by restarts=NUMBER"),
        ("restarts", "limit restarts needs a number"),
        ("restarts=-1", "limit restarts is a number of at least 0"),
        ("restarts=1.5", "limit restarts is a whole number: not 1.5"),
        ("start_seconds=inf", "limit start_seconds is a number of at least 0: not inf"),
    ],
)
def test_limits_that_cannot_be(setting: str, message: str) -> None:
    with pytest.raises(CheckError, match=message):
        Limits().overridden([setting])


def test_other_limits() -> None:
    assert Limits().overridden(["restarts=3", "idle_seconds=0.5"]) == Limits(
        restarts=3, idle_seconds=0.5
    )


def test_subjects_that_cannot_be() -> None:
    with pytest.raises(CheckError, match="the plugin's command is missing"):
        PluginUnderTest(command=[])
    with pytest.raises(CheckError, match="there is no hook 'brake-device'"):
        PluginUnderTest(command=["x"], hooks={"brake-device": "true"})


def test_a_hook_that_fails_says_why() -> None:
    broken = PluginUnderTest(
        command=["x"], hooks={"add-device": "echo no room in {plugin_dir}; exit 3"}
    )
    with pytest.raises(Failed, match=r"status 3.*no room in /tmp/a b"):
        broken.call("add-device", {"plugin_dir": "/tmp/a b"})
    silent = PluginUnderTest(command=["x"], hooks={"add-device": "exit 3"})
    with pytest.raises(Failed, match=r"status 3: exit 3: no output$"):
        silent.call("add-device", {})


def test_a_hook_in_python_fails_as_a_command_does() -> None:
    def gone(values: Mapping[str, str]) -> None:
        raise ProcessLookupError(3, "No such process")

    broken = PluginUnderTest(command=["x"], hooks={"add-device": gone})
    with pytest.raises(Failed, match=r"hook add-device failed: ProcessLookupError: .*No such pro"):
        broken.call("add-device", {})


def test_a_source_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match="no source"):
        addresses("DOC, nobody#3")


def _check(scene: Scene, run: object, id_: str = "K01") -> Check:
    [real] = select([id_])
    return attrs.evolve(real, scene=scene, run=run)


def test_an_error_of_the_suite_is_no_failure_of_the_plugin() -> None:
    def wrong(trial: CheckRun) -> None:
        raise KeyError("ours")

    known = attrs.evolve(subject(), resources=(RESOURCE,))
    report = run(known, [_check(Scene.OWN, wrong)], settings=SETTINGS)
    assert report.exit_status() == 2
    assert report.verdicts[0].seen == "KeyError: 'ours'"


def test_a_failure_shows_what_happened() -> None:
    def fails(trial: CheckRun) -> None:
        trial.start()
        trial.step("look at it")
        raise Failed("not as it should be")

    [verdict] = run(subject(), [_check(Scene.OWN, fails)], limits=limits(), seed=9,
                    settings=SETTINGS).verdicts  # fmt: skip
    assert verdict.outcome is Outcome.FAIL
    texts = [line.text for line in verdict.timeline]
    assert {line.source for line in verdict.timeline} == {"suite", "kubelet", "call"}
    assert any("look at it" in text for text in texts)
    assert any("Register" in text for text in texts)
    assert [line.time for line in verdict.timeline] == sorted(
        line.time for line in verdict.timeline
    )


def test_a_plugin_that_never_comes() -> None:
    silent = PluginUnderTest(command=[sys.executable, "-c", "print('no such device')"])
    with pytest.raises(CheckError, match=r"ended before it .*: exit status 0.*no such dev"):
        run(silent, select(["R01"]), settings=SETTINGS)


def _sleeping(**more: object) -> PluginUnderTest:
    return attrs.evolve(PluginUnderTest(command=["sleep", "100"]), **more)  # type: ignore[arg-type]


_SOON = Limits(start_seconds=0.5, stop_seconds=0.1, settle_seconds=0.1)


@attrs.define
class Starts:
    """The hook ``prepare``, which runs before each start of the plugin."""

    count: int = 0

    def __call__(self, values: Mapping[str, str]) -> None:
        self.count += 1


def test_a_plugin_that_never_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said while it is waited for, and at the end with what to do."""
    monkeypatch.setattr("devicemanager.conformance.check_run._FIRST_LINE", 0.0)
    lines: list[str] = []
    with pytest.raises(CheckError) as raised:
        run(_sleeping(), select(["R01"]), limits=_SOON, settings=SETTINGS, on_wait=lines.append)
    [line] = lines
    said = re.fullmatch(
        r"0 of 0\.5 s: the plugin has not registered at (/.*/kubelet\.sock); only "
        r"DEVICE_PLUGIN_DIRECTORY tells it where: .* if it has the path of a node built in",
        line,
    )
    assert said
    assert str(raised.value) == (
        "the plugin did not register within 0.5 s (limit start_seconds): nothing called Register "
        f"at {said[1]}; only DEVICE_PLUGIN_DIRECTORY tells it where: give it {{plugin_dir}} in "
        "its command or in --env, or use --at-node-paths if it has the path of a node built in. "
        "It printed: nothing"
    )


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({"at_node_paths": True}, "kubelet.sock in /var/lib/kubelet/device-plugins"),
        ({"env": {"WHERE": "{root}/x"}}, "kubelet.sock where its environment says"),
        ({"command": ("./plugin", "--dir={plugin_dir}")}, "kubelet.sock where its command says"),
        ({}, "only DEVICE_PLUGIN_DIRECTORY tells it where"),
    ],
)
def test_what_to_look_at_if_nothing_comes(more: Mapping[str, object], advice: str) -> None:
    assert advice in _sleeping(**more).advice


def test_only_one_start_waits_for_a_plugin_that_never_registers() -> None:
    """Without R01 the others have to say so, but wait no longer than it would."""
    starts = Starts()
    silent = _sleeping(resources=(RESOURCE,), hooks={"prepare": starts})
    report = run(silent, select(["K01", "K02", "W01", "L05"]), limits=_SOON, settings=SETTINGS)
    assert {each.outcome for each in report.verdicts} == {Outcome.FAIL}
    [seen] = {each.seen for each in report.verdicts}
    assert seen.startswith(f"{RESOURCE} is not registered 0.5 s after its start: nothing called R")
    assert starts.count == 1
    # With it, what looks at attempts to register is not tried again either.
    starts.count = 0
    chosen = select(["R"], ["R06", "R07", "R08", "R09", "R10", "R11", "R12", "R13"])
    report = run(silent, chosen, limits=_SOON, settings=SETTINGS)
    assert [each.outcome for each in report.verdicts] == [Outcome.FAIL] + [Outcome.SKIP] * 4
    assert {each.seen for each in report.of(Outcome.SKIP)} == {
        "it did not try to register: see R01"
    }
    assert starts.count == 1


def test_a_plugin_that_cannot_bind_its_socket_says_why() -> None:
    """It never tries to register: what it says is looked at all the same."""
    starts = Starts()
    shell = "echo listen unix: bind: invalid argument; exit 1"
    plugin = PluginUnderTest(
        command=["sh", "-c", shell], resources=(RESOURCE,), hooks={"prepare": starts}
    )
    report = run(plugin, select(["R01", "R02", "R05"]), limits=_SOON, settings=SETTINGS)
    assert {each.check.id: each.outcome for each in report.verdicts} == {
        "R01": Outcome.FAIL,
        "R02": Outcome.SKIP,
        "R05": Outcome.FAIL,
    }
    [_, seen] = [each.seen for each in report.of(Outcome.FAIL)]
    assert seen == "it cannot bind its socket: listen unix: bind: invalid argument"
    assert starts.count == 1


def test_a_good_plugin_without_r01_is_started_as_often_as_its_checks_need() -> None:
    """The start that shows that it registers is that of the checks that share one."""
    starts = Starts()
    good = attrs.evolve(subject(), resources=(RESOURCE,), hooks={"prepare": starts})
    report = run(good, select(["T01", "O01", "A01"]), limits=limits(), settings=SETTINGS)
    assert report.exit_status() == 0
    assert starts.count == 1


@pytest.mark.parametrize("restart", ["never", "always"])
@pytest.mark.parametrize("only", [["R01"], ["T01", "O01"], ["W01"], ["R02"], ["L11"]])
def test_a_command_that_is_not_there_is_no_answer(
    only: list[str], restart: Literal["never", "always"]
) -> None:
    """Whatever was asked: also what needs no registration, or takes an end for an answer."""
    absent = PluginUnderTest(command=["/nowhere/plugin"], resources=(RESOURCE,), restart=restart)
    with pytest.raises(CheckError, match=r"127.*/nowhere/plugin: cannot be started: No such file"):
        run(absent, select(only), settings=SETTINGS)


def test_a_wrong_configuration_may_look_as_an_absent_command() -> None:
    """Until the plugin is started as it should be; ``misconfigure`` undoes what prepare did."""
    shell = 'test -f "$1" || { echo it needs it; exit 127; }; sleep 100'
    plugin = PluginUnderTest(
        command=["sh", "-c", shell, "sh", "{root}/needed"],
        resources=(RESOURCE,),
        hooks={"prepare": "touch {root}/needed", "misconfigure": "rm {root}/needed"},
    )
    patient = attrs.evolve(_SOON, stop_seconds=20.0)
    [verdict] = run(plugin, select(["L11"]), limits=patient, settings=SETTINGS).verdicts
    assert verdict.outcome is Outcome.PASS
    assert verdict.seen == "exit status 127: it needs it"
    broken = attrs.evolve(plugin, hooks={"misconfigure": "true"})
    patient = attrs.evolve(patient, start_seconds=20.0)
    with pytest.raises(CheckError, match=r"exit status 127. It printed: it needs it"):
        run(broken, select(["L11"]), limits=patient, settings=SETTINGS)


@pytest.mark.parametrize("name", ["", "notaresource", "kubernetes.io/gpu", 7])
def test_a_resource_that_no_plugin_can_have(name: Any) -> None:
    with pytest.raises(CheckError, match=rf"^no plugin can register {name!r}: a resource is named"):
        PluginUnderTest(command=["x"], resources=(name,))


def test_a_plugin_of_another_resource_than_named() -> None:
    other = attrs.evolve(subject(), resources=("example.com/other",))
    [verdict] = run(other, select(["R01"]), limits=attrs.evolve(limits(), start_seconds=5.0),
                    settings=SETTINGS).verdicts  # fmt: skip
    assert verdict.seen == (
        f"example.com/other is not registered 5 s after its start; what it registered is {RESOURCE}"
    )


def test_a_plugin_that_does_not_register_is_told_so_once() -> None:
    """All that could only say the same is skipped; what tells why is not."""
    known = attrs.evolve(subject("bad-name"), resources=(RESOURCE,))
    report = run(known, select(["R01", "R04", "K01", "W01", "L05"]),
                 limits=attrs.evolve(limits(), start_seconds=5.0), settings=SETTINGS)  # fmt: skip
    outcomes = {each.check.id: each.outcome for each in report.verdicts}
    assert outcomes == {
        "R01": Outcome.FAIL, "R04": Outcome.FAIL,
        "K01": Outcome.SKIP, "W01": Outcome.SKIP, "L05": Outcome.SKIP,
    }  # fmt: skip
    assert "kubernetes.io/bad" in report.verdicts[1].seen
    assert {each.seen for each in report.of(Outcome.SKIP)} == {
        "the plugin does not register: see R01"
    }
    assert report.exit_status() == 1


def test_a_wrong_configuration_of_the_users_own() -> None:
    broken = attrs.evolve(
        subject(), resources=(RESOURCE,), hooks={"misconfigure": "rm -r {plugin_dir}"}
    )
    [verdict] = run(broken, select(["L11"]), limits=limits(), settings=SETTINGS).verdicts
    assert verdict.outcome is Outcome.PASS
    assert verdict.seen.endswith("device-plugins is no directory")


@pytest.mark.skipif(bool(scarce_fault()), reason=scarce_fault())
@pytest.mark.parametrize(("instances", "status"), [(0, 24), (1, 0)])
def test_a_command_with_few_inotify_instances(instances: int, status: int) -> None:
    ask = (
        "import ctypes, sys; libc = ctypes.CDLL(None, use_errno=True); "
        "sys.exit(ctypes.get_errno() if libc.inotify_init() < 0 else 0)"
    )
    done = subprocess.run([*scarce(instances), sys.executable, "-c", ask], check=False)
    assert done.returncode == status  # EMFILE


def test_a_plugin_without_a_hook_skips() -> None:
    plain = attrs.evolve(subject(), hooks={}, resources=(RESOURCE,))
    [verdict] = run(plain, select(["W07"]), settings=SETTINGS).verdicts
    assert (verdict.outcome, verdict.seen) == (Outcome.SKIP, "needs the hook break-device")


def _command(*options: str, switch: str = "") -> list[str]:
    words = [sys.executable, str(PLUGIN), "--dir", "{plugin_dir}"]
    words += ["--switch", switch] if switch else []
    root = str(ROOT)
    return ["check", "--env", f"PYTHONPATH={root}", "--limit", "settle_seconds=0.3", *options,
            "--", *words]  # fmt: skip


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "report.json"
    options = ["--only", "R13", "--only", "O01", "--report", f"json={page}"]
    assert main(_command(*options, switch="options-differ")) == 0
    text = capsys.readouterr().out
    assert "R13  warn    SHOULD" in text
    assert "O01  pass    MUST" in text
    assert "1 pass, 1 warn in" in text and text.rstrip().endswith("profile complete")
    assert json.loads(page.read_text())["counts"] == {"pass": 1, "warn": 1}


def test_the_command_of_a_plugin_that_never_registers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there is to say is the last line, here as there."""
    monkeypatch.setattr("devicemanager.conformance.check_run._FIRST_LINE", 0.0)
    soon = ["check", "--only", "R01", "--limit", "start_seconds=0.5"]
    assert main([*soon, "--", "sleep", "100"]) == 2
    waits, error = capsys.readouterr().err.splitlines()
    assert re.match(r"check on 1\.\d+: 0 of 0\.5 s: the plugin has not registered at /", waits)
    assert error.startswith("devicemanager: error: the plugin did not register within 0.5 s ")
    assert main([*soon, "--resource", RESOURCE, "--", "sleep", "100"]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith(f"the plugin does not register: {RESOURCE} is not registered 0.5 s ")


def test_the_command_says_no(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--only", "A02", "--profile", "core", "-o", "json", "--seed", "17"]
    assert main(_command(*options, switch="accept-unknown")) == 1
    data: Mapping[str, list[dict[str, str]]] = json.loads(capsys.readouterr().out)
    [only] = data["checks"]
    assert only["reproduce"].startswith("devicemanager check --only A02 --seed 17 ")
    assert only["reproduce"].endswith("--dir '{plugin_dir}' --switch accept-unknown")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check"], "the plugin's command is missing"),
        (["check", "--only", "Z", "--", "x"], "there is no check 'Z'"),
        (["check", "--report", "pdf=x", "--", "x"], "there is no report 'pdf'"),
        (["check", "--report", "json=/nowhere/x", "--", "x"], "cannot write the report /nowhere/x"),
        (["check", "--report", "json=/", "--", "x"], "cannot write the report /"),
        (["check", "--hook", "x", "--", "x"], "write NAME=VALUE: not 'x'"),
        (["check", "--resource", "", "--", "x"], "'' is no device resource like vendor.com/gpu"),
        (["check", "--resource", "gpu", "--", "x"], "'gpu' is no device resource like vendor"),
        (["check", "--waivers", "/nowhere", "--", "x"], "cannot read waivers /nowhere"),
        (["check", "--kubelet-version", "1.2", "--", "x"], "1.2"),
    ],
)
def test_wrong_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list", "--only", "T"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["T01", "T02", "T03"]


def test_one_test_for_each_check() -> None:
    [mark] = pytest_checks(subject(), only=["T"]).pytestmark  # type: ignore[attr-defined]
    assert [each.id for each in mark.args[1]] == ["T01", "T02", "T03"]


def _outcome(test: Callable[..., None], id_: str) -> str:
    """What comes of one of the tests, as text."""
    try:
        [chosen] = select([id_])
        test(chosen)
    except (CheckError, pytest.fail.Exception, pytest.skip.Exception) as error:
        return f"{type(error).__name__}: {error}"
    return "passed"


def test_tests_of_a_plugin_that_never_registers_wait_once() -> None:
    starts = Starts()
    silent = _sleeping(hooks={"prepare": starts})
    unknown = pytest_checks(silent, limits=_SOON)
    first = _outcome(unknown, "R01")
    assert first.startswith("CheckError: the plugin did not register within 0.5 s")
    assert _outcome(unknown, "K01") == first
    assert starts.count == 1
    known = pytest_checks(attrs.evolve(silent, resources=(RESOURCE,)), limits=_SOON)
    assert "is not registered" in _outcome(known, "R01")
    assert _outcome(known, "K01") == "Skipped: the plugin does not register: see R01"
    assert starts.count == 2


test_as_tests = pytest_checks(subject("numa"), only=["T01", "A01"], limits=limits())


def test_the_page_of_checks_is_fresh() -> None:
    assert PAGE.read_text() == page(), "run python -m tools.conformance_page"


def test_the_script_for_ci_installs_what_it_is_told_to(tmp_path: Path) -> None:
    """Into an environment of its own: the machine's Python may reject."""
    for name, text in (("python3", 'mkdir -p "$3/bin" && cp "$(dirname "$0")/pip" "$3/bin"'),
                       ("pip", 'echo "$@" > installed; exit 3')):  # fmt: skip
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SOURCE": "x[conformance]", "COMMAND": "plugin"}
    script = ROOT / "ci/check.sh"
    assert subprocess.run([script], cwd=tmp_path, env=env, check=False).returncode == 2
    assert (tmp_path / "installed").read_text() == "install --quiet x[conformance]\n"


def test_the_script_for_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the action and the job run, with a plugin whose arguments need quoting."""
    root = ROOT
    command = f"'{sys.executable}' '{PLUGIN}' --dir {{plugin_dir}} --switch bad-cdi"
    env = os.environ | {
        "COMMAND": command,
        "OPTIONS": f"--only A14 --limit settle_seconds=0.2 --env 'PYTHONPATH={root}'",
        "PROFILE": "core",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run([root / "ci/check.sh"], cwd=tmp_path, env=env, capture_output=True)
    assert done.returncode == 1, done.stderr
    assert {path.name for path in (tmp_path / "conformance").iterdir()} == {
        "junit.xml", "report.html", "summary.md", "report.json",
    }  # fmt: skip
    assert "A14" in (tmp_path / "summary").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_the_check_has_set_up(
    number: signal.Signals, tmp_path: Path, directory: Path
) -> None:
    """The kubelets' directories and what ``prepare`` made; the exit status is the signal's."""
    started, cleaned = tmp_path / "started", tmp_path / "cleaned"
    os.mkfifo(started)
    command = [sys.executable, "-m", "devicemanager", "check", "--only", "R01"]
    command += ["--hook", f"cleanup=echo {{plugin_dir}} >> {cleaned}"]
    process = subprocess.Popen(
        [*command, "--", "sh", "-c", f"echo > {started}; exec sleep 60"],
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        started.read_text()
        (root,) = directory.iterdir()
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (-number, "")
    assert cleaned.read_text() == f"{root}/device-plugins\n"
    assert list(directory.iterdir()) == []


def test_a_run_that_was_ended_starts_nothing_more() -> None:
    stages = Stages()
    stages.close()
    with pytest.raises(CheckError, match="the run was ended"):
        run(subject(), select(["R01"]), settings=SETTINGS, stages=stages)
