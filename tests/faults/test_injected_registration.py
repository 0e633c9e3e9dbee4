"""Faults of registration, each with a plugin that notices it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from devicemanager.events.stream import EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from protos import pluginregistration_v1 as pr
from tests.faults.conftest import Outcome, R, holds_up, register
from tests.hostile import hostile, residue

Elsewhere = Callable[..., Future[Any]]
OK = Outcome("OK", "")


def test_register_is_rejected(kubelet: MockKubelet, plugin: hostile.RawPlugin) -> None:
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


def test_the_selectors_say_who_is_rejected(kubelet: MockKubelet, plugin: hostile.RawPlugin) -> None:
    kubelet.faults.set("reject-register", resource="example.com/other")
    kubelet.faults.set("reject-register", plugin="other.sock")
    assert register(kubelet, "p.sock") == OK
    assert register(kubelet, "other.sock").code == "UNKNOWN"


def test_the_answer_to_register_comes_later(
    kubelet: MockKubelet, clock: ManualClock, plugin: hostile.RawPlugin, elsewhere: Elsewhere
) -> None:
    """The plugin serves its list while it waits, as with a kubelet that is slow."""
    kubelet.faults.set("delay-register", seconds=9)
    answer = elsewhere(register, kubelet, "p.sock")
    kubelet.wait_for_resource(R, 2)
    assert holds_up(kubelet)
    clock.advance(8.9)
    assert not answer.done()
    clock.advance(0.1)
    assert answer.result(20) == OK


def test_register_is_never_answered(
    kubelet: MockKubelet, plugin: hostile.RawPlugin, elsewhere: Elsewhere
) -> None:
    state = kubelet.faults.set("hang-register")
    answer = elsewhere(register, kubelet, "p.sock")
    kubelet.wait_for_resource(R, 2)
    assert holds_up(kubelet)
    assert not answer.done()
    kubelet.faults.clear(state.id)
    assert answer.result(20) == OK


def test_a_restart_does_not_wait_for_what_is_held_up(
    kubelet: MockKubelet, plugin: hostile.RawPlugin, elsewhere: Elsewhere
) -> None:
    kubelet.faults.set("hang-register")
    answer = elsewhere(register, kubelet, "p.sock")
    assert holds_up(kubelet)
    kubelet.restart()
    assert answer.result(20) is not None


@pytest.mark.parametrize(("when", "registered"), [("before", False), ("after", True)])
def test_the_connection_is_dropped(
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
    assert register(kubelet, "p.sock") == OK  # kubelet.sock serves on


def info() -> hostile.Unary:
    answer = pr.PluginInfo(type="DevicePlugin", name=R, supported_versions=["v1beta1"])
    return hostile.constant(answer.SerializeToString())


def told_again(clock: ManualClock, plugin: hostile.RawPlugin) -> bool:
    """Whether the watcher tries again, and the plugin is told that it is registered."""

    def told() -> bool:
        clock.advance(1)
        return any(each.plugin_registered for each in plugin.notified)

    return residue.eventually(told)


def test_a_plugin_is_told_that_it_is_not_registered(
    kubelet: MockKubelet, clock: ManualClock
) -> None:
    kubelet.faults.set("reject-notification", text="no room", times=1)
    with hostile.RawPlugin(kubelet.plugins_registry_dir / "w.sock", info=info()) as plugin:
        assert residue.eventually(lambda: bool(plugin.notified))
        first = plugin.notified[0]
        assert (first.plugin_registered, first.error) == (False, "no room")
        assert told_again(clock, plugin)
        kubelet.wait_for_resource(R, 2)


def test_a_notification_does_not_arrive(kubelet: MockKubelet, clock: ManualClock) -> None:
    latest = kubelet.events.latest
    kubelet.faults.set("fail-notification", code="DEADLINE_EXCEEDED", text="too slow", times=1)
    with hostile.RawPlugin(kubelet.plugins_registry_dir / "w.sock", info=info()) as plugin:
        kubelet.wait_for_event(EventKind.REGISTRATION_REJECTED, after=latest)
        assert plugin.notified == []
        (call,) = kubelet.calls(rpc="NotifyRegistrationStatus", code="DeadlineExceeded")
        assert "fail-notification" in call.fault
        assert told_again(clock, plugin)


def test_a_restart_between_register_and_the_first_list(
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
