"""A check's actions and waits, without a kubelet and a plugin."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import grpc
import pytest

from devicemanager.conformance import Check, Hardware, Limits, PluginUnderTest
from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks import lifecycle
from devicemanager.conformance.checks.allocate import _allocate_one, a19
from devicemanager.conformance.checks.listandwatch import w10, w14
from devicemanager.conformance.checks.steps import NO_HOT_PLUG, REMOVED_STAY
from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.drivers import DriverUnderTest
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from protos import deviceplugin_v1beta1 as dp

GPU = "vendor.com/gpu"
LIMITS = Limits(start_seconds=0.0, refresh_seconds=0.0, recover_seconds=0.0, settle_seconds=0.0)


class Anything:
    """Client whose calls succeed."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: None


class Run(CheckRun):
    """Run that records its steps and what it does to the plugin and the kubelet."""

    def __init__(self, *devices: dp.Device, **observed: Any) -> None:
        self.seen: list[Any] = []
        self.is_restarted = False
        known = {
            "devices": lambda resource: [*devices],
            "lists": lambda resource, since: [],
            "is_registered": lambda since, resources: False,
            "missing": lambda since, resource: "",
            "registrations": lambda since, code="OK": [],
            "has_tried_to_register": True,
            "is_registering": False,
        }
        self.observed: Any = SimpleNamespace(**known | observed)
        self.timeline: Any = SimpleNamespace(step=self.seen.append)
        self.limits = LIMITS
        self.resources = (GPU,)
        self.disproved = set()
        self.stage: Any = SimpleNamespace(on_wait=None, device_counts={GPU: 0})
        self.kubelet: Any = SimpleNamespace(
            mark=lambda: "mark",
            start=lambda: self.seen.append("kubelet.start"),
            stop=lambda: self.seen.append("kubelet.stop"),
            restart=lambda: self.seen.append("kubelet.restart"),
            plugin_socket="/kubelet.sock",
        )
        self.plugin: Any = SimpleNamespace(
            launch=lambda *before, hook: (before, hook),
            change=lambda name, id_: self.seen.append((name, id_)),
            has_exited=False,
            forget_exits=lambda: None,
            end=lambda process: process.stop(),
            core_waits=dict,
            processes=[],
            exit_text=lambda: "exit status 1",
            under_test=SimpleNamespace(
                advice="advice", kind="plugin", has=lambda name: name != "recover-device"
            ),
        )


def _registered(run: Run) -> Run:
    """Return the run with a ``start`` that succeeds."""
    run.start = lambda: None  # type: ignore[method-assign]
    return run


def test_actions_are_steps_of_the_timeline() -> None:
    run: Any = Run()
    assert run.launch("nice") == (("nice",), "")
    assert run.launch(hook="prepare") == ((), "prepare")
    run.hook("reset")
    run.hook("break-device", "a")
    run.hook("recover-device", "a")  # is not defined
    run.start_kubelet()
    assert run.restart_kubelet() == "mark"
    run.stop_kubelet()
    run.settle()
    assert run.seen == [
        "start the plugin",
        "start the plugin after the hook prepare",
        "hook reset",
        ("reset", ""),
        "hook break-device a",
        ("break-device", "a"),
        "start the kubelet",
        "kubelet.start",
        "restart the kubelet",
        "kubelet.restart",
        "stop the kubelet",
        "kubelet.stop",
        "wait 0 s",
    ]


_SILENT = "the plugin sent no device list after the first one: none came within 0 s after"


@pytest.mark.parametrize(
    ("do", "error", "text"),
    [
        (
            lambda run: run.break_device("a", " at once"),
            Failed,
            f"{_SILENT} break-device of a at once",
        ),
        (
            lambda run: run.assume_broken("a"),
            Skipped,
            f"{_SILENT} break-device of a",
        ),
        (
            lambda run: run.assume_recovered("a"),
            Skipped,
            f"{_SILENT} recover-device of a",
        ),
        (
            lambda run: run.healthy_ids(least=3),
            Skipped,
            "needs 3 healthy devices, the plugin has 2",
        ),
        (
            lambda run: run.restart_and_recover(),
            Failed,
            "not registered, 0 s after the restart",
        ),
        (
            lambda run: run.restart_and_wait(3),
            Failed,
            "not registered, 0 s after restart 3",
        ),
    ],
)
def test_failures_name_what_was_expected(do: Any, error: type[Exception], text: str) -> None:
    device = dp.Device
    run = Run(
        device(ID="a", health="Healthy"),
        device(ID="a", health="Healthy"),
        device(ID="b", health="Unhealthy"),
        device(ID="c", health="Healthy"),
    )
    assert run.healthy_ids(least=2) == ["a", "c"]
    with pytest.raises(error) as raised:
        do(run)
    assert str(raised.value) == text


def test_plugin_without_healthy_devices_is_named_in_one_wording() -> None:
    run = Run(dp.Device(ID="a", health="Unhealthy"))
    for needing in (run.healthy_ids, lambda: [*run.clients_with_devices()]):
        with pytest.raises(Skipped, match=r"^needs 1 healthy device, the plugin has none$"):
            needing()


def test_reason_for_unusable_devices_says_what_and_where(tmp_path: Path) -> None:
    run = Run(dp.Device(ID="a", health="Unhealthy"))
    run.plugin.under_test = PluginUnderTest(command=["x"])
    assert run.why_unusable() == (
        f"the device list of {GPU} has 1 device, none is healthy: check the hardware, or declare "
        "other hardware with --dev and --sys"
    )
    empty = Run()
    empty.plugin.under_test = PluginUnderTest(command=["x"], hardware=Hardware(dev=tmp_path))
    assert empty.why_unusable() == (
        f"the device list of {GPU} is empty: check the hardware that the plugin finds in "
        f"{tmp_path} (--dev)"
    )
    assert Run(dp.Device(ID="a", health="Healthy")).why_unusable() == ""


def test_change_that_lists_do_not_show_is_named() -> None:
    other = SimpleNamespace(response_bytes=b"", stream_message=2)
    run = Run(lists=lambda resource, since: [other])
    with pytest.raises(Skipped) as raised:
        run.assume_recovered("a", " at once")
    text = "no device list with a healthy after recover-device of a at once within 0 s"
    assert (str(raised.value), raised.value.cause) == (text, "W08")
    run.observed.lists = lambda resource, since: [] if since == "mark" else [other]
    with pytest.raises(Failed, match=r"^the plugin sent no device list within 0 s after break"):
        run.break_device("a")


@pytest.mark.parametrize(
    ("check", "hook", "symptom"),
    [(a19, "add-device", NO_HOT_PLUG), (w14, "remove-device", REMOVED_STAY)],
    ids=["A19", "W14"],
)
def test_plugin_that_sends_one_list_only_has_the_bug_of_w07(
    check: Check, hook: str, symptom: str
) -> None:
    """The hook is not the cause. If W07 passes, only the change of this hook is not reported."""
    run = Run(dp.Device(ID="a", health="Healthy"), is_registered=lambda since, resources: True)
    run.plugin.process = SimpleNamespace(is_running=True)
    run.client = lambda: contextlib.nullcontext(Anything())  # type: ignore[method-assign]
    with pytest.raises(Failed) as raised:
        check.run(run)
    assert str(raised.value) == f"{_SILENT} {hook}"
    assert raised.value.cause == "W07"
    assert raised.value.symptom == symptom
    listed = SimpleNamespace(response_bytes=b"", stream_message=2, time=0.0)
    run.observed.lists = lambda resource, since: [listed]
    with pytest.raises(Failed) as raised:
        check.run(run)
    assert raised.value.cause == "" and "device" in str(raised.value)


def test_w14_names_the_half_that_failed() -> None:
    run = Run()
    run.plugin.process = SimpleNamespace(is_running=True)
    with pytest.raises(Failed) as raised:
        w14.run(_registered(run))
    assert str(raised.value) == (
        "the plugin works without devices, but does not list a device that is added later: no "
        "device list contains it within 0 s after add-device"
    )
    assert raised.value.symptom == NO_HOT_PLUG
    run.plugin.has_exited = True
    with pytest.raises(Failed, match="the plugin exited when it had no devices: ") as raised:
        w14.run(run)
    assert "exits" in raised.value.symptom


def test_l07_does_not_blame_a_user_namespace_for_a_missing_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "why_inotify_cannot_be_limited", str)
    run = Run(is_registered=lambda since, resources: not run.is_restarted)
    run.plugin.usage = lambda: SimpleNamespace(inotify=0)

    def restart() -> None:
        run.is_restarted = True

    run.kubelet.restart = restart
    run.kubelet.clock = SimpleNamespace(time=float)
    with pytest.raises(Skipped) as raised:
        lifecycle.l07.run(run)
    text = "0 inotify instances; the plugin did not notice restart 1 (no Register call within 0 s)"
    assert (str(raised.value), raised.value.cause) == (text, "K01")


def test_rejected_allocation_has_its_own_symptom() -> None:
    run = Run(dp.Device(ID="a", health="Healthy"))

    def allocate(ids: list[str], seconds: float) -> None:
        raise CallFailed("Allocate", grpc.RpcError("no"))

    client: Any = SimpleNamespace(allocate=allocate)
    with pytest.raises(Failed) as raised:
        _allocate_one(run, client, ["a"])
    assert "UnexpectedAdmissionError" in raised.value.symptom


@pytest.mark.parametrize(
    ("ignored", "disproved"), [(signal.SIGTERM, {"L01"}), (signal.SIGINT, set())]
)
def test_other_checks_are_skipped_only_if_sigterm_is_ignored(
    ignored: signal.Signals, disproved: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_by(run: Run, number: signal.Signals) -> float:
        if number == ignored:
            raise Failed("still runs")
        return 0.1

    monkeypatch.setattr(lifecycle, "stop_by", stop_by)
    run: Any = Run()
    run.start = run.relaunch = lambda *args: None
    run.plugin.process = SimpleNamespace(exit_status=0)
    with pytest.raises(Failed, match=r"^still runs$"):
        lifecycle.l01.run(run)
    assert run.disproved == disproved


def test_device_is_repaired_even_if_its_recovery_is_not_reported() -> None:
    run = Run()
    run.plugin.under_test.has = lambda name: True
    run.disproved.add("W08")
    with pytest.raises(Skipped) as skipped:
        run.assume_recovered("a")
    assert (str(skipped.value), skipped.value.cause) == ("would repeat a failure", "W08")
    assert ("recover-device", "a") in run.seen


def test_l07_accepts_a_plugin_that_exits_for_lack_of_inotify_after_its_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of its stream is noticed before its exit."""
    monkeypatch.setattr(lifecycle, "why_inotify_cannot_be_limited", str)
    run: Any = Run()
    registrations = iter([True, False])
    run.observed.is_registered = lambda since, resources: next(registrations, False)
    output = ["cannot create a watcher: too many open files"]
    process = SimpleNamespace(exit_status=1, stop=lambda: None, output=lambda: output)
    run.plugin.process, run.plugin.has_exited_once = process, False
    run.plugin.usage = lambda: SimpleNamespace(inotify=1)
    run.kubelet.clock = SimpleNamespace(time=float)
    waits: list[str] = []

    def wait_registered(since: str, seconds: float, after: str) -> float:
        waits.append(after)
        if len(waits) == 3:  # its start, a restart with inotify, a restart without
            run.plugin.has_exited_once = True
            raise Failed(f"the plugin exited after {after}")
        return 0.0

    run.wait_registered = wait_registered
    seen = lifecycle.l07.run(run)
    assert seen == (
        "1 inotify instance; without any: exits with an error, which is accepted: exit status 1: "
        "cannot create a watcher: too many open files"
    )
    # The stack of a crash says nothing.
    output[:] = ["panic: nil pointer", "", "fsnotify.Add(0x1)", "\t/fsnotify/inotify.go:93 +0x57"]
    waits.clear()
    run.plugin.has_exited_once = False
    registrations = iter([True, False])
    monkeypatch.setattr(lifecycle, "_registers_twice", lambda run, instances: True)
    with pytest.raises(Failed, match="its output does not mention inotify"):
        lifecycle.l07.run(run)


def test_output_of_a_program_that_does_not_register_shows_the_cause() -> None:
    """The texts begin with it. Repeated lines are given once."""
    hardware = PluginUnderTest(command=["x"], at_node_paths=True)
    run: Any = Run(has_tried_to_register=False)
    lines = [f"{number} open /sys/class/nowhere: no such file" for number in range(3)]
    run.plugin.process = SimpleNamespace(output=lambda: lines)
    run.plugin.under_test, run.plugin.processes = hardware, [run.plugin.process]
    with pytest.raises(Failed) as raised:
        run.wait_registered(None, 0, "x")
    advice = (
        "it printed: 2 open /sys/class/nowhere: no such file; /sys/class/nowhere does not exist on "
        "this machine: use --sys DIR, with the files that the plugin needs in place of /sys"
    )
    assert str(raised.value).startswith(f"not registered, 0 s after x: {advice}; nothing called ")
    run.plugin.has_exited = True
    with pytest.raises(Failed, match=r"exit status 1\. It printed: 2 open .*: use --sys DIR"):
        run.wait_registered(None, 0, "x")


@pytest.mark.parametrize(
    ("line", "options", "advice"),
    [
        ("cannot watch /var/lib/kubelet/device-plugins/: no", {}, "use --at-node-paths"),
        ("cannot watch /var/lib/kubelet/device-plugins/: no", {"at_node_paths": True}, ""),
        ("open '/dev/nowhere0': no such file", {}, "/dev/nowhere0 does not exist on this machine"),
        ("cannot read /dev/null, sorry", {}, ""),
        ("no /sys/kernel/nowhere", {}, ""),
        ("no /opt/dev/nowhere", {}, ""),
        ("ready", {}, ""),
    ],
)
def test_advice_on_output(line: str, options: dict[str, bool], advice: str) -> None:
    plugin = PluginUnderTest(command=["x"], **options)  # type: ignore[arg-type]
    found = plugin.advice_on_output(["first", line, "exit"])
    assert advice in found if advice else not found


def test_advice_on_output_knows_declared_hardware(tmp_path: Path) -> None:
    (tmp_path / "card0").touch()
    plugin = PluginUnderTest(command=["x"], hardware=Hardware(dev=tmp_path))
    assert plugin.advice_on_output(["no /dev/card0"]) == ""
    text = f"/dev/card1 does not exist in {tmp_path} (--dev): create it there"
    assert plugin.advice_on_output(["no /dev/card1:"]) == text
    driver = DriverUnderTest(command=["x"])
    assert driver.advice_on_output(["no /var/lib/kubelet/plugins"]).endswith("use --private-root")


def test_failed_registration_says_what_happened_instead() -> None:
    def text(**observed: Any) -> str:
        with pytest.raises(Failed) as raised:
            Run(**observed).wait_registered(None, 0, "x")  # type: ignore[arg-type]
        return str(raised.value)

    silence = "nothing called Register at /kubelet.sock; advice"
    assert text(has_tried_to_register=False) == f"not registered, 0 s after x: {silence}"
    others = [SimpleNamespace(resource=name) for name in ("b/c", GPU, "a/b")]
    assert text(registrations=lambda since, code="OK": others) == (
        "not registered, 0 s after x; it registered a/b, b/c instead"
    )
    assert text(missing=lambda since, resource: f"no list of {resource}") == (
        f"no list of {GPU}, 0 s after x"
    )


def test_plugin_that_does_not_notice_a_restart_is_reported_as_that() -> None:
    run = Run(is_registered=lambda since, resources: True)
    run.wait_registered(None, 0, "its start")  # type: ignore[arg-type]
    run.observed.is_registered = lambda since, resources: False
    with pytest.raises(Failed) as raised:
        run.restart_and_recover()
    text = "the plugin did not notice the restart (no Register call within 0 s)"
    assert str(raised.value) == text
    run.observed.is_registering = True
    with pytest.raises(Failed, match=r"^the kubelet has not responded to Register, 0 s after "):
        run.restart_and_recover()


def test_plugin_that_exits_fails_at_once() -> None:
    run = Run()
    run.plugin.has_exited = True
    for wait in (
        lambda: run.wait_registered(None, 9, "x"),  # type: ignore[arg-type]
        lambda: run.check_alive("x"),
    ):
        with pytest.raises(Failed, match=r"^the plugin exited after x: exit status 1$"):
            wait()


def test_registration_is_a_step() -> None:
    run = Run(is_registered=lambda since, resources: resources == (GPU,))
    assert run.wait_registered(None, 0, "x") < 5  # type: ignore[arg-type]
    assert [step.partition(" s ")[2] for step in run.seen] == ["after x"]


def test_slow_recovery_is_a_warning() -> None:
    run = Run()
    run.limits = attrs.evolve(LIMITS, recover_warn_seconds=2)
    run.warn_if_slow(2.0, "x")
    with pytest.raises(Warned, match=r"^registered only 2\.1 s after x, more than 2 s$"):
        run.warn_if_slow(2.1, "x")


def test_failed_calls_are_named() -> None:
    def fail(*_: object) -> None:
        raise CallFailed("Allocate", grpc.RpcError("no"))

    run, error = Run(), CallFailed("Allocate", grpc.RpcError("no"))
    assert 0 <= run.timed(lambda: None, "x") < 5
    with pytest.raises(Failed) as raised:
        run.timed(fail, "x")
    assert str(raised.value) == f"x: {error}"
    with pytest.raises(Failed) as raised:
        run.first_list(SimpleNamespace(next=fail))  # type: ignore[arg-type]
    assert str(raised.value) == f"the first device list of a second stream: {error}"


def test_wait_without_registration_gives_advice_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 2))
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
    monkeypatch.setattr("devicemanager.conformance.suite_run.time", clock)
    run = Run(has_tried_to_register=False)
    notes: list[str] = []
    run.stage.on_wait = notes.append
    assert run.until_registered(lambda: False, 30) is None
    text = "s, the plugin has not registered at /kubelet.sock (limit 30 s)"
    assert notes == [f"after 4 {text}; advice", f"after 14 {text}", f"after 24 {text}"]


@pytest.mark.parametrize(
    ("size", "result"),
    [
        (2, "2 bytes"),
        (3, "a device list has 3 bytes, the kubelet's limit is 4194304"),
        (4, "a device list has 4 bytes, the kubelet's limit is 4194304"),
        (5, "a device list has 5 bytes, limit 5"),
    ],
)
def test_size_of_device_lists_has_two_limits(size: int, result: str) -> None:
    calls = [SimpleNamespace(response_bytes=b"x" * size), SimpleNamespace(response_bytes=None)]
    run = Run(lists=lambda resource, since: calls)
    run.limits = attrs.evolve(LIMITS, list_warn_bytes=3, list_bytes=5)
    if size < 3:
        assert w10.run(run) == result
        return
    with pytest.raises(Failed if size == 5 else Warned) as raised:
        w10.run(run)
    assert str(raised.value) == result


_A, _B, _SICK_B = dp.Device(ID="a"), dp.Device(ID="b"), dp.Device(ID="b", health="Unhealthy")


@pytest.mark.parametrize(
    ("lists", "seconds"),
    [
        # Complete 1.5 s after the first list.
        ([[_A, _B]], 1.5),
        # Complete 1.5 s after the list with the last device, the third one.
        ([[], [_A], [_A, _B]], 2.0),
        # Another order or health: the same devices.
        ([[_A, _B], [_B, _A], [_A, _SICK_B]], 1.5),
        # Never complete.
        ([[dp.Device(ID=str(number))] for number in range(100)], None),
    ],
)
def test_lists_are_complete_once_their_devices_stay_the_same(
    lists: Sequence[Sequence[dp.Device]], seconds: float | None
) -> None:
    """The plugin sends a list every 0.25 s, and repeats the last one."""
    now = 0.0

    def newest() -> SimpleNamespace:
        number = int(now / 0.25)
        return SimpleNamespace(time=number * 0.25, devices=lists[min(number, len(lists) - 1)])

    run: Any = Run(
        lists=lambda resource, since: [newest()], devices=lambda resource: newest().devices
    )
    run.limits = Limits(settle_seconds=1.5, refresh_seconds=10.0)
    run.stage.device_counts = {}
    run.kubelet.clock = SimpleNamespace(time=lambda: now)
    waited: list[float | None] = []

    def until(condition: Callable[[], bool], limit: float) -> None:
        nonlocal now
        while not condition() and now < limit:
            now += 0.25
        waited.append(now if now < limit else None)

    run.until = until
    run.wait_devices()
    assert waited == [seconds]
