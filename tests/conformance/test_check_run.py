"""A check's actions and waits, without a kubelet and a plugin."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import attrs
import grpc
import pytest

from devicemanager.conformance import Check, Limits
from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks import lifecycle
from devicemanager.conformance.checks.allocate import _allocate_one, a19
from devicemanager.conformance.checks.listandwatch import w10, w14
from devicemanager.conformance.client import CallFailed
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
            core_waits=dict,
            exit_text=lambda: "exit status 1",
            under_test=SimpleNamespace(
                advice="advice", kind="plugin", has=lambda name: name != "recover-device"
            ),
        )


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
    ("check", "hook"), [(a19, "add-device"), (w14, "remove-device")], ids=["A19", "W14"]
)
def test_plugin_that_sends_one_list_only_has_the_bug_of_w07(check: Check, hook: str) -> None:
    """The hook is not the cause, and the symptom is that of one list."""
    run = Run(dp.Device(ID="a", health="Healthy"), is_registered=lambda since, resources: True)
    run.plugin.process = SimpleNamespace(is_running=True)
    run.client = lambda: contextlib.nullcontext(Anything())  # type: ignore[method-assign]
    with pytest.raises(Failed) as raised:
        check.run(run)
    assert str(raised.value) == f"{_SILENT} {hook}"
    assert raised.value.cause == "W07"
    assert raised.value.symptom == "the kubelet still uses the first device list"
    listed = SimpleNamespace(response_bytes=b"", stream_message=2, time=0.0)
    run.observed.lists = lambda resource, since: [listed]
    with pytest.raises(Failed) as raised:
        check.run(run)
    assert raised.value.cause == "" and "device" in str(raised.value)


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
        "1 inotify instance; without any: exit status 1: cannot create a watcher: too many open "
        "files"
    )
    # The stack of a crash says nothing.
    output[:] = ["panic: nil pointer", "", "fsnotify.Add(0x1)", "\t/fsnotify/inotify.go:93 +0x57"]
    waits.clear()
    run.plugin.has_exited_once = False
    registrations = iter([True, False])
    monkeypatch.setattr(lifecycle, "_registers_twice", lambda run, instances: True)
    with pytest.raises(Failed, match="its output does not mention inotify"):
        lifecycle.l07.run(run)


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
    text = "of 30 s: the plugin has not registered at /kubelet.sock"
    assert notes == [f"4 {text}; advice", f"14 {text}", f"24 {text}"]


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
