"""PodResources values of pods and their devices."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import podresources
from devicemanager.core.devices import Device
from devicemanager.core.ids import DeviceId
from devicemanager.core.pods import Pod
from devicemanager.kubelet.pods.podresources import PodSnapshot, PodSource, by_name
from tests.helpers import container, device, pod
from tests.node import Node
from tests.strategies import GPU, NIC


class Shown(Node):
    """A node whose PodResources values ``show`` returns."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = PodSnapshot(0, ())
        self.values = PodSource(self.manager.state, lambda: self.snapshot)

    def show(self, *active: Pod, inactive: Iterable[Pod] = ()) -> None:
        self.snapshot = PodSnapshot(
            self.snapshot.version + 1, tuple(sorted(active, key=by_name)), tuple(inactive)
        )

    def come(self, spec: Pod) -> None:
        self.manager.admit(spec)
        self.show(*self.snapshot.active, spec)

    def go(self, spec: Pod) -> None:
        self.manager.release(spec.uid)
        self.show(*(each for each in self.snapshot.active if each is not spec))


def group(resource: str, ids: str, *nodes: int) -> podresources.ContainerDevices:
    return podresources.ContainerDevices(resource, tuple(ids.split()), nodes)


@pytest.fixture
def node():
    return Shown()


def test_empty_node(node):
    assert list(node.values.pods()) == []
    assert node.values.allocatable() == podresources.Allocatable()


def test_pod_with_its_devices(node):
    node.plugin([device("n")], NIC)
    node.plugin(
        [
            device("a", 1),
            device("b", 0, 1),
            device("c", 1),
            Device(DeviceId("d"), numa=()),
            device("e"),
        ],
        GPU,
    )
    node.come(pod("p", gpu=5, nic=1))
    assert node.values.pods() == [
        podresources.Pod(
            "p",
            "default",
            (
                podresources.Container(
                    "app",
                    (
                        group(GPU, "a", 1),
                        group(GPU, "b", 0, 1),
                        group(GPU, "c", 1),
                        group(GPU, "d e"),
                        group(NIC, "n"),
                    ),
                ),
            ),
        )
    ]


def test_ordinary_init_containers_are_omitted(node):
    node.plugin([device("a"), device("b")], GPU)
    spec = pod(
        "p",
        container("app", gpu=1),
        init=[container("init", gpu=1), container("side", restartable=True, gpu=1)],
    )
    node.come(spec)
    (previous,) = node.values.pods()
    assert [(each.name, each.restartable_init) for each in previous.containers] == [
        ("side", True),
        ("app", False),
    ]
    assert [each.devices for each in previous.containers] == [
        (group(GPU, "a"),),
        (group(GPU, "b"),),
    ]


def test_only_a_changed_pod_is_rebuilt(node):
    plugin = node.plugin([device("a"), device("b")], GPU)
    first, second = pod("p", gpu=1), pod("q", container("app"), container("late", gpu=1))
    node.come(first)
    node.show(first, second)
    before = list(node.values.pods())
    plugin.send_list([device("a"), device("b", health="Unhealthy"), device("c")])
    node.show(first, second)
    assert all(a is b for a, b in zip(node.values.pods(), before, strict=True))
    node.manager.allocate_now(second, second.containers[1], is_init=False)
    after = node.values.pods()
    assert after[0] is before[0] and after[1] is not before[1]
    assert after[1].containers[1].devices == (group(GPU, "c"),)


def test_deleted_pod_is_omitted(node):
    node.plugin([device("a")], GPU)
    first, second = pod("p", gpu=1), pod("q")
    node.come(first)
    node.come(second)
    assert [each.name for each in node.values.pods()] == ["p", "q"]
    node.go(first)
    assert [each.name for each in node.values.pods()] == ["q"]


def test_new_pod_with_the_same_uid_is_rebuilt(node):
    # Neither has a device, so only the pods themselves differ.
    for name in ("first", "second"):
        spec = pod("p", container(name))
        node.come(spec)
        (previous,) = node.values.pods()
        assert [each.name for each in previous.containers] == [name]
        node.go(spec)


def test_rejected_pod_is_listed_until_it_is_deleted(node):
    node.plugin([device("a")], GPU)
    spec, empty = pod("p", gpu=1), pod("o")
    node.come(spec)
    node.manager.deactivate(spec.uid)
    node.show(pod("q"), inactive=[empty, spec])
    assert summary(node) == [("o", False, ()), ("p", False, (group(GPU, "a"),)), ("q", True, ())]
    node.manager.admit(pod("r"))
    assert summary(node) == [("o", False, ()), ("p", False, ()), ("q", True, ())]


def test_finished_pod_without_devices_is_listed_as_inactive(node):
    spec = pod("p")
    node.show(spec)
    assert summary(node) == [("p", True, ())]
    node.show(inactive=[spec])
    assert summary(node) == [("p", False, ())]


def summary(node: Node) -> list[tuple[str, bool, tuple[podresources.ContainerDevices, ...]]]:
    return [(each.name, each.active, each.containers[0].devices) for each in node.values.pods()]


def test_allocatable_lists_healthy_devices_in_use_or_not(node):
    plugin = node.plugin(
        [device("b", 0), device("a", 0), device("c", health="Unhealthy"), device("d", 0, 1)], GPU
    )
    node.plugin([device("n")], NIC)
    node.come(pod("p", gpu=1))
    previous = node.values.allocatable()
    assert previous.devices == (group(GPU, "a b", 0), group(GPU, "d", 0, 1), group(NIC, "n"))
    node.come(pod("q", gpu=1))
    assert node.values.allocatable() is previous
    plugin.leave()
    assert node.values.allocatable().devices == (group(NIC, "n"),)


def test_version_grows_with_every_change(node):
    seen = [node.values.version()]

    def grew() -> None:
        seen.append(node.values.version())
        assert seen[-1] > seen[-2]

    plugin = node.plugin([device("a"), device("b")], GPU)
    grew()
    plugin.send_list([device("a"), device("b", health="Sick")])
    grew()
    spec = pod("p", gpu=1)
    node.manager.admit(spec)
    grew()
    node.show(spec)
    grew()
    node.manager.release(spec.uid)
    grew()
    plugin.leave()
    grew()
    assert node.values.version() == seen[-1]
