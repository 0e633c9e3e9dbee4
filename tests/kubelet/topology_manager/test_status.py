"""Node status, the health of allocated devices, and the queue of health changes."""

from __future__ import annotations

import attrs
import pytest

import checkpoint
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.events.stream import EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.testing.factories import MockKubeletFactory
from devicemanager.testing.fakes import FakePlugin
from tests.helpers import container, device, devices, pod
from tests.node import GPU, NIC, Node

# -- the node's status -----------------------------------------------------------------------


def register(kubelet: MockKubelet, *ids: str, resource: str = GPU) -> FakePlugin:
    plugin = FakePlugin(resource)
    plugin.register(kubelet.manager.plugins, f"{resource[-3:]}.sock")
    plugin.send_list(devices(*ids))
    return plugin


def counts(kubelet: MockKubelet) -> tuple[dict[str, int], dict[str, int]]:
    status = kubelet.node_status()
    return status.capacity, status.allocatable


def test_removed_resource_stays_at_zero(make_mock_kubelet: MockKubeletFactory) -> None:
    clock = ManualClock()
    kubelet = make_mock_kubelet(clock=clock)
    gpu = register(kubelet, "a", "b")
    register(kubelet, "n", resource=NIC)
    gpu.send_list([device("a"), device("b", health="Unhealthy")])
    assert counts(kubelet) == ({GPU: 2, NIC: 1}, {GPU: 1, NIC: 1})
    gpu.leave()
    assert counts(kubelet) == ({GPU: 2, NIC: 1}, {GPU: 0, NIC: 1})
    clock.advance(Settings().grace_period + 1)
    assert counts(kubelet) == ({GPU: 0, NIC: 1}, {GPU: 0, NIC: 1})
    assert kubelet.capacity() == {NIC: 1}


def test_registered_again_resource_counts_again(make_mock_kubelet: MockKubeletFactory) -> None:
    clock = ManualClock()
    kubelet = make_mock_kubelet(clock=clock)
    register(kubelet, "a", "b").leave()
    clock.advance(301)
    assert (kubelet.capacity(), counts(kubelet)) == ({}, ({GPU: 0}, {GPU: 0}))
    register(kubelet, "a")
    assert counts(kubelet) == ({GPU: 1}, {GPU: 1})


def test_restart_restores_resources_of_the_checkpoint(
    make_mock_kubelet: MockKubeletFactory,
) -> None:
    kubelet = make_mock_kubelet()
    register(kubelet, "a", "b")
    assert counts(kubelet) == ({GPU: 2}, {GPU: 2})
    kubelet.restart()
    assert kubelet.capacity() == {GPU: 0}
    assert counts(kubelet) == ({GPU: 0}, {GPU: 0})


@pytest.mark.parametrize(
    ("file", "quirks", "left"),
    [("absent", (), 0), ("broken", (), 0), ("broken", ("Q21",), 2), ("of another node", (), 2)],
)
def test_old_counts_are_reset_only_without_a_checkpoint(
    make_mock_kubelet: MockKubeletFactory, file: str, quirks: tuple[str, ...], left: int
) -> None:
    kubelet = make_mock_kubelet(Settings(quirks=frozenset(quirks)))
    register(kubelet, "a", "b")
    assert counts(kubelet) == ({GPU: 2}, {GPU: 2})
    kubelet.stop()
    kubelet.checkpoint_path.unlink()
    if file == "broken":
        kubelet.checkpoint_path.write_text("{")
    elif file == "of another node":
        kubelet.checkpoint_path.write_bytes(checkpoint.dumps(checkpoint.Checkpoint((), {})))
    kubelet.start()
    assert (kubelet.capacity(), counts(kubelet)) == ({}, ({GPU: left}, {GPU: left}))
    register(kubelet, "a", "b", "c")
    assert counts(kubelet) == ({GPU: 3}, {GPU: 3})


def test_returned_status_is_a_copy(make_mock_kubelet: MockKubeletFactory) -> None:
    kubelet = make_mock_kubelet()
    register(kubelet, "a")
    kubelet.node_status().capacity.clear()
    assert counts(kubelet) == ({GPU: 1}, {GPU: 1})


# -- allocatedResourcesStatus -----------------------------------------------------------------


def status(node: Node, uid: str = "p") -> dict[str, list[tuple[str, dict[str, str]]]]:
    found = node.manager.allocated_resources_status(PodUid(uid))
    return {
        name: [
            (one.name, {each.resource_id: each.health.value for each in one.resources})
            for one in of_container
        ]
        for name, of_container in found.items()
    }


def test_health_by_container_resource_and_id() -> None:
    node = Node()
    node.plugin(devices("z", "y"), NIC, "nic.sock")
    gpu = node.plugin(devices("d", "b", "c", "a"))
    node.admit(pod("p", container("x", gpu=4, nic=1), container("y"), container("z", nic=1)))
    gpu.send_list([device("d", health="Unhealthy"), device("a"), device("c", health="On fire")])
    found = status(node)
    assert found == {
        "x": [
            (GPU, {"a": "Healthy", "b": "Unknown", "c": "Unhealthy", "d": "Unhealthy"}),
            (NIC, {"y": "Healthy"}),
        ],
        "z": [(NIC, {"z": "Healthy"})],
    }
    assert list(found["x"][0][1]) == ["a", "b", "c", "d"]
    gpu.send_list(devices(*"abcd"))
    assert set(status(node)["x"][0][1].values()) == {"Healthy"}


def test_resources_are_sorted_in_any_order_of_registration() -> None:
    node = Node()
    node.plugin(devices("n"), NIC, "nic.sock")
    node.admit(pod("p", gpu=1, nic=1))
    node.plugin(devices("a"))
    node.start("p")
    found = node.manager.allocated_resources_status(PodUid("p"))
    assert [one.name for one in found[ContainerName("app")]] == [GPU, NIC]


def test_health_is_unknown_until_the_plugin_registers_again() -> None:
    node = Node()
    node.plugin(devices("a"))
    node.admit(pod("p", gpu=1), start=True)
    node.restart()
    assert status(node) == {"app": [(GPU, {"a": "Unknown"})]}
    node.plugin(devices("a"))
    assert status(node) == {"app": [(GPU, {"a": "Healthy"})]}


def test_pod_without_devices_has_no_device_health() -> None:
    node = Node()
    node.admit(pod("p"))
    assert status(node) == status(node, "stranger") == {}


# -- the queue of changes ---------------------------------------------------------------------


def test_more_than_100_pending_reports_are_dropped() -> None:
    node = Node()
    assert node.settings.health_queue_size == 100
    ids = [f"d{number:03}" for number in range(102)]
    plugin = node.plugin(devices(*ids))
    for id_ in ids:
        node.admit(pod(f"of-{id_}", gpu=1))
    plugin.send_list([device(id_, health="Unhealthy") for id_ in ids])
    queue = node.manager.health_updates
    waiting = [queue.get_nowait() for _ in range(100)]
    dropped = node.events.recent(EventKind.HEALTH_DROPPED)
    assert queue.empty() and len(dropped) == 2 and dropped[0].is_warning
    assert sorted([*waiting, *(event.pod or "" for event in dropped)]) == [
        f"of-{id_}" for id_ in ids
    ]
    id_ = str(dropped[0].pod).removeprefix("of-")
    assert dropped[0].message == (
        f"vendor.com/gpu {id_}: report of changed health dropped: the queue has 100 unread reports"
    )
    # The queue has room again.
    plugin.send_list([device(ids[0]), *(device(id_, health="Unhealthy") for id_ in ids[1:])])
    assert queue.get_nowait() == "of-d000"


def test_only_pods_whose_devices_change_are_reported() -> None:
    node = Node()
    plugin = node.plugin(devices("a", "b", "c"))
    node.admit(pod("p", gpu=1))
    node.admit(pod("q", gpu=1))
    plugin.send_list([device("a"), device("b"), device("c", health="Unhealthy")])
    plugin.send_list([device("a"), device("b", health="Unhealthy"), device("c")])
    assert node.manager.health_updates.get_nowait() == "q"
    assert node.manager.health_updates.empty()
    assert node.messages(EventKind.DEVICE_HEALTH) == [
        "vendor.com/gpu b: now Unhealthy, allocated to pod q"
    ]


def test_topology_change_is_reported() -> None:
    node = Node()
    plugin = node.plugin([device("a", 0)])
    node.admit(pod("p", gpu=1))
    plugin.send_list([attrs.evolve(device("a"), numa=(1,))])
    assert node.manager.health_updates.get_nowait() == "p"
