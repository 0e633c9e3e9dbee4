"""Chaos: the same seed picks the same faults, and they do the same on the same occasions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults import KINDS, FaultRegistry, chaos
from devicemanager.faults.injection_point import FaultContext, InjectionPoint
from devicemanager.faults.kinds import METHODS, RPCS
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from tests.faults.conftest import R, register
from tests.hostile import hostile, residue
from tests.hostile.conftest import pod

T = TypeVar("T")
Elsewhere = Callable[..., Future[Any]]
Story = list[tuple[object, ...]]
UNTIL_CLEARED = {"hang-register", "stale-pod-resources"}


def test_a_seed_picks_the_same_again() -> None:
    assert chaos(7) == chaos(7)
    assert len({str(chaos(seed)) for seed in range(50)}) == 50
    assert all(6 <= len(chaos(seed)) <= 12 for seed in range(50))


def test_every_kind_is_picked_but_those_without_an_end() -> None:
    picked = {fault.kind.name for seed in range(100) for fault in chaos(seed)}
    assert picked == KINDS.keys() - UNTIL_CLEARED


def test_a_plugin_can_come_through() -> None:
    for seed in range(100):
        for fault in chaos(seed):
            assert fault.probability <= 0.3
            assert not fault.kind.is_action or fault.times is not None
            assert fault.kind.name != "stop-reading" or fault.options["seconds"]


def story(events: EventStream) -> Story:
    return [
        (event.message, event.resource, *(event.details[key] for key in ("point", "plugin", "rpc")))
        for event in events.recent(EventKind.FAULT)
    ]


class _Noted:
    """Actions that nobody executes."""

    def prepare(self, fault: object) -> None:
        pass

    def execute(self, fault: object, occasion: object) -> None:
        pass

    start = execute


def told(seed: int) -> Story:
    """The story of a seed when things happen in a fixed order."""
    events = EventStream(ManualClock())
    registry = FaultRegistry(ManualClock(), events, _Noted())
    for fault in chaos(seed):
        registry.set(fault)
    for number in range(40):
        resource = f"vendor.com/gpu{number % 2}"
        for point in InjectionPoint:
            names = {InjectionPoint.CALL: RPCS, InjectionPoint.POD_RESOURCES: METHODS}.get(
                point, (None,)
            )
            for rpc in names:
                for phase in ("before", "after") if point is InjectionPoint.CALL else ("before",):
                    registry.at(point, FaultContext(resource, "gpu.sock", rpc, phase))
    return story(events)


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_tells_the_same_story_again(seed: int) -> None:
    first = told(seed)
    assert len(first) > 5
    assert told(seed) == first
    assert told(seed + 100) != first


# -- with a kubelet and a plugin ---------------------------------------------------------------


class Play:
    """One life of a kubelet under chaos: its plugin registers, pods come, in a fixed order.

    Whoever is held up waits until nothing else happens, then time passes.
    """

    def __init__(self, kubelet: MockKubelet, elsewhere: Elsewhere) -> None:
        self.kubelet = kubelet
        self.elsewhere = elsewhere
        assert isinstance(kubelet.clock, ManualClock)
        self.clock = kubelet.clock

    def run(self, rounds: int) -> Story:
        for number in range(rounds):
            path = self.kubelet.plugin_dir / "p.sock"
            path.unlink(missing_ok=True)
            with hostile.RawPlugin(path):
                self.register()
                self.admit(str(number))
            self.until(lambda: not self.kubelet.allocatable().get(R))
            self.settle()
        return story(self.kubelet.events)

    def register(self) -> None:
        latest = self.kubelet.events.latest
        if self.to_its_end(register, self.kubelet, "p.sock").code == "OK":
            ends = {EventKind.DEVICES_UPDATED, EventKind.STREAM_ENDED, EventKind.STOPPED}
            events = self.kubelet.events
            self.until(
                lambda: any(
                    event.kind in ends and event.number > latest for event in events.recent()
                )
            )
        self.settle()

    def admit(self, uid: str) -> None:
        try:
            self.to_its_end(self.kubelet.admit, pod(uid, uid=uid))
            self.settle()
            self.to_its_end(self.kubelet.terminate, uid)
        except RequestError:
            pass  # the kubelet is away
        self.settle()

    def to_its_end(self, call: Callable[..., T], *arguments: object) -> T:
        done = self.elsewhere(call, *arguments)
        self.until(done.done)
        result: T = done.result()
        return result

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait, and let time pass for whoever is held up."""

        def holds() -> bool:
            if condition():
                return True
            if any(state.holding for state in self.kubelet.faults.list()):
                self.clock.advance(10)
            return False

        assert residue.eventually(holds)

    def settle(self) -> None:
        """Until every action has been executed and the kubelet is back."""
        self.until(lambda: all(thread.name != "fault" for thread in threading.enumerate()))
        self.clock.advance(10)
        self.until(self.kubelet.plugin_socket.exists)


def test_a_kubelet_and_a_plugin_live_through_the_same_again(
    make_mock_kubelet: Callable[..., MockKubelet], elsewhere: Elsewhere
) -> None:
    stories = []
    for _ in range(2):
        kubelet = make_mock_kubelet(clock=ManualClock())
        for fault in chaos(23):
            # Who writes the checkpoint at the same time shares a write, so threads decide how
            # many there are.
            if fault.point is not InjectionPoint.CHECKPOINT:
                kubelet.faults.set(fault)
        stories.append(Play(kubelet, elsewhere).run(10))
        kubelet.faults.clear()
        register_and_admit(kubelet)
        kubelet.stop()
    assert stories[0] == stories[1]
    kinds = {str(message).split()[1].partition(":")[0] for message, *_ in stories[0]}
    assert len(kinds) >= 5


def register_and_admit(kubelet: MockKubelet) -> None:
    """Once the faults are gone, all is well."""
    path = kubelet.plugin_dir / "p.sock"
    path.unlink(missing_ok=True)
    with hostile.RawPlugin(path):
        assert register(kubelet, "p.sock").code == "OK"
        kubelet.wait_for_resource(R, 2)
        assert kubelet.admit(pod("well")).admitted
