"""Faults of registration, as a plugin observes them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from devicemanager.events.stream import EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from protos import pluginregistration_v1 as pr
from tests.faults.conftest import Outcome, R, delays, register
from tests.hostile import hostile, residue

InThread = Callable[..., Future[Any]]
OK = Outcome("OK", "")


def test_reject_register_rejects_once(kubelet: MockKubelet, plugin: hostile.RawPlugin) -> None:
    latest = kubelet.events.latest
    kubelet.faults.set("reject-register", code="UNAVAILABLE", text="not now", times=1, resource=R)
    assert register(kubelet, "p.sock") == Outcome("UNAVAILABLE", "not now")
    assert plugin.streams == 0
    assert not kubelet.allocatable().get(R)
    event = kubelet.wait_for_event(EventKind.FAULT, resource=R, after=latest)
    assert event.details["fault_kind"] == "reject-register"
    rejected = kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=latest)
    assert "not now (fault" in rejected.message
    (call,) = kubelet.calls(R, rpc="Register", code="Unavailable")[-1:]
    assert "reject-register" in call.fault
    assert register(kubelet, "p.sock") == OK


def test_reject_register_selects_by_resource_and_plugin(
    kubelet: MockKubelet, plugin: hostile.RawPlugin
) -> None:
    kubelet.faults.set("reject-register", resource="example.com/other")
    kubelet.faults.set("reject-register", plugin="other.sock")
    assert register(kubelet, "p.sock") == OK
    assert register(kubelet, "other.sock").code == "UNKNOWN"


def test_delay_register_delays_the_response(
    kubelet: MockKubelet, clock: ManualClock, plugin: hostile.RawPlugin, in_thread: InThread
) -> None:
    """The plugin serves its list while it waits, as with a slow kubelet."""
    kubelet.faults.set("delay-register", seconds=9)
    answer = in_thread(register, kubelet, "p.sock")
    kubelet.wait_for_resource(R, 2)
    assert delays(kubelet)
    clock.advance(8.9)
    assert not answer.done()
    clock.advance(0.1)
    assert answer.result(20) == OK


def test_hang_register_lasts_until_cleared(
    kubelet: MockKubelet, plugin: hostile.RawPlugin, in_thread: InThread
) -> None:
    state = kubelet.faults.set("hang-register")
    answer = in_thread(register, kubelet, "p.sock")
    kubelet.wait_for_resource(R, 2)
    assert delays(kubelet)
    assert not answer.done()
    kubelet.faults.clear(state.id)
    assert answer.result(20) == OK


def test_restart_does_not_wait_for_delayed_register(
    kubelet: MockKubelet, plugin: hostile.RawPlugin, in_thread: InThread
) -> None:
    kubelet.faults.set("hang-register")
    answer = in_thread(register, kubelet, "p.sock")
    assert delays(kubelet)
    kubelet.restart()
    assert answer.result(20) is not None


@pytest.mark.parametrize(("when", "registered"), [("before", False), ("after", True)])
def test_drop_register_cuts_the_connection(
    kubelet: MockKubelet, plugin: hostile.RawPlugin, when: str, registered: bool
) -> None:
    kubelet.faults.set("drop-register", when=when, times=1)
    latest = kubelet.events.latest
    outcome = register(kubelet, "p.sock")
    assert outcome.code == "UNAVAILABLE"
    assert "not" not in outcome.text
    if registered:
        kubelet.wait_for_resource(R, 2)
    else:
        rejected = kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=latest)
        assert " rejected: the connection was cut" in rejected.message
    assert plugin.streams == registered
    assert register(kubelet, "p.sock") == OK  # kubelet.sock still serves


def info() -> hostile.Unary:
    answer = pr.PluginInfo(type="DevicePlugin", name=R, supported_versions=["v1beta1"])
    return hostile.constant(answer.SerializeToString())


def notified_after_retry(clock: ManualClock, plugin: hostile.RawPlugin) -> bool:
    """True if the watcher retries and notifies the plugin that it is registered."""

    def notified() -> bool:
        clock.advance(1)
        return any(each.plugin_registered for each in plugin.notified)

    return residue.eventually(notified)


def test_reject_notification_reports_a_failed_registration(
    kubelet: MockKubelet, clock: ManualClock
) -> None:
    kubelet.faults.set("reject-notification", text="no room", times=1)
    with hostile.RawPlugin(kubelet.plugins_registry_dir / "w.sock", info=info()) as plugin:
        assert residue.eventually(lambda: bool(plugin.notified))
        first = plugin.notified[0]
        assert (first.plugin_registered, first.error) == (False, "no room")
        assert notified_after_retry(clock, plugin)
        kubelet.wait_for_resource(R, 2)


def test_fail_notification_withdraws_and_retries(kubelet: MockKubelet, clock: ManualClock) -> None:
    latest = kubelet.events.latest
    kubelet.faults.set("fail-notification", code="DEADLINE_EXCEEDED", text="too slow", times=1)
    with hostile.RawPlugin(kubelet.plugins_registry_dir / "w.sock", info=info()) as plugin:
        kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=latest)
        assert plugin.notified == []
        (call,) = kubelet.calls(rpc="NotifyRegistrationStatus", code="DeadlineExceeded")
        assert "fail-notification" in call.fault
        assert notified_after_retry(clock, plugin)


def test_restart_between_register_and_first_list(
    kubelet: MockKubelet, plugin: hostile.RawPlugin
) -> None:
    latest = kubelet.events.latest
    kubelet.faults.set("restart", at="registered")
    assert register(kubelet, "p.sock") == OK
    kubelet.wait_for_event(EventKind.STARTED, after=latest)
    assert plugin.streams == 0
    kinds = [event.kind for event in kubelet.events.recent() if event.number > latest]
    assert kinds.index(EventKind.REGISTERED) < kinds.index(EventKind.STOPPED)
    assert EventKind.DEVICES_UPDATED not in kinds
