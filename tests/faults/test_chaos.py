"""Chaos: the same seed chooses the same faults, and they decide the same at the same matches."""

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
InThread = Callable[..., Future[Any]]
Story = list[tuple[object, ...]]
UNTIL_CLEARED = {"hang-register", "stale-pod-resources"}
OF_FEW_VERSIONS = {"fail-pods-api", "delay-pods-api", "end-pod-watches"}
OF_DRA = {"lose-dra-state", "truncate-dra-state"}


def test_seed_chooses_the_same_faults() -> None:
    assert chaos(7) == chaos(7)
    assert len({str(chaos(seed)) for seed in range(50)}) == 50
    assert all(6 <= len(chaos(seed)) <= 12 for seed in range(50))


def test_every_kind_that_ends_is_chosen() -> None:
    chosen = {fault.kind.name for seed in range(100) for fault in chaos(seed)}
    assert chosen == KINDS.keys() - UNTIL_CLEARED - OF_FEW_VERSIONS - OF_DRA


def test_plugin_that_retries_can_succeed() -> None:
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


class _NoActions:
    """Actions that do nothing."""

    def prepare(self, fault: object) -> None:
        pass

    def execute(self, fault: object, context: object) -> None:
        pass

    start = execute


def replay(seed: int) -> Story:
    """Return what fires with a seed when injection points are reached in a fixed order."""
    events = EventStream(ManualClock())
    registry = FaultRegistry(ManualClock(), events, _NoActions())
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
def test_seed_fires_the_same_faults(seed: int) -> None:
    first = replay(seed)
    assert len(first) > 5
    assert replay(seed) == first
    assert replay(seed + 100) != first


# -- with a kubelet and a plugin ---------------------------------------------------------------


class Play:
    """A kubelet under chaos: its plugin registers and pods are admitted in a fixed order.

    Time passes only when nothing but delayed calls is left.
    """

    def __init__(self, kubelet: MockKubelet, in_thread: InThread) -> None:
        self.kubelet = kubelet
        self.in_thread = in_thread
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
        if self.complete(register, self.kubelet, "p.sock").code == "OK":
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
            self.complete(self.kubelet.admit, pod(uid, uid=uid))
            self.settle()
            self.complete(self.kubelet.terminate, uid)
        except RequestError:
            pass  # the kubelet is stopped
        self.settle()

    def complete(self, call: Callable[..., T], *arguments: object) -> T:
        done = self.in_thread(call, *arguments)
        self.until(done.done)
        result: T = done.result()
        return result

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait, and advance the clock while calls are delayed."""

        def holds() -> bool:
            if condition():
                return True
            if any(state.holding for state in self.kubelet.faults.list()):
                self.clock.advance(10)
            return False

        assert residue.eventually(holds)

    def settle(self) -> None:
        """Wait until every action has been executed and the kubelet is running."""
        self.until(lambda: all(thread.name != "fault" for thread in threading.enumerate()))
        self.clock.advance(10)
        self.until(self.kubelet.plugin_socket.exists)


def test_kubelet_and_plugin_replay_the_same_faults(
    make_mock_kubelet: Callable[..., MockKubelet], in_thread: InThread
) -> None:
    stories = []
    for _ in range(2):
        kubelet = make_mock_kubelet(clock=ManualClock())
        for fault in chaos(55):
            # Concurrent admissions share a write, so threads decide how many writes there are.
            if fault.point is not InjectionPoint.CHECKPOINT:
                kubelet.faults.set(fault)
        stories.append(Play(kubelet, in_thread).run(10))
        kubelet.faults.clear()
        register_and_admit(kubelet)
        kubelet.stop()
    assert stories[0] == stories[1]
    kinds = {str(message).split()[1].partition(":")[0] for message, *_ in stories[0]}
    assert len(kinds) >= 5


def register_and_admit(kubelet: MockKubelet) -> None:
    """Check that everything works without faults."""
    path = kubelet.plugin_dir / "p.sock"
    path.unlink(missing_ok=True)
    with hostile.RawPlugin(path):
        assert register(kubelet, "p.sock").code == "OK"
        kubelet.wait_for_resource(R, 2)
        assert kubelet.admit(pod("well")).admitted
