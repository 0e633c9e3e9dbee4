"""Verdicts do not depend on the load of the machine: slow starts, slow calls, waits for a core."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from devicemanager.conformance import Limits, Outcome, PluginUnderTest, run, select
from devicemanager.conformance.checks import allocate, listandwatch, options, registration
from devicemanager.conformance.outcomes import Failed, Skipped
from devicemanager.conformance.process_checks import ThreadTime
from devicemanager.conformance.running_plugin import RunningPlugin
from devicemanager.kubelet.settings import Settings
from protos import deviceplugin_v1beta1 as dp
from tests.conformance.matrix import limits, plugin
from tests.conformance.test_check_run import GPU, Run

_SETTINGS = Settings(durability="process", dial_timeout=1.0)


def outcome(id_: str, under_test: PluginUnderTest, changed: Limits) -> tuple[Outcome, str]:
    [verdict] = run(under_test, select([id_]), limits=changed, settings=_SETTINGS).verdicts
    return verdict.outcome, verdict.seen


def test_misconfigured_plugin_may_start_slowly() -> None:
    """L11 allows the time of a start, not that of an exit."""
    program = "import sys, time; time.sleep(0.3); sys.exit('no such directory')"
    under_test = PluginUnderTest(command=[sys.executable, "-c", program], resources=[GPU])
    quick = attrs.evolve(limits(), stop_seconds=0.1)
    assert outcome("L11", under_test, quick)[0] is Outcome.PASS


def test_crash_is_found_after_the_end_of_its_connection() -> None:
    result, seen = outcome("A17", plugin("exit-on-empty"), limits())
    assert result is Outcome.FAIL
    assert seen == "the plugin exited after an empty request: exit status 7"


def test_second_instance_may_start_slowly() -> None:
    """K12 allows the time of a start."""
    quick = attrs.evolve(limits(), recover_warn_seconds=0.0)
    assert outcome("K12", plugin(), quick)[0] is Outcome.PASS


def test_slow_return_after_an_exit_is_a_warning() -> None:
    under_test = plugin("exit-1-on-loss")
    result, seen = outcome("K15", under_test, attrs.evolve(limits(), recover_warn_seconds=0.0))
    assert result is Outcome.WARN, seen


def timed_run(*seconds: float) -> Any:
    left = list(seconds)
    return SimpleNamespace(limits=Limits(), timed=lambda call, what: left.pop(0))


def test_fastest_allocation_counts() -> None:
    assert allocate._allocate_time(timed_run(3.0, 0.2), SimpleNamespace(), []) == 0.2
    assert allocate._allocate_time(timed_run(3.0, 5.0, 4.0), SimpleNamespace(), []) == 3.0


def test_fastest_call_for_the_options_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0.0, 9.0, 10.0, 10.1, 20.0, 29.0))
    monkeypatch.setattr(options.time, "monotonic", lambda: next(times))
    client = SimpleNamespace(options=lambda seconds: dp.DevicePluginOptions())
    check_run: Any = SimpleNamespace(clients=lambda: [(GPU, client)], limits=Limits())
    assert options.o01.run(check_run) == "0.100 s"


def test_kubelet_asks_for_the_plugin_info_again() -> None:
    calls = {
        "GetInfo": [
            SimpleNamespace(code="DeadlineExceeded", message="too late"),
            SimpleNamespace(
                code="OK",
                response={"type": "DevicePlugin", "supported_versions": ["v1beta1"]},
                plugin="/plugins_registry/gpu.sock",
            ),
        ]
    }
    check_run = Run()
    check_run.kubelet.calls = lambda rpc: calls.get(rpc, [])
    check_run.kubelet.plugins_registry_dir = SimpleNamespace(rglob=lambda pattern: [])
    registration.r12.run(check_run)
    del calls["GetInfo"][1]
    with pytest.raises(Failed, match="DeadlineExceeded: too late"):
        registration.r12.run(check_run)


def test_stream_that_ends_by_itself_says_nothing_about_a_second_one() -> None:
    check_run: Any = Run(ended_streams=lambda resource: ["its end"])
    check_run.start = lambda: None
    with pytest.raises(Skipped, match="ended the ListAndWatch stream") as raised:
        listandwatch.w11.run(check_run)
    assert raised.value.cause == "W02"


def test_only_healthy_devices_are_removed() -> None:
    """A plugin may have thousands of devices without hardware."""
    devices = [dp.Device(ID=id_, health=id_) for id_ in ("Healthy", "Unhealthy")]
    check_run: Any = Run(*devices)
    check_run.start = lambda: None
    check_run.plugin.process = SimpleNamespace(is_running=True)
    check_run.plugin.processes = [check_run.plugin.process]
    with pytest.raises(Failed):
        listandwatch.w14.run(check_run)
    removed = [each for each in check_run.seen if each[0] == "remove-device"]
    assert removed == [("remove-device", "Healthy")]


@pytest.mark.parametrize(
    ("cpu", "waited", "share"),
    [(0.1, 0.0, 0.01), (0.5, 9.5, 0.5), (0.1, 5.0, 0.02), (0.001, 9.999, 0.001)],
)
def test_busy_plugin_that_rarely_gets_a_core(
    monkeypatch: pytest.MonkeyPatch, cpu: float, waited: float, share: float
) -> None:
    """A share is that of the time in which the plugin does not wait for a core."""
    process = SimpleNamespace(pid=1, is_running=True, starts=1)
    running = RunningPlugin(PluginUnderTest(command=["plugin"]), SimpleNamespace())  # type: ignore[arg-type]
    running.processes.append(process)  # type: ignore[arg-type]
    now = {"seconds": 100.0, "cpu": 7.0, "waited": 3.0}
    module = "devicemanager.conformance.running_plugin"
    checks = SimpleNamespace(
        cpu_seconds=lambda pid: now["cpu"],
        thread_times=lambda pid: {1: ThreadTime(now["cpu"], now["waited"])},
    )
    monkeypatch.setattr(f"{module}._process_checks", lambda: checks)
    monkeypatch.setattr(f"{module}.time.monotonic", lambda: now["seconds"])
    running.begin_idle()
    now.update(seconds=110.0, cpu=7.0 + cpu, waited=3.0 + waited)
    assert running.idle_cpu_share == pytest.approx(share)


class Instance:
    """Process that ends with this status, such as that of SIGKILL if it ignores SIGTERM."""

    def __init__(self, status: int, is_running: bool = True) -> None:
        self.exit_status, self.signals = status, [0][:0]
        self.is_running, self.pid = is_running, 1
        self.timeouts: list[float] = []

    def stop(self, timeout: float) -> None:
        self.signals.append(signal.SIGTERM)
        self.timeouts.append(timeout)

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def stay_down(self) -> None:
        pass


def test_plugin_that_ignores_sigterm_is_waited_for_once() -> None:
    under_test = PluginUnderTest(command=["plugin"])
    kubelet: Any = SimpleNamespace(plugin_dir="", root="")
    sent = []
    killed = -signal.SIGKILL
    instances = [
        Instance(0),
        Instance(killed, is_running=False),  # the check has killed it
        Instance(killed),
        Instance(killed),
    ]
    for instance in instances:
        running = RunningPlugin(under_test, kubelet, 2.5)
        running.processes.append(instance)  # type: ignore[arg-type]
        running.close()
        sent.append(instance.signals)
        assert instance.timeouts == [2.5]
    assert sent == [[signal.SIGTERM]] * 3 + [[signal.SIGKILL, signal.SIGTERM]]


def slow_machine(monkeypatch: pytest.MonkeyPatch, share: float) -> tuple[Run, Callable[[], float]]:
    """Return a run whose plugin waits for a core for this share of the time, and its clock."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now)
    monkeypatch.setattr("devicemanager.conformance.suite_run.time", clock)
    check_run = Run()
    check_run.plugin.core_waits = lambda: {1: 0.0, 2: 7.0 + share * now}
    return check_run, lambda: now


def test_time_without_a_core_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    check_run, now = slow_machine(monkeypatch, 0.75)
    took = check_run.until(lambda: now() >= 21.0, 10.0)
    # The first second counts: waits are read later.
    assert took == pytest.approx(1.0 + 0.25 * 20.0, abs=0.1)


@pytest.mark.parametrize(("share", "longest"), [(0.0, 10.0), (0.75, 37.0), (1.0, 50.0)])
def test_wait_on_a_busy_machine_ends(
    monkeypatch: pytest.MonkeyPatch, share: float, longest: float
) -> None:
    check_run, now = slow_machine(monkeypatch, share)
    assert check_run.until(lambda: False, 10.0) is None
    assert now() == pytest.approx(longest, abs=0.1)


def test_time_of_a_thread_that_starts_during_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted plugin has new threads, whose time without a core counts from zero."""
    check_run, now = slow_machine(monkeypatch, 0.0)
    check_run.plugin.core_waits = lambda: {1: 3.0} if now() < 2.0 else {1: 3.0, 9: 8.0}
    took = check_run.until(lambda: now() >= 15.0, 10.0)
    assert took == pytest.approx(15.0 - 8.0, abs=0.1)


def test_threads_of_the_suite_and_of_the_plugin() -> None:
    running = RunningPlugin(PluginUnderTest(command=["plugin"]), SimpleNamespace())  # type: ignore[arg-type]
    assert threading.get_native_id() in running.core_waits()
    with subprocess.Popen(["sleep", "60"]) as process:
        running.processes.append(SimpleNamespace(pid=process.pid))  # type: ignore[arg-type]
        assert {threading.get_native_id(), process.pid} <= running.core_waits().keys()
        process.kill()


def test_without_psutil_no_thread_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait is then as long as its limit. It must not skip its check."""

    def missing() -> None:
        raise Skipped("psutil is not installed")

    monkeypatch.setattr("devicemanager.conformance.running_plugin._process_checks", missing)
    running = RunningPlugin(PluginUnderTest(command=["plugin"]), SimpleNamespace())  # type: ignore[arg-type]
    running.processes.append(SimpleNamespace(pid=1))  # type: ignore[arg-type]
    assert running.core_waits() == {}


def test_time_of_an_observation_counts_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """R06 counts the calls in a window. A longer window would have more calls."""
    check_run, now = slow_machine(monkeypatch, 1.0)
    check_run.observe(lambda: False, 10.0)
    assert now() == pytest.approx(10.0, abs=0.1)
    check_run.observe(lambda: now() > 12.0, 10.0)
    assert now() == pytest.approx(12.0, abs=0.1)
