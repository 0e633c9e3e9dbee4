"""When a fault fires: counters, a seed and selectors decide, nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults import Fault, FaultError, FaultRegistry
from devicemanager.faults.injection_point import Effect, FaultContext, InjectionPoint
from devicemanager.faults.registry import first
from devicemanager.io.clock import ManualClock

GPU = FaultContext("vendor.com/gpu", "gpu.sock")
NIC = FaultContext("vendor.com/nic", "nic.sock")


def fired(registry: FaultRegistry, context: FaultContext = GPU, count: int = 10) -> list[int]:
    """Reach the injection point ``count`` times; return the numbers at which a fault fired."""
    return [n for n in range(count) if registry.at(InjectionPoint.REGISTER, context)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [*range(10)]),
        ({"times": 2}, [0, 1]),
        ({"after": 8}, [8, 9]),
        ({"after": 3, "times": 2}, [3, 4]),
        ({"resource": "vendor.com/nic"}, []),
        ({"resource": "vendor.com/gpu"}, [*range(10)]),
        ({"plugin": "gpu.sock", "times": 1}, [0]),
        ({"plugin": "nic.sock"}, []),
    ],
)
def test_counters_and_selectors_decide_when_a_fault_fires(
    options: dict[str, Any], expected: list[int]
) -> None:
    registry = FaultRegistry()
    registry.set("reject-register", **options)
    assert fired(registry) == expected


def test_registry_is_armed_only_while_a_fault_can_fire() -> None:
    registry = FaultRegistry()
    assert not registry.armed
    registry.set("reject-register", times=1)
    assert registry.armed.keys() == {InjectionPoint.REGISTER}
    assert fired(registry) == [0]
    assert not registry.armed
    registry.set("reject-register")
    registry.clear()
    assert not registry.armed


def test_probability_depends_on_the_seed_only() -> None:
    def outcomes(seed: int) -> list[int]:
        registry = FaultRegistry(seed=seed)
        registry.set("reject-register", probability=0.3)
        return fired(registry, count=200)

    assert 30 < len(outcomes(1)) < 90
    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)


def test_seed_of_a_fault_overrides_seed_of_the_run() -> None:
    found = set()
    for seed, earlier in itertools.product((1, 2), (0, 3)):
        registry = FaultRegistry(seed=seed)
        for _ in range(earlier):
            registry.set("delay-register", seconds=1)
        registry.set("reject-register", probability=0.5, seed=7)
        outcomes = (
            first(registry.at(InjectionPoint.REGISTER, GPU), Effect.REJECT_REGISTER)
            for _ in range(50)
        )
        found.add(tuple(each is not None for each in outcomes))
    assert len(found) == 1


def test_order_of_plugins_does_not_change_decisions() -> None:
    """Matches are counted by resource: threads of two plugins can alternate in any order."""

    def outcomes(order: list[FaultContext]) -> dict[FaultContext, list[bool]]:
        registry = FaultRegistry(seed=3)
        registry.set("reject-register", probability=0.4)
        found: dict[FaultContext, list[bool]] = {GPU: [], NIC: []}
        for context in order:
            found[context].append(bool(registry.at(InjectionPoint.REGISTER, context)))
        return found

    assert outcomes([GPU, NIC] * 30) == outcomes([NIC] * 30 + [GPU] * 30)


def test_several_faults_fire_in_the_order_in_which_they_were_set() -> None:
    registry = FaultRegistry()
    registry.set("delay-register", seconds=1)
    registry.set("reject-register", code="INTERNAL")
    found = registry.at(InjectionPoint.REGISTER, GPU)
    assert [each.kind.name for each in found] == ["delay-register", "reject-register"]
    reject = first(found, Effect.REJECT_REGISTER, Effect.CUT_REGISTER)
    assert reject is not None
    assert (reject["code"], str(reject)) == ("INTERNAL", "fault 2, reject-register")


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("rpc", ["Allocate", "PreStartContainer"])
def test_fault_of_a_call_matches_name_and_phase(rpc: str, when: str, phase: str) -> None:
    registry = FaultRegistry()
    registry.set("fail-call", rpc="Allocate", when=when)
    context = FaultContext("vendor.com/gpu", "gpu.sock", rpc, phase)
    assert bool(registry.at(InjectionPoint.CALL, context)) is (rpc == "Allocate" and when == phase)


def test_list_returns_faults_with_counters() -> None:
    registry = FaultRegistry()
    rejects = registry.set("reject-register:times=1")
    registry.set({"kind": "delay-call", "seconds": 2})
    registry.set(Fault.of("fail-checkpoint", error="EIO"))
    assert rejects.id == 1
    assert (rejects.seen, rejects.fired, rejects.is_spent) == (0, 0, False)
    fired(registry, count=3)
    states = registry.list()
    assert [(state.id, state.fault.kind.name) for state in states] == [
        (1, "reject-register"),
        (2, "delay-call"),
        (3, "fail-checkpoint"),
    ]
    assert states[0].as_data() == {
        "id": 1,
        "spec": "reject-register:times=1",
        "seen": 1,
        "fired": 1,
        "holding": 0,
        "spent": True,
        "kind": "reject-register",
        "code": "UNKNOWN",
        "text": "injected fault",
        "times": 1,
    }


def test_clear_by_id_by_kind_and_all() -> None:
    registry = FaultRegistry()
    for _ in range(2):
        registry.set("reject-register")
    registry.set("delay-call", seconds=1)
    assert registry.clear(3) == 1
    assert registry.clear("reject-register") == 2
    assert registry.clear() == 0
    with pytest.raises(RequestError, match=r"^unknown fault 3: no faults are set"):
        registry.clear(3)
    registry.set("reject-register")
    with pytest.raises(RequestError, match=r"^unknown fault 'away': use one of 4 \(reject-reg"):
        registry.clear("away")


def test_set_rejects_options_beside_a_complete_fault() -> None:
    registry = FaultRegistry()
    with pytest.raises(FaultError, match=r"^cannot add options to the fault"):
        registry.set(Fault.of("reject-register"), times=2)
    with pytest.raises(FaultError, match=r"^unknown fault 'reject-register:times=1'"):
        registry.set("reject-register:times=1", times=2)
    assert registry.list() == ()


def test_fault_that_fires_is_published_as_event() -> None:
    events = EventStream(ManualClock(5))
    registry = FaultRegistry(ManualClock(5), events)
    registry.set("reject-register", times=1)
    fired(registry)
    (event,) = events.recent(EventKind.FAULT)
    assert event.message == "injected: reject-register:times=1 at gpu.sock of vendor.com/gpu"
    assert event.resource == "vendor.com/gpu"
    assert event.details == {
        "fault": 1,
        "fault_kind": "reject-register",
        "point": "register",
        "plugin": "gpu.sock",
        "rpc": None,
    }
    assert not event.is_warning


def test_action_needs_a_kubelet() -> None:
    registry = FaultRegistry()
    with pytest.raises(RequestError, match=r"^fault restart needs a mock kubelet$"):
        registry.set("restart")


# -- delays ------------------------------------------------------------------------------


def holding(registry: FaultRegistry) -> int:
    return sum(state.holding for state in registry.list())


def test_delay_ends_by_the_clock() -> None:
    clock = ManualClock()
    registry = FaultRegistry(clock)
    registry.set("delay-register", seconds=3)
    (delay,) = registry.at(InjectionPoint.REGISTER, GPU)
    hold, over = delay.hold(), []
    hold.on_release(lambda: over.append(clock.monotonic()))
    clock.advance(2)
    assert (over, holding(registry)) == ([], 1)
    clock.advance(2)
    assert (over, holding(registry)) == ([3], 0)
    hold.wait()
    hold.release()
    hold.on_release(lambda: over.append(0))
    assert over == [3, 0]


def test_clearing_a_fault_ends_its_delays() -> None:
    registry = FaultRegistry(ManualClock())
    registry.set("hang-register")
    (hang,) = registry.at(InjectionPoint.REGISTER, GPU)
    hold, over = hang.hold(), []
    hold.on_release(lambda: over.append(1))
    registry.clear("hang-register")
    assert over == [1]
    hang.hold().wait()  # returns at once: the fault is cleared


def test_stopping_releases_calls_delayed_by_faults() -> None:
    registry = FaultRegistry(ManualClock())
    registry.set("hang-register")
    (hang,) = registry.at(InjectionPoint.REGISTER, GPU)
    hold = hang.hold()
    registry.stopping()
    hold.wait()
    hang.hold().wait()
    registry.starting()
    hang.hold()
    assert holding(registry) == 1


def test_cancelled_delay_calls_no_callback() -> None:
    clock = ManualClock()
    registry = FaultRegistry(clock)
    registry.set("delay-register", seconds=3)
    (delay,) = registry.at(InjectionPoint.REGISTER, GPU)
    hold, over = delay.hold(), []
    hold.on_release(lambda: over.append(1))
    hold.cancel()
    clock.advance(5)
    assert over == []
    assert holding(registry) == 0
