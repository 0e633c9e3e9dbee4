"""Allocations that fail, hang or are interrupted, and what happens at the same time.

| fault | test |
|---|---|
| Allocate with no responses, garbage, an error, too large | test_invalid_response_rejects_the_pod |
| with too many responses | test_first_of_too_many_responses_is_used |
| after a long time, without a deadline | test_slow_response_delays_only_its_pod |
| never, with a deadline | test_missing_response_rejects_the_pod_after_the_deadline |
| never, while the kubelet stops or restarts | test_stop_cancels_an_allocation_in_progress |
| a plugin killed during Allocate | test_plugin_killed_during_allocate_rejects_the_pod |
| a plugin that disconnects or is replaced during Allocate | test_plugin_disconnected_during_allocate_rejects_the_pod |
| a pod terminated during its admission | test_pod_terminated_during_its_admission_is_rejected |
| List during Allocate (Q18) | test_lists_are_consistent_during_allocations |
"""  # noqa: E501

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import attrs
import grpc
import pytest

from devicemanager.core.errors import RequestError
from devicemanager.core.ids import PodUid
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.pods.admission import Admission
from podresources.client import PodResourcesClient
from protos import deviceplugin_v1beta1 as dp
from tests.hostile import hostile
from tests.hostile.conftest import PATIENT, Start, pod
from tests.paths import ROOT

R = hostile.RESOURCE


@contextmanager
def plugin(
    kubelet: MockKubelet,
    allocate: hostile.Unary = hostile.ONE_RESPONSE,
    count: int = 2,
    name: str = "p.sock",
    resource: str = R,
) -> Iterator[hostile.RawPlugin]:
    listed = hostile.lists(hostile.devices(*(f"d{i}" for i in range(count))))
    path = kubelet.plugin_dir / name
    with hostile.RawPlugin(path, lists=listed, allocate=allocate) as raw:
        assert hostile.register(kubelet.plugin_socket, name, resource) is None
        kubelet.wait_for_resource(resource, count)
        yield raw


@attrs.define(eq=False)
class Gate:
    """An Allocate handler that waits until it is opened or its caller cancels."""

    called: threading.Event = attrs.field(factory=threading.Event)
    opened: threading.Event = attrs.field(factory=threading.Event)

    def allocate(self, request: bytes, context: hostile.Context) -> bytes:
        self.called.set()
        hostile.until_cancelled(context, or_when=self.opened)
        return hostile.ONE_RESPONSE(request, context)


def failing(request: bytes, context: hostile.Context) -> bytes:
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no more\ndevices")


def crashing(request: bytes, context: hostile.Context) -> bytes:
    raise RuntimeError("a bug in the plugin")


HUGE = dp.ContainerAllocateResponse(envs={"x": "y" * (5 << 20)})


@pytest.mark.parametrize(
    ("allocate", "expected"),
    [
        (
            hostile.constant(b""),
            "no containers return in allocation response , which is unexpected",
        ),
        (hostile.constant(b"\xff\xff garbage"), "rpc error: code = Internal desc = "),
        (failing, "rpc error: code = ResourceExhausted desc = no more\ndevices"),
        (crashing, "rpc error: code = Unknown desc = "),
        (hostile.answering(HUGE), "rpc error: code = ResourceExhausted desc = "),
    ],
)
def test_invalid_response_rejects_the_pod(
    kubelet: MockKubelet, allocate: hostile.Unary, expected: str
) -> None:
    """The pod is rejected with the kubelet's text, and no device stays in use (Q4)."""
    with plugin(kubelet, allocate) as raw:
        for number in range(3):
            rejected = kubelet.admit(pod(f"p{number}", 2, uid=f"p{number}"))
            assert not rejected.admitted
            assert rejected.reason == "UnexpectedAdmissionError"
            assert rejected.message.startswith(f"Allocate failed due to {expected}")
            assert kubelet.devices(f"p{number}") == {}
        event = kubelet.events.recent(EventKind.REJECTED)[-1]
        assert "\n" not in event.message
        raw.allocate = hostile.ONE_RESPONSE
        assert kubelet.admit(pod("a", 2)).admitted
        kubelet.manager.self_check()


def test_first_of_too_many_responses_is_used(kubelet: MockKubelet) -> None:
    """The first one is used, as by the kubelet."""
    responses = [dp.ContainerAllocateResponse(envs={"N": str(n)}) for n in range(3)]
    with plugin(kubelet, hostile.answering(*responses)):
        admission = kubelet.admit(pod("a", 2))
        assert admission.containers["main"].run_options.envs == {"N": "0"}


def test_slow_response_delays_only_its_pod(start: Start) -> None:
    """Other pods and clients do not wait, and the pod gets its devices in the end."""
    kubelet = start()
    gate = Gate()
    with (
        plugin(kubelet, gate.allocate),
        plugin(kubelet, name="q.sock", resource="example.com/other"),
        PodResourcesClient(kubelet.pod_resources_socket) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        slow = pool.submit(kubelet.admit, pod("slow", 2, uid="slow"))
        assert gate.called.wait(10)
        assert kubelet.admit(pod("quick", 1, "example.com/other")).admitted
        assert kubelet.allocatable() == {R: 2, "example.com/other": 2}
        # The kubelet lists a pod before it is admitted, without devices.
        listed = {each.name: each.containers[0].devices for each in client.list()}
        assert listed["slow"] == () and len(listed["quick"]) == 1
        assert "Available: 0" in kubelet.admit(pod("late", 1)).message
        with pytest.raises(RequestError, match="is already admitted"):
            kubelet.admit(pod("slow", 2, uid="slow"))
        assert not slow.done()
        gate.opened.set()
        assert slow.result(10).containers["main"].devices == {R: ["d0", "d1"]}


def test_missing_response_rejects_the_pod_after_the_deadline(start: Start) -> None:
    kubelet = start(attrs.evolve(PATIENT, allocate_timeout=1.0))
    with plugin(kubelet, hostile.hang) as raw:
        rejected = kubelet.admit(pod("a", 2))
        assert "rpc error: code = DeadlineExceeded desc = " in rejected.message
        assert kubelet.devices(rejected.uid) == {}
        raw.allocate = hostile.ONE_RESPONSE
        # On a busy machine even this response can miss the deadline.
        kubelet.wait_for(lambda: kubelet.admit(pod("b", 2)).admitted, 30)


# -- interruptions -----------------------------------------------------------------------


def in_background(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join(15)
    assert not thread.is_alive(), f"{action} is blocked by the plugin"


@pytest.mark.parametrize("how", ["stop", "restart", "reboot"])
def test_stop_cancels_an_allocation_in_progress(start: Start, how: str) -> None:
    """The kubelet does not wait, and the pod is rejected without a trace."""
    kubelet = start()
    gate = Gate()
    with plugin(kubelet, gate.allocate) as raw, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(kubelet.admit, pod("a", 2, uid="a"))
        assert gate.called.wait(10)
        in_background(getattr(kubelet, how))
        assert not answer.result(10).admitted
        assert "rpc error: code = Canceled" in answer.result().message
        raw.stop()
        if how == "stop":
            kubelet.start()
        with plugin(kubelet):
            assert kubelet.admit(pod("a", 2, uid="a")).admitted
            kubelet.manager.self_check()
            kubelet.stop()


IN_A_PROCESS = """
import sys
from pathlib import Path
from tests.hostile import hostile
directory = Path(sys.argv[1])

def allocate(request, context):
    print("called", flush=True)
    hostile.until_cancelled(context)
    return b""

with hostile.RawPlugin(directory / "p.sock", allocate=allocate):
    assert hostile.register(directory / "kubelet.sock", "p.sock") is None
    sys.stdin.read()
"""


def test_plugin_killed_during_allocate_rejects_the_pod(kubelet: MockKubelet) -> None:
    """The pod is rejected at once, an event is published, and the plugin can come back."""
    with (
        subprocess.Popen(
            [sys.executable, "-c", IN_A_PROCESS, kubelet.plugin_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        ) as hung,
        ThreadPoolExecutor(1) as pool,
    ):
        try:
            kubelet.wait_for_resource(R, 2, timeout=40)
            answer: Future[Admission] = pool.submit(kubelet.admit, pod("a", 2, uid="a"))
            assert hung.stdout is not None and hung.stdout.readline() == "called\n"
        finally:
            hung.kill()
        message = answer.result(30).message
        assert "rpc error: code = Unavailable desc = " in message or "has been stopped" in message
        kubelet.wait_for_event(EventKind.STREAM_ENDED, after=0)
        kubelet.wait_for(lambda: kubelet.allocatable() == {R: 0})
    (kubelet.plugin_dir / "p.sock").unlink()
    with plugin(kubelet):
        assert kubelet.admit(pod("a", 2, uid="a")).admitted


@pytest.mark.parametrize("successor", [False, True])
def test_plugin_disconnected_during_allocate_rejects_the_pod(start: Start, successor: bool) -> None:
    """Its devices are gone, or the call went to the wrong plugin: the pod is rejected."""
    kubelet = start()
    gate = Gate()
    with plugin(kubelet, gate.allocate) as raw, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(kubelet.admit, pod("a", 2, uid="a"))
        assert gate.called.wait(10)
        if successor:
            assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        else:
            raw.stop()
        assert not answer.result(10).admitted
        assert kubelet.devices("a") == {}
        raw.allocate = hostile.ONE_RESPONSE
        kubelet.wait_for(lambda: kubelet.allocatable() == {R: 2 if successor else 0})
        assert kubelet.admit(pod("b", 2)).admitted is successor


@pytest.mark.parametrize("another", [False, True])
def test_pod_terminated_during_its_admission_is_rejected(start: Start, another: bool) -> None:
    """Its devices are free afterwards."""
    kubelet = start()
    gate = Gate()
    with plugin(kubelet, gate.allocate), ThreadPoolExecutor(1) as pool:
        answer = pool.submit(kubelet.admit, pod("a", 2, uid="a"))
        assert gate.called.wait(10)
        kubelet.terminate("a")
        gate.opened.set()
        assert not answer.result(10).admitted
        assert kubelet.manager.holdings(PodUid("a")) == {}
        if another:
            assert kubelet.admit(pod("a", 2, uid="a")).admitted
        else:
            assert kubelet.admit(pod("b", 2)).admitted
        kubelet.manager.self_check()


# -- concurrency ---------------------------------------------------------------------------


def test_lists_are_consistent_during_allocations(start: Start) -> None:
    """Four threads admit and terminate pods, three list, one re-registers its plugin.

    Every response is consistent, and no device is listed twice (Q18).
    """
    kubelet = start()
    over = threading.Event()

    def pods(number: int) -> int:
        for serial in range(30):
            uid = f"{number}-{serial}"
            if kubelet.admit(pod(f"p{uid}", 3, uid=uid)).admitted:
                assert len(kubelet.devices(uid)["main"][R]) == 3
            kubelet.terminate(uid)
        return 30

    def listing() -> int:
        answers = 0
        with PodResourcesClient(kubelet.pod_resources_socket) as client:
            while not over.is_set():
                listed = Counter(
                    id_
                    for each in client.list()
                    for container in each.containers
                    for devices in container.devices
                    for id_ in devices.device_ids
                )
                assert not listed or max(listed.values()) == 1
                allocatable = client.get_allocatable()
                assert sum(len(each.device_ids) for each in allocatable.devices) in (0, 10)
                answers += 1
        return answers

    def registering() -> None:
        while not over.is_set():
            assert hostile.register(kubelet.plugin_socket, "p.sock") is None

    with plugin(kubelet, count=10), ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(listing) for _ in range(3)]
        registrations = pool.submit(registering)
        try:
            assert sum(pool.map(pods, range(4))) == 120
        finally:
            over.set()
        assert all(each.result(10) for each in readers)
        registrations.result(10)
        kubelet.manager.self_check()
        assert kubelet.manager.pods() == frozenset()
