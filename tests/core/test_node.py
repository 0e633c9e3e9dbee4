"""The check of a pod's requests against the node, and the counts of the node's status."""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.ids import PodUid, ResourceName
from devicemanager.core.node import Node, NodeStatus
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import Rejected
from tests.helpers import container, pod

TOO_SMALL = "Node didn't have enough capacity"
COUNTS = {"vendor.com/gpu": 4, "vendor.com/nic": 1}


def devices(resource: ResourceName) -> int | None:
    return COUNTS.get(resource)


def rejection(node: Node, wanted: Pod) -> tuple[str, str] | None:
    """Place a pod; return the reason and the numbers of its rejection."""
    try:
        node.place(wanted, devices)
    except Rejected as error:
        return error.reason, error.message.partition(", ")[2]
    return None


def test_requests_of_all_pods_are_counted() -> None:
    node = Node()
    assert rejection(node, pod("a", gpu=3)) is None
    too_many = ("OutOfvendor.com/gpu", "requested: 2, used: 3, capacity: 4")
    assert rejection(node, pod("b", gpu=2)) == too_many
    assert rejection(node, pod("c", gpu=1)) is None
    node.recount()
    assert rejection(node, pod("b", gpu=1)) is not None
    node.remove(PodUid("a"))
    node.remove(PodUid("a"))
    assert rejection(node, pod("b", gpu=3)) is None


def test_pod_that_is_placed_is_not_counted_twice() -> None:
    node = Node()
    for _ in range(2):
        assert rejection(node, pod("a", gpu=3)) is None
    assert rejection(node, pod("b", gpu=1)) is None
    assert rejection(node, pod("a", gpu=4)) == (
        "OutOfvendor.com/gpu",
        "requested: 4, used: 1, capacity: 4",
    )


def test_request_of_zero_does_not_end_the_check() -> None:
    assert rejection(Node(), pod("a", gpu=0, nic=2)) == (
        "OutOfvendor.com/nic",
        "requested: 2, used: 0, capacity: 1",
    )


def test_fixed_resources_are_checked_first() -> None:
    node = Node({ResourceName("pods"): 1})
    assert rejection(node, pod("a")) is None
    assert rejection(node, pod("b", gpu=9)) == ("OutOfpods", "requested: 1, used: 1, capacity: 1")


@pytest.mark.parametrize("old", [False, True])
def test_unknown_resource_of_an_init_container(old: bool) -> None:
    node = Node(unknown_init_requests=old)
    assert rejection(node, pod("a", x=3)) is None
    found = rejection(node, pod("b", container("app", x=3), init=[container("i", x=2)]))
    text = "requested: 2, used: 3, capacity: 0"
    assert found == (("OutOfvendor.com/x", text) if old else None)


@pytest.mark.parametrize("counted", [False, True])
def test_pod_level_requests_replace_those_of_containers(counted: bool) -> None:
    node = Node({ResourceName("cpu"): 2000}, pod_level_requests=counted)
    spec = attrs.evolve(pod("a"), pod_level_requests={ResourceName("cpu"): 3000})
    text = "requested: 3000, used: 0, capacity: 2000"
    assert rejection(node, spec) == (("OutOfcpu", text) if counted else None)


def test_removed_resources_remain_with_zero() -> None:
    status = NodeStatus()
    status.update({"a": 2, "b": 1}, {"a": 1, "b": 1})
    copy = status.copy()
    status.update({"a": 3}, {"a": 2}, ["a", "b"])
    assert status == NodeStatus({"a": 3, "b": 0}, {"a": 2, "b": 0})
    assert copy == NodeStatus({"a": 2, "b": 1}, {"a": 1, "b": 1})
    copy.reset()
    assert copy == NodeStatus({"a": 0, "b": 0}, {"a": 0, "b": 0})


@pytest.mark.parametrize(
    ("cpu", "memory", "text"),
    [
        (2000, 10, ""),
        (2001, 10, f"{TOO_SMALL}: cpu, requested: 2001, capacity: 2000"),
        (2000, 11, f"{TOO_SMALL}: memory, requested: 11, capacity: 10"),
        (2001, 11, f"{TOO_SMALL}: memory, requested: 11, capacity: 10"),
    ],
)
def test_resize_must_not_exceed_the_whole_node(cpu: int, memory: int, text: str) -> None:
    capacity = {ResourceName("cpu"): 2000, ResourceName("memory"): 10}
    node = Node(capacity)
    amounts = {ResourceName("cpu"): cpu, ResourceName("memory"): memory}
    wanted = pod("a", attrs.evolve(container("app"), requests=amounts))
    # Other pods do not count.
    half = {name: amount // 2 for name, amount in capacity.items()}
    node.place(pod("b", attrs.evolve(container("app"), requests=half)), devices)
    assert node.exceeds(wanted) == text
    assert Node().exceeds(wanted) == ""
