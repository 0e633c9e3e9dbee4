"""Faults of the checkpoint, as pods observe them, and of PodResources, as clients do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import grpc
import pytest

import checkpoint
from devicemanager.events.stream import EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from podresources import sockets
from protos import podresources_v1 as v1
from protos import podresources_v1_grpc as v1_grpc
from tests.faults.conftest import R, delays, register
from tests.hostile import hostile, residue
from tests.hostile.conftest import pod

InThread = Callable[..., Future[Any]]


@pytest.fixture
def devices(kubelet: MockKubelet, plugin: hostile.RawPlugin) -> None:
    """Two devices of ``R``, already written to the checkpoint."""
    register(kubelet, "p.sock")
    kubelet.wait_for_resource(R, 2)
    assert residue.eventually(lambda: R in registered(kubelet) and len(registered(kubelet)[R]) == 2)


def registered(kubelet: MockKubelet) -> Mapping[str, Sequence[str]]:
    """Return the registered devices of the checkpoint.

    A list is published before it is written: the file may not exist yet.
    """
    try:
        return checkpoint.load(kubelet.checkpoint_path).registered_devices or {}
    except checkpoint.CheckpointNotFound:
        return {}


# -- the checkpoint --------------------------------------------------------------------------


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize(
    ("error", "text"), [("ENOSPC", "the disk is full"), ("EIO", "the disk reports an error")]
)
def test_fail_checkpoint_rejects_the_pod(
    kubelet: MockKubelet, plugin: hostile.RawPlugin, error: str, text: str
) -> None:
    """The plugin has allocated, but the pod is rejected and its devices are free."""
    before = checkpoint.load(kubelet.checkpoint_path)
    kubelet.faults.set("fail-checkpoint", error=error, times=2)
    latest = kubelet.events.latest
    answer = kubelet.admit(pod("full", 2))
    assert text in answer.message
    assert text in kubelet.wait_for_event(EventKind.CHECKPOINT_FAILED, after=latest).message
    assert checkpoint.load(kubelet.checkpoint_path) == before
    assert [path.name for path in kubelet.plugin_dir.glob(".*")] == []
    assert kubelet.admit(pod("after", 2)).admitted
    assert len(plugin.allocations) == 2


@pytest.mark.usefixtures("devices")
def test_delay_checkpoint_delays_the_admission(
    kubelet: MockKubelet, clock: ManualClock, in_thread: InThread
) -> None:
    kubelet.faults.set("delay-checkpoint", seconds=20, times=1)
    started, latest = clock.time(), kubelet.events.latest
    answer = in_thread(kubelet.admit, pod("slow"))
    assert delays(kubelet)
    clock.advance(19)
    assert not answer.done()
    clock.advance(1)
    assert answer.result(20).admitted
    event = kubelet.wait_for_event(EventKind.ALLOCATED, after=latest)
    assert event.time == started + 20


@pytest.mark.usefixtures("devices")
def test_restart_does_not_wait_for_a_delayed_write(
    kubelet: MockKubelet, in_thread: InThread
) -> None:
    kubelet.faults.set("delay-checkpoint", seconds=20, times=1)
    answer = in_thread(kubelet.admit, pod("slow"))
    assert delays(kubelet)
    kubelet.restart()
    assert answer.result(20) is not None


# -- PodResources ----------------------------------------------------------------------------


class Client:
    """Calls of a node agent; each returns status code and text."""

    def __init__(self, kubelet: MockKubelet) -> None:
        target = sockets.target(kubelet.pod_resources_socket)
        self.channel = grpc.insecure_channel(target, sockets.CHANNEL_OPTIONS)
        self._stub = v1_grpc.PodResourcesListerStub(self.channel)

    def list(self) -> tuple[str, str, list[str]]:
        """Return code, text, and the names of the pods."""
        try:
            answer = self._stub.List(v1.ListPodResourcesRequest(), timeout=30)
        except grpc.RpcError as error:
            return error.code().name, error.details(), []
        return "OK", "", [each.name for each in answer.pod_resources]

    def allocatable(self) -> int:
        answer = self._stub.GetAllocatableResources(v1.AllocatableResourcesRequest(), timeout=30)
        return sum(len(each.device_ids) for each in answer.devices)


def pods_listed(kubelet: MockKubelet) -> list[str]:
    """Return the pods that a new client lists."""
    client = Client(kubelet)
    with client.channel:
        code, _, names = client.list()
    assert code == "OK"
    return names


@pytest.fixture
def client(kubelet: MockKubelet, devices: None) -> Iterator[Client]:
    """A client of a kubelet with one pod, ``one``."""
    kubelet.admit(pod("one"))
    client = Client(kubelet)
    assert client.list() == ("OK", "", ["one"])
    yield client
    client.channel.close()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("fail-pod-resources:code=INTERNAL,text=lost", ("INTERNAL", "lost", [])),
        ("fail-pod-resources:method=List", ("UNAVAILABLE", "injected fault", [])),
        ("fail-pod-resources:method=Get", ("OK", "", ["one"])),
        ("empty-pod-resources", ("OK", "", [])),
        ("limit-pod-resources", ("RESOURCE_EXHAUSTED", "rejected by rate limit", [])),
    ],
)
def test_fault_changes_one_response(
    kubelet: MockKubelet, client: Client, spec: str, expected: tuple[str, str, list[str]]
) -> None:
    kubelet.faults.set(f"{spec}{',' if ':' in spec else ':'}times=1")
    assert client.list() == expected
    assert client.list() == ("OK", "", ["one"])


def test_empty_pod_resources_of_one_method(kubelet: MockKubelet, client: Client) -> None:
    kubelet.faults.set("empty-pod-resources", method="GetAllocatableResources")
    assert client.allocatable() == 0
    assert client.list() == ("OK", "", ["one"])


def test_delay_pod_resources_delays_the_response(
    kubelet: MockKubelet, client: Client, clock: ManualClock, in_thread: InThread
) -> None:
    kubelet.faults.set("delay-pod-resources", seconds=5)
    answer = in_thread(client.list)
    assert delays(kubelet)
    assert not answer.done()
    clock.advance(5)
    assert answer.result(20) == ("OK", "", ["one"])


def test_stale_pod_resources_returns_the_state_of_setting(
    kubelet: MockKubelet, client: Client
) -> None:
    """A restart does not change that."""
    state = kubelet.faults.set("stale-pod-resources", method="List")
    kubelet.admit(pod("two"))
    assert client.list() == ("OK", "", ["one"])
    assert client.allocatable() == 2
    kubelet.restart()
    assert pods_listed(kubelet) == ["one"]
    kubelet.faults.clear(state.id)
    again = kubelet.faults.set("stale-pod-resources")
    assert again.id != state.id
    kubelet.terminate(*kubelet.pods())
    assert pods_listed(kubelet) == ["one", "two"]


def test_each_stale_fault_stores_a_separate_state(kubelet: MockKubelet, client: Client) -> None:
    kubelet.faults.set("stale-pod-resources", method="List")
    kubelet.admit(pod("two"))
    kubelet.faults.set("stale-pod-resources", method="GetAllocatableResources")
    kubelet.faults.set("stale-pod-resources", method="List")
    assert client.list() == ("OK", "", ["one"])
    assert client.allocatable() == 2


def test_stale_fault_set_before_the_start_is_empty(
    make_mock_kubelet: Callable[..., MockKubelet],
) -> None:
    own = make_mock_kubelet(start=False)
    own.faults.set("stale-pod-resources")
    with own:
        own.admit(pod("one", 0))
        assert pods_listed(own) == []
