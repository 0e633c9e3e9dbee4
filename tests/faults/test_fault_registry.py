"""When a fault fires: counters, a seed, selectors; nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults import Fault, FaultError, FaultRegistry
from devicemanager.faults.injection_point import FaultContext, InjectionPoint
from devicemanager.faults.registry import named
from devicemanager.io.clock import ManualClock

GPU = FaultContext("vendor.com/gpu", "gpu.sock")
NIC = FaultContext("vendor.com/nic", "nic.sock")


def fired(registry: FaultRegistry, occasion: FaultContext = GPU, count: int = 10) -> list[int]:
    """At which of ``count`` occasions something fires."""
    return [n for n in range(count) if registry.at(InjectionPoint.REGISTER, occasion)]


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
def test_how_often(options: dict[str, Any], expected: list[int]) -> None:
    registry = FaultRegistry()
    registry.set("reject-register", **options)
    assert fired(registry) == expected


def test_nothing_is_armed_before_and_after() -> None:
    registry = FaultRegistry()
    assert not registry.armed
    registry.set("reject-register", times=1)
    assert registry.armed.keys() == {InjectionPoint.REGISTER}
    assert fired(registry) == [0]
    assert not registry.armed
    registry.set("reject-register")
    registry.clear()
    assert not registry.armed


def test_a_probability_by_seed() -> None:
    def outcomes(seed: int) -> list[int]:
        registry = FaultRegistry(seed=seed)
        registry.set("reject-register", probability=0.3)
        return fired(registry, count=200)

    assert 30 < len(outcomes(1)) < 90
    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)


def test_a_seed_of_its_own_counts_for_more_than_the_runs() -> None:
    found = set()
    for seed, earlier in itertools.product((1, 2), (0, 3)):
        registry = FaultRegistry(seed=seed)
        for _ in range(earlier):
            registry.set("delay-register", seconds=1)
        registry.set("reject-register", probability=0.5, seed=7)
        taken = (
            named(registry.at(InjectionPoint.REGISTER, GPU), "reject-register") for _ in range(50)
        )
        found.add(tuple(each is not None for each in taken))
    assert len(found) == 1


def test_which_plugin_comes_first_does_not_matter() -> None:
    """Decisions are by resource: threads of two plugins may take turns in any order."""

    def outcomes(order: list[FaultContext]) -> dict[FaultContext, list[bool]]:
        registry = FaultRegistry(seed=3)
        registry.set("reject-register", probability=0.4)
        found: dict[FaultContext, list[bool]] = {GPU: [], NIC: []}
        for occasion in order:
            found[occasion].append(bool(registry.at(InjectionPoint.REGISTER, occasion)))
        return found

    assert outcomes([GPU, NIC] * 30) == outcomes([NIC] * 30 + [GPU] * 30)


def test_several_at_once() -> None:
    registry = FaultRegistry()
    registry.set("delay-register", seconds=1)
    registry.set("reject-register", code="INTERNAL")
    found = registry.at(InjectionPoint.REGISTER, GPU)
    assert [each.kind.name for each in found] == ["delay-register", "reject-register"]
    reject = named(found, "reject-register", "drop-register")
    assert reject is not None
    assert (reject["code"], str(reject)) == ("INTERNAL", "fault 2, reject-register")


@pytest.mark.parametrize("phase", ["before", "after"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("rpc", ["Allocate", "PreStartContainer"])
def test_calls_by_name_and_side(rpc: str, when: str, phase: str) -> None:
    registry = FaultRegistry()
    registry.set("fail-call", rpc="Allocate", when=when)
    occasion = FaultContext("vendor.com/gpu", "gpu.sock", rpc, phase)
    assert bool(registry.at(InjectionPoint.CALL, occasion)) is (rpc == "Allocate" and when == phase)


def test_what_is_set_is_listed() -> None:
    registry = FaultRegistry()
    first = registry.set("reject-register:times=1")
    registry.set({"kind": "delay-call", "seconds": 2})
    registry.set(Fault.of("fail-checkpoint", error="EIO"))
    assert first.id == 1
    assert (first.seen, first.fired, first.is_spent) == (0, 0, False)
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


def test_what_is_cleared() -> None:
    registry = FaultRegistry()
    for _ in range(2):
        registry.set("reject-register")
    registry.set("delay-call", seconds=1)
    assert registry.clear(3) == 1
    assert registry.clear("reject-register") == 2
    assert registry.clear() == 0
    with pytest.raises(RequestError, match="no fault 3 is set: there is none"):
        registry.clear(3)
    registry.set("reject-register")
    with pytest.raises(RequestError, match=r"no fault 'away' is set: choose from 4 \(reject-reg"):
        registry.clear("away")


def test_options_belong_to_a_kind() -> None:
    registry = FaultRegistry()
    with pytest.raises(FaultError, match="options belong to a kind"):
        registry.set(Fault.of("reject-register"), times=2)
    with pytest.raises(FaultError, match="unknown fault 'reject-register:times=1'"):
        registry.set("reject-register:times=1", times=2)
    assert registry.list() == ()


def test_each_that_fires_is_an_event() -> None:
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


def test_an_action_needs_a_kubelet() -> None:
    registry = FaultRegistry()
    with pytest.raises(RequestError, match="no kubelet here for restart"):
        registry.set("restart")


# -- holding up ------------------------------------------------------------------------------


def holding(registry: FaultRegistry) -> int:
    return sum(state.holding for state in registry.list())


def test_what_is_held_up_goes_on_by_the_clock() -> None:
    clock = ManualClock()
    registry = FaultRegistry(clock)
    registry.set("delay-register", seconds=3)
    (delay,) = registry.at(InjectionPoint.REGISTER, GPU)
    hold, over = delay.hold(), []
    hold.then(lambda: over.append(clock.monotonic()))
    clock.advance(2)
    assert (over, holding(registry)) == ([], 1)
    clock.advance(2)
    assert (over, holding(registry)) == ([3], 0)
    hold.wait()
    hold.release()
    hold.then(lambda: over.append(0))
    assert over == [3, 0]


def test_what_is_held_up_goes_on_when_the_fault_is_cleared() -> None:
    registry = FaultRegistry(ManualClock())
    registry.set("hang-register")
    (hang,) = registry.at(InjectionPoint.REGISTER, GPU)
    hold, over = hang.hold(), []
    hold.then(lambda: over.append(1))
    registry.clear("hang-register")
    assert over == [1]
    hang.hold().wait()  # nobody is held up any more


def test_nobody_is_held_up_while_the_kubelet_stops() -> None:
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


def test_a_hold_that_is_called_off_calls_nobody() -> None:
    clock = ManualClock()
    registry = FaultRegistry(clock)
    registry.set("delay-register", seconds=3)
    (delay,) = registry.at(InjectionPoint.REGISTER, GPU)
    hold, over = delay.hold(), []
    hold.then(lambda: over.append(1))
    hold.cancel()
    clock.advance(5)
    assert over == []
    assert holding(registry) == 0
