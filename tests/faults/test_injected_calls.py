"""Faults of calls and of list streams, each with a plugin that notices it."""

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
from tests.faults.conftest import Outcome, R, cancelled_in, endpoint_of, holds_up, register
from tests.hostile import hostile, residue
from tests.hostile.conftest import pod

Elsewhere = Callable[..., Future[Any]]
Simulated = Callable[..., SimulatedPlugin]
S = "example.com/sim"
INJECTED = "code = Unavailable desc = injected fault"


def calls_of(plugin: SimulatedPlugin, rpc: str) -> int:
    return sum(call.rpc == rpc for call in plugin.calls)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("rpc", ["Allocate", "GetPreferredAllocation", "PreStartContainer"])
def test_a_call_fails(kubelet: MockKubelet, simulated: Simulated, rpc: str, when: str) -> None:
    """Before the plugin has seen it, or after it has answered: the pod fares the same."""
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
def test_options_fail(kubelet: MockKubelet, plugin: hostile.RawPlugin, when: str) -> None:
    kubelet.faults.set("fail-call", rpc="GetDevicePluginOptions", when=when, times=1)
    assert INJECTED in register(kubelet, "p.sock").text
    assert plugin.streams == 0
    assert register(kubelet, "p.sock") == Outcome("OK", "")


@pytest.mark.parametrize("when", ["before", "after"])
def test_options_take_long(
    kubelet: MockKubelet,
    clock: ManualClock,
    plugin: hostile.RawPlugin,
    elsewhere: Elsewhere,
    when: str,
) -> None:
    latest = kubelet.events.latest
    kubelet.faults.set("delay-call", rpc="GetDevicePluginOptions", when=when, seconds=30)
    answer = elsewhere(register, kubelet, "p.sock")
    started = clock.time()
    kubelet.wait_for_event(EventKind.FAULT, after=latest)
    assert holds_up(kubelet)
    assert register(kubelet, "q.sock", "bad").code == "UNKNOWN"  # nobody else waits
    assert plugin.streams == 0
    clock.advance(30)
    assert answer.result(20) == Outcome("OK", "")
    event = kubelet.wait_for_event(EventKind.REGISTERED, after=latest)
    assert event.time == started + 30


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_takes_long(
    kubelet: MockKubelet,
    clock: ManualClock,
    simulated: Simulated,
    elsewhere: Elsewhere,
    when: str,
) -> None:
    plugin = simulated(S)
    latest = kubelet.events.latest
    kubelet.faults.set("delay-call", rpc="Allocate", when=when, seconds=60, times=1)
    answer = elsewhere(kubelet.admit, pod("slow", resource=S))
    started = clock.time()
    kubelet.wait_for_event(EventKind.FAULT, after=latest)
    assert holds_up(kubelet)
    assert kubelet.admit(pod("quick", resource=S)).admitted  # nobody else waits
    assert calls_of(plugin, "Allocate") == 1 + (when == "after")
    clock.advance(59)
    assert not answer.done()
    clock.advance(1)
    assert answer.result(20).admitted
    times = [event.time for event in kubelet.events.recent(EventKind.ALLOCATED)[-2:]]
    assert times == [started, started + 60]
    assert calls_of(plugin, "Allocate") == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_connection_is_cut(kubelet: MockKubelet, simulated: Simulated, when: str) -> None:
    """The plugin sees its list stream end, and registers again."""
    plugin = simulated(S)
    kubelet.faults.set("cut-call", rpc="Allocate", when=when, times=1)
    answer = kubelet.admit(pod("cut", resource=S))
    assert "desc = the connection was cut" in answer.message
    assert calls_of(plugin, "Allocate") == (when == "after")
    assert plugin.wait_for_call("ListAndWatch", 2)
    kubelet.wait_for_resource(S, 2)


def test_the_connection_is_cut_while_the_plugin_works(
    kubelet: MockKubelet, clock: ManualClock, elsewhere: Elsewhere
) -> None:
    gone = threading.Event()
    kubelet.faults.set("cut-call", rpc="Allocate", when="during", seconds=2)
    path = kubelet.plugin_dir / "p.sock"
    with hostile.RawPlugin(path, allocate=cancelled_in(gone)) as plugin:
        register(kubelet, "p.sock")
        kubelet.wait_for_resource(R, 2)
        answer = elsewhere(kubelet.admit, pod("cut"))
        assert residue.eventually(lambda: bool(plugin.allocations))
        assert not gone.is_set()
        clock.advance(2)
        assert gone.wait(20)
        assert "code = Canceled" in answer.result(20).message


def test_a_call_that_ends_in_time_is_not_cut(kubelet: MockKubelet, simulated: Simulated) -> None:
    plugin = simulated(S)
    kubelet.faults.set("cut-call", rpc="Allocate", when="during", seconds=2, times=1)
    assert kubelet.admit(pod("quick", resource=S)).admitted
    kubelet.clock.advance(3)  # type: ignore[attr-defined]  # a ManualClock
    assert kubelet.admit(pod("next", resource=S)).admitted
    assert calls_of(plugin, "ListAndWatch") == 1


# -- list streams ----------------------------------------------------------------------------


def test_one_list_stream_ends(kubelet: MockKubelet, simulated: Simulated) -> None:
    """Nothing but the stream: the plugin's socket stays, and another plugin notices nothing."""
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


def test_a_list_stream_ends_at_a_list(kubelet: MockKubelet, simulated: Simulated) -> None:
    plugin = simulated(S)
    kubelet.faults.set("end-list-stream", at="list")
    plugin.set_health(plugin.devices[0].id, "Unhealthy")
    assert plugin.wait_for_call("ListAndWatch", 2)


def settled(value: Callable[[], int]) -> int:
    """A number that does not grow any more."""
    seen = [-1] * 20

    def same() -> bool:
        seen.append(value())
        return len(set(seen[-20:])) == 1

    assert residue.eventually(same)
    return seen[-1]


class Lists:
    """ListAndWatch that always has one more list until it is ``enough``, each of about
    64 KiB; counts those that went out."""

    def __init__(self) -> None:
        self.sent = 0
        self.enough = threading.Event()

    def __call__(self, context: grpc.ServicerContext) -> Iterator[bytes]:
        while context.is_active() and not self.enough.is_set():
            self.sent += 1
            yield hostile.devices(*(f"{number:0300}-{self.sent % 2}" for number in range(200)))
        hostile.until_cancelled(context)


def test_a_list_stream_is_not_read(kubelet: MockKubelet, clock: ManualClock) -> None:
    """Its window fills, and the plugin cannot send any more. Nobody else waits."""
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


def test_reading_goes_on_by_the_clock(
    kubelet: MockKubelet, clock: ManualClock, simulated: Simulated
) -> None:
    plugin = simulated(S)
    latest = kubelet.events.latest
    kubelet.faults.set("stop-reading", seconds=30, times=1)
    plugin.set_health(plugin.devices[0].id, "Unhealthy")
    kubelet.wait_for_event(EventKind.FAULT, after=latest)
    assert holds_up(kubelet)
    assert kubelet.allocatable()[S] == 2
    clock.advance(30)
    kubelet.wait_for_resource(S, 1)


def test_a_stream_that_is_not_read_can_end(kubelet: MockKubelet, simulated: Simulated) -> None:
    """A plugin that registers again gets a new connection; the old one holds no thread."""
    plugin = simulated(S)
    latest = kubelet.events.latest
    kubelet.faults.set("stop-reading", times=1)
    plugin.set_health(plugin.devices[0].id, "Unhealthy")
    kubelet.wait_for_event(EventKind.FAULT, after=latest)
    assert holds_up(kubelet)
    register(kubelet, endpoint_of(kubelet, S), S)
    kubelet.wait_for_resource(S, 1)
    assert holds_up(kubelet, 0)
