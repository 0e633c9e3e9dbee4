"""Counters of a fault that is set, its delays, and the registry's edges."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults import Effect, Fault, FaultRegistry, FaultState, InjectionPoint
from devicemanager.faults.injection_point import NO_CONTEXT, FaultContext
from devicemanager.faults.registry import as_fault, first
from devicemanager.faults.states import Entry, Hold
from devicemanager.io.clock import ManualClock

GPU = FaultContext("vendor.com/gpu", "gpu.sock")
NIC = FaultContext("vendor.com/nic", "nic.sock")


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("hang-register", "fffff"),
        ("hang-register:after=1", ".ffff"),
        ("hang-register:times=1", "f...."),
        ("hang-register:after=2,times=2", "..ff."),
    ],
)
def test_fault_fires_after_its_first_matches_and_up_to_its_times(line: str, pattern: str) -> None:
    entry = Entry(1, Fault.parse(line))
    assert "".join("f" if entry.fires(GPU, 0) else "." for _ in range(5)) == pattern
    assert (entry.seen, entry.fired) == (5, pattern.count("f"))
    assert entry.matches == {"vendor.com/gpu": 5}


def test_certain_fault_always_fires_and_never_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    certain = Entry(1, Fault.parse("hang-register:probability=1"))

    def draw(seed: object) -> object:
        raise AssertionError("a certain fault needs no random number")

    monkeypatch.setattr("devicemanager.faults.states.random.Random", draw)
    assert all(certain.fires(GPU, seed) for seed in range(50))
    with pytest.raises(AssertionError):
        Entry(1, Fault.parse("hang-register:probability=0.9")).fires(GPU, 1)


def test_decisions_of_a_seed_never_change() -> None:
    """A seed in a bug report must decide the same in every release."""

    def decisions(line: str, id_: int = 1, seed: int = 0) -> str:
        entry = Entry(id_, Fault.parse(line))
        contexts = [GPU, NIC] * 12
        return "".join("f" if entry.fires(each, seed) else "." for each in contexts)

    half = "hang-register:probability=0.5"
    assert [decisions(half), decisions(half, 2), decisions(half, seed=1)] == DECISIONS[:3]
    own = f"{half},seed=7"
    assert decisions(own) == decisions(own, 2, 3) == DECISIONS[3]


DECISIONS = [
    "ff.f.f.f.fff.ffff...ffff",
    ".ffff..f.ff...f.ff..ff..",
    ".f.f...ff.f............f",
    "....ff..ffffffffffff..f.",
]


@pytest.mark.parametrize(
    ("line", "context", "concerned"),
    [
        ("hang-register", NO_CONTEXT, True),
        ("hang-register", GPU, True),
        ("hang-register:resource=vendor.com/gpu", GPU, True),
        ("hang-register:resource=vendor.com/gpu", NIC, False),
        ("hang-register:resource=vendor.com/gpu", NO_CONTEXT, False),
        ("hang-register:plugin=gpu.sock", GPU, True),
        ("hang-register:plugin=gpu.sock", NIC, False),
        ("empty-pod-resources:method=Get", FaultContext(rpc="Get"), True),
        ("empty-pod-resources:method=Get", FaultContext(rpc="List"), False),
        ("fail-call:when=after", FaultContext(rpc="Allocate", phase="after"), True),
        ("fail-call:when=after", FaultContext(rpc="Allocate"), False),
        ("restart:at=Allocate", FaultContext(rpc="Allocate"), True),
        ("restart:at=Allocate", FaultContext(rpc="Allocate", phase="after"), False),
        # Only calls have phases.
        ("hang-register", FaultContext(phase="after"), True),
    ],
)
def test_fault_concerns_what_its_options_name(
    line: str, context: FaultContext, concerned: bool
) -> None:
    assert Entry(1, Fault.parse(line)).concerns(context) is concerned


@pytest.mark.parametrize(
    ("line", "fired", "spent"),
    [
        ("hang-register", 0, False),
        ("hang-register", 5, False),
        ("hang-register:times=2", 1, False),
        ("hang-register:times=2", 2, True),
        ("restart", 1, True),
        ("restart", 0, True),
        ("restart:times=1,at=list", 0, False),
    ],
)
def test_fault_is_spent_when_it_cannot_fire_again(line: str, fired: int, spent: bool) -> None:
    state = FaultState(4, Fault.parse(line), 7, fired, 2)
    assert state.is_spent is spent
    data = state.as_data()
    assert {name: data[name] for name in ("id", "spec", "seen", "fired", "holding", "spent")} == {
        "id": 4,
        "spec": line,
        "seen": 7,
        "fired": fired,
        "holding": 2,
        "spent": spent,
    }
    assert FaultState(1, Fault.parse(line), 0, 0).holding == 0


# -- delays ------------------------------------------------------------------------------------


def test_hold_calls_back_once_when_it_is_released() -> None:
    ended: list[Hold] = []
    called: list[int] = []
    hold = Hold(ended.append)
    hold.on_release(lambda: called.append(hold.is_over))
    assert (hold.is_over, called) == (False, [])
    hold.release()
    hold.release()
    hold.cancel()
    assert (called, ended) == ([True], [hold])
    hold.on_release(lambda: called.append(2))
    assert called == [True, 2]


def test_cancelled_hold_calls_nothing_back_but_ends() -> None:
    clock, ended, called = ManualClock(), [], []
    hold = Hold(ended.append)
    hold.start(clock, 3)
    hold.on_release(lambda: called.append(1))
    hold.cancel()
    hold.release()
    clock.advance(5)
    assert (called, ended) == ([], [hold])


def test_released_hold_cancels_its_timer() -> None:
    clock = ManualClock(10)
    hold = Hold()
    hold.start(clock, 3)
    hold.release()
    assert clock._timers == []
    other = Hold()
    other.start(clock, None)
    assert clock._timers == []
    last = Hold()
    last.start(clock, 3)
    clock.advance(2.9)
    assert not last.is_over
    clock.advance(0.1)
    assert last.is_over and not other.is_over


def test_any_number_of_threads_can_wait_for_a_hold() -> None:
    hold = Hold()
    threads = [threading.Thread(target=hold.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    hold.release()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


# -- the registry ------------------------------------------------------------------------------


class Actions:
    """Actions that are noted."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, FaultContext]] = []

    def prepare(self, fault: Fault) -> object:
        return f"prepared {fault}"

    def execute(self, fault: Fault, context: FaultContext) -> None:
        self.done.append(("execute", str(fault), context))

    def start(self, fault: Fault, context: FaultContext) -> None:
        self.done.append(("start", str(fault), context))


def test_immediate_action_is_executed_and_published_but_not_stored() -> None:
    events, actions = EventStream(ManualClock()), Actions()
    registry = FaultRegistry(ManualClock(), events, actions)
    state = registry.set("restart", resource="vendor.com/gpu", plugin="gpu.sock")
    line = "restart:resource=vendor.com/gpu,plugin=gpu.sock"
    assert actions.done == [("execute", line, FaultContext("vendor.com/gpu", "gpu.sock"))]
    assert (state.id, state.seen, state.fired, state.is_spent) == (1, 1, 1, True)
    assert registry.list() == () and not registry.armed
    (event,) = events.recent(EventKind.FAULT)
    assert event.message == f"injected: {line} at gpu.sock of vendor.com/gpu"
    assert event.details == {
        "fault": 1,
        "fault_kind": "restart",
        "point": None,
        "plugin": "gpu.sock",
        "rpc": None,
    }
    assert registry.set("hang-register").id == 2


@pytest.mark.parametrize("start", [True, False])
def test_action_at_a_point_is_started_there(start: bool) -> None:
    actions = Actions()
    registry = FaultRegistry(ManualClock(), None, actions)
    registry.set("restart:at=list")
    registry.set("stop-reading:seconds=1")
    fired = registry.at(InjectionPoint.LIST, GPU, start=start)
    assert [str(each) for each in fired] == ["fault 1, restart", "fault 2, stop-reading"]
    assert [each.id for each in fired] == [1, 2]
    assert fired[0].prepared == "prepared restart:times=1,at=list"
    assert actions.done == ([("start", "restart:times=1,at=list", GPU)] if start else [])
    fired[1].start()  # not an action
    assert len(actions.done) == start
    assert first(fired, Effect.STOP_READING) is fired[1]
    assert first(fired, Effect.FAIL_CALL) is None
    assert registry.armed.keys() == {InjectionPoint.LIST}
    assert registry.at(InjectionPoint.CALL) == ()


def test_event_without_context_names_only_the_fault() -> None:
    events = EventStream(ManualClock())
    registry = FaultRegistry(ManualClock(), events)
    registry.set("lose-checkpoint")
    registry.at(InjectionPoint.START)
    (event,) = events.recent()
    assert (event.message, event.resource) == ("injected: lose-checkpoint", None)
    assert event.details["point"] == "start"


def test_registry_without_kubelet_cannot_execute_actions() -> None:
    registry = FaultRegistry()
    assert registry.seed == 0
    registry.set("restart:at=list")
    (fired,) = registry.at(InjectionPoint.LIST)
    assert fired.prepared is None
    with pytest.raises(RequestError, match=r"^fault restart-twice needs a mock kubelet$"):
        registry.set("restart-twice")


def test_registry_is_armed_by_point_in_order() -> None:
    registry = FaultRegistry()
    for line in ("hang-register", "stop-reading", "reject-register"):
        registry.set(line)
    armed = {point: [entry.id for entry in entries] for point, entries in registry.armed.items()}
    assert armed == {InjectionPoint.REGISTER: [1, 3], InjectionPoint.LIST: [2]}


def test_clear_names_the_faults_that_are_set() -> None:
    registry = FaultRegistry()
    for line in ("hang-register", "stop-reading"):
        registry.set(line)
    with pytest.raises(RequestError) as raised:
        registry.clear(9)
    assert str(raised.value) == ("unknown fault 9: use one of 1 (hang-register), 2 (stop-reading)")
    assert registry.clear() == 2
    with pytest.raises(RequestError, match=r"^unknown fault 'away': no faults are set$"):
        registry.clear("away")


@pytest.mark.parametrize(
    ("fault", "options"),
    [
        ("hang-register", {"times": 2}),
        ("hang-register:times=2", {}),
        ({"kind": "hang-register", "times": 2}, {}),
        (Fault.of("hang-register", times=2), {}),
    ],
)
def test_fault_can_be_given_in_each_form(fault: Any, options: dict[str, Any]) -> None:
    assert as_fault(fault, options) == Fault.parse("hang-register:times=2")


def test_delay_of_a_cleared_fault_is_over_at_once() -> None:
    clock = ManualClock()
    registry = FaultRegistry(clock)
    registry.set("stop-reading:seconds=3")
    (fired,) = registry.at(InjectionPoint.LIST)
    hold = fired.hold()
    assert registry.list()[0].holding == 1
    registry.clear()
    assert hold.is_over and fired.hold().is_over
    registry.set("stop-reading:seconds=0")
    (fired,) = registry.at(InjectionPoint.LIST)
    hold = fired.hold()
    clock.advance(0)
    assert hold.is_over and registry.list()[0].holding == 0
