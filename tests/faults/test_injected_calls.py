"""Faults of calls and of ListAndWatch streams, as a plugin observes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest

from devicemanager.events.stream import EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.plugin.simulated import SimulatedPlugin
from tests.faults.conftest import Outcome, R, cancelled_in, delays, endpoint_of, register
from tests.hostile import hostile, residue
from tests.hostile.conftest import pod

InThread = Callable[..., Future[Any]]
Simulated = Callable[..., SimulatedPlugin]
S = "example.com/sim"
INJECTED = "code = Unavailable desc = injected fault"


def calls_of(plugin: SimulatedPlugin, rpc: str) -> int:
    return sum(call.rpc == rpc for call in plugin.calls)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("rpc", ["Allocate", "GetPreferredAllocation", "PreStartContainer"])
def test_fail_call_fails_before_or_after_the_plugin(
    kubelet: MockKubelet, simulated: Simulated, rpc: str, when: str
) -> None:
    """The pod is rejected whether or not the plugin received the call."""
    plugin = simulated(S, pre_start=True, preferred_policy="lexical")
    kubelet.faults.set("fail-call", rpc=rpc, when=when, times=1)
    answer = kubelet.admit(pod("one", 1, S))
    assert calls_of(plugin, rpc) == (when == "after")
    assert INJECTED in f"{answer.message}{answer.containers}"
    (call,) = kubelet.calls(S, rpc=rpc)[-1:]
    assert "fail-call" in call.fault
    assert call.code == "Unavailable"
    assert kubelet.admit(pod("two", resource=S)).admitted
    (call,) = kubelet.calls(S, rpc=rpc)[-1:]
    assert call.fault == ""


@pytest.mark.parametrize("when", ["before", "after"])
def test_fail_call_rejects_registration_if_options_fail(
    kubelet: MockKubelet, plugin: hostile.RawPlugin, when: str
) -> None:
    kubelet.faults.set("fail-call", rpc="GetDevicePluginOptions", when=when, times=1)
    assert INJECTED in register(kubelet, "p.sock").text
    assert plugin.streams == 0
    assert register(kubelet, "p.sock") == Outcome("OK", "")


@pytest.mark.parametrize("when", ["before", "after"])
def test_delay_call_delays_registration_while_options_are_delayed(
    kubelet: MockKubelet,
    clock: ManualClock,
    plugin: hostile.RawPlugin,
    in_thread: InThread,
    when: str,
) -> None:
    latest = kubelet.events.latest
    kubelet.faults.set("delay-call", rpc="GetDevicePluginOptions", when=when, seconds=30)
    answer = in_thread(register, kubelet, "p.sock")
    started = clock.time()
    kubelet.wait_for_event(EventKind.FAULT, after=latest)
    assert delays(kubelet)
    assert register(kubelet, "q.sock", "bad").code == "UNKNOWN"  # not delayed
    assert plugin.streams == 0
    clock.advance(30)
    assert answer.result(20) == Outcome("OK", "")
    event = kubelet.wait_for_event(EventKind.REGISTERED, after=latest)
    assert event.time == started + 30


@pytest.mark.parametrize("when", ["before", "after"])
def test_delay_call_delays_one_admission_and_no_other(
    kubelet: MockKubelet,
    clock: ManualClock,
    simulated: Simulated,
    in_thread: InThread,
    when: str,
) -> None:
    plugin = simulated(S)
    latest = kubelet.events.latest
    kubelet.faults.set("delay-call", rpc="Allocate", when=when, seconds=60, times=1)
    answer = in_thread(kubelet.admit, pod("slow", resource=S))
    started = clock.time()
    kubelet.wait_for_event(EventKind.FAULT, after=latest)
    assert delays(kubelet)
    assert kubelet.admit(pod("quick", resource=S)).admitted  # not delayed
    assert calls_of(plugin, "Allocate") == 1 + (when == "after")
    clock.advance(59)
    assert not answer.done()
    clock.advance(1)
    assert answer.result(20).admitted
    times = [event.time for event in kubelet.events.recent(EventKind.ALLOCATED)[-2:]]
    assert times == [started, started + 60]
    assert calls_of(plugin, "Allocate") == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_cut_call_cuts_the_connection(
    kubelet: MockKubelet, simulated: Simulated, when: str
) -> None:
    """The plugin's ListAndWatch stream ends, and the plugin re-registers."""
    plugin = simulated(S)
    kubelet.faults.set("cut-call", rpc="Allocate", when=when, times=1)
    answer = kubelet.admit(pod("cut", resource=S))
    assert "desc = the connection was cut" in answer.message
    assert calls_of(plugin, "Allocate") == (when == "after")
    assert plugin.wait_for_call("ListAndWatch", 2)
    kubelet.wait_for_resource(S, 2)


def test_cut_call_cuts_the_connection_during_the_call(
    kubelet: MockKubelet, clock: ManualClock, in_thread: InThread
) -> None:
    cancelled = threading.Event()
    kubelet.faults.set("cut-call", rpc="Allocate", when="during", seconds=2)
    path = kubelet.plugin_dir / "p.sock"
    with hostile.RawPlugin(path, allocate=cancelled_in(cancelled)) as plugin:
        register(kubelet, "p.sock")
        kubelet.wait_for_resource(R, 2)
        answer = in_thread(kubelet.admit, pod("cut"))
        assert residue.eventually(lambda: bool(plugin.allocations))
        assert not cancelled.is_set()
        clock.advance(2)
        assert cancelled.wait(20)
        assert "code = Canceled" in answer.result(20).message


def test_cut_call_ignores_a_call_that_ends_in_time(
    kubelet: MockKubelet, simulated: Simulated
) -> None:
    plugin = simulated(S)
    kubelet.faults.set("cut-call", rpc="Allocate", when="during", seconds=2, times=1)
    assert kubelet.admit(pod("quick", resource=S)).admitted
    kubelet.clock.advance(3)  # type: ignore[attr-defined]  # a ManualClock
    assert kubelet.admit(pod("next", resource=S)).admitted
    assert calls_of(plugin, "ListAndWatch") == 1


# -- ListAndWatch streams --------------------------------------------------------------------


def test_end_list_stream_ends_one_stream_only(kubelet: MockKubelet, simulated: Simulated) -> None:
    """The plugin's socket stays, and another plugin is not affected."""
    ended = threading.Event()

    def stream(context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(ended.set)
        yield hostile.devices("d0", "d1")
        hostile.until_cancelled(context)

    other = simulated(S)
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock", lists=stream) as plugin:
        register(kubelet, "p.sock")
        kubelet.wait_for_resource(R, 2)
        latest = kubelet.events.latest
        kubelet.faults.set("end-list-stream", resource=R)
        kubelet.wait_for_resource(R, 0)
        assert ended.wait(20)
        assert register(kubelet, "p.sock") == Outcome("OK", "")
        kubelet.wait_for_resource(R, 2)
        assert plugin.streams == 2
        events = kubelet.events.recent(EventKind.STREAM_ENDED)
        assert [event.resource for event in events if event.number > latest] == [R]
    assert calls_of(other, "ListAndWatch") == 1


def test_end_list_stream_at_a_list(kubelet: MockKubelet, simulated: Simulated) -> None:
    plugin = simulated(S)
    kubelet.faults.set("end-list-stream", at="list")
    plugin.set_health(plugin.devices[0].id, "Unhealthy")
    assert plugin.wait_for_call("ListAndWatch", 2)


def settled(value: Callable[[], int]) -> int:
    """Return the value once it stays the same."""
    values = [-1] * 20

    def same() -> bool:
        values.append(value())
        return len(set(values[-20:])) == 1

    assert residue.eventually(same)
    return values[-1]


class Lists:
    """A ListAndWatch handler that sends lists of about 64 KiB until ``enough`` is set.

    Counts the lists that it has sent.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.enough = threading.Event()

    def __call__(self, context: grpc.ServicerContext) -> Iterator[bytes]:
        while context.is_active() and not self.enough.is_set():
            self.sent += 1
            yield hostile.devices(*(f"{number:0300}-{self.sent % 2}" for number in range(200)))
        hostile.until_cancelled(context)


def test_stop_reading_fills_the_stream_window(kubelet: MockKubelet, clock: ManualClock) -> None:
    """The plugin cannot send any more; other calls to it are not affected."""
    lists = Lists()
    latest = kubelet.events.latest
    state = kubelet.faults.set("stop-reading", resource=R, after=2)
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock", lists=lists) as plugin:
        register(kubelet, "p.sock")
        kubelet.wait_for_event(EventKind.FAULT, after=latest)
        stuck = settled(lambda: lists.sent)
        assert kubelet.admit(pod("any")).admitted
        assert plugin.allocations
        kubelet.faults.clear(state.id)
        assert residue.eventually(lambda: lists.sent > stuck + 1)
        lists.enough.set()


def test_stop_reading_ends_by_the_clock(
    kubelet: MockKubelet, clock: ManualClock, simulated: Simulated
) -> None:
    plugin = simulated(S)
    latest = kubelet.events.latest
    kubelet.faults.set("stop-reading", seconds=30, times=1)
    plugin.set_health(plugin.devices[0].id, "Unhealthy")
    kubelet.wait_for_event(EventKind.FAULT, after=latest)
    assert delays(kubelet)
    assert kubelet.allocatable()[S] == 2
    clock.advance(30)
    kubelet.wait_for_resource(S, 1)


def test_stop_reading_ends_when_the_plugin_reregisters(
    kubelet: MockKubelet, simulated: Simulated
) -> None:
    """The plugin gets a new connection, and the old one does not block a thread."""
    plugin = simulated(S)
    latest = kubelet.events.latest
    kubelet.faults.set("stop-reading", times=1)
    plugin.set_health(plugin.devices[0].id, "Unhealthy")
    kubelet.wait_for_event(EventKind.FAULT, after=latest)
    assert delays(kubelet)
    register(kubelet, endpoint_of(kubelet, S), S)
    kubelet.wait_for_resource(S, 1)
    assert delays(kubelet, 0)
