"""The node check after allocation: reasons, numbers and exceptions."""

from __future__ import annotations

import pytest

from devicemanager.core.ids import PodUid, ResourceName
from devicemanager.core.node import Node as NodeCheck
from devicemanager.core.node import NodeStatus
from tests.helpers import container, device, devices, pod
from tests.node import GIB, GPU, NIC, Node, cpus_and_memory, guaranteed, rows

CPU, MEMORY, PODS = ResourceName("cpu"), ResourceName("memory"), ResourceName("pods")


def too_small(resource: str, requested: int, used: int, capacity: int) -> tuple[str, str]:
    return (
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, "
        f"requested: {requested}, used: {used}, capacity: {capacity}",
    )


def answers(node: Node, *pods) -> list[tuple[str, str]]:
    """Return reason and message of each admission; both are empty for an admitted pod."""
    given = (node.admit(each) for each in pods)
    return [(admission.reason, admission.message) for admission in given]


ADMITTED = ("", "")


def test_cpu_requests_as_quantities() -> None:
    node = Node(node_allocatable={CPU: 4})
    first, second, third = (
        pod(uid, guaranteed(cpus=n)) for uid, n in zip("pqr", (3, 2, 1), strict=True)
    )
    assert answers(node, first, second, third) == [
        ADMITTED,
        too_small("cpu", 2000, 3000, 4000),
        ADMITTED,
    ]
    node.terminate("p")
    assert answers(node, pod("s", guaranteed(cpus=3))) == [ADMITTED]


def test_memory_requests_in_bytes() -> None:
    node = Node(node_allocatable={MEMORY: "4Gi"})
    assert answers(node, pod("p", guaranteed(gib=5))) == [too_small("memory", 5 * GIB, 0, 4 * GIB)]


def test_number_of_pods_is_limited() -> None:
    node = Node(node_allocatable={PODS: 2})
    assert answers(node, pod("p"), pod("q"), pod("r")) == [
        ADMITTED,
        ADMITTED,
        too_small("pods", 1, 2, 2),
    ]
    # A rejected pod does not count.
    node.terminate("q")
    assert answers(node, pod("s")) == [ADMITTED]


def test_pods_come_first_then_cpu_then_memory_then_the_rest() -> None:
    spec = pod("p", guaranteed(cpus=2, gib=2, gpu=1))
    room = {PODS: 0, CPU: "1", MEMORY: GIB, GPU: 0}
    reasons = []
    while room:
        reasons.append(answers(Node(node_allocatable=room), spec)[0][0])
        del room[next(iter(room))]
    assert reasons == ["OutOfpods", "OutOfcpu", "OutOfmemory", "OutOfvendor.com/gpu"]


def test_resources_not_configured_are_not_checked() -> None:
    assert answers(Node(), pod("p", guaranteed(cpus=1000, gib=1000))) == [ADMITTED]


def test_requests_without_limits_count() -> None:
    node = Node()
    assert answers(node, pod("early", gpu=2)) == [ADMITTED]
    node.plugin(devices("a", "b", "c"))
    assert answers(node, pod("p", gpu=2), pod("q", gpu=1)) == [
        too_small("vendor.com/gpu", 2, 2, 3),
        ADMITTED,
    ]
    # The devices allocated before the check are free again.
    assert node.devices("p") == {}
    assert node.devices("q") == {"app": {GPU: ["a"]}}
    node.manager.self_check()


def test_effective_request_counts() -> None:
    node = Node(node_allocatable={CPU: 4})
    spec = pod("p", guaranteed(cpus=2), init=[guaranteed("init", cpus=4)])
    sidecar = pod("q", guaranteed(cpus=2), init=[guaranteed("side", cpus=3, restartable=True)])
    assert answers(node, spec, sidecar) == [ADMITTED, too_small("cpu", 5000, 4000, 4000)]


def test_unknown_extended_resources_are_left_out() -> None:
    assert answers(Node(), pod("p", gpu=7, nic=7)) == [ADMITTED]


def test_configured_amount_of_an_extended_resource_counts() -> None:
    node = Node(node_allocatable={NIC: 1})
    assert answers(node, pod("p", nic=2)) == [too_small("vendor.com/nic", 2, 0, 1)]


def test_allocatable_is_at_least_what_is_allocated() -> None:
    node = Node()
    plugin = node.plugin(devices("a", "b", "c"))
    assert answers(node, pod("p", gpu=2)) == [ADMITTED]
    plugin.send_list([*(device(id_, health="Unhealthy") for id_ in "ab"), device("c")])
    # One device is healthy, two are in use; with this pod three are allocated.
    assert answers(node, pod("q", gpu=1)) == [ADMITTED]


def test_known_pod_passes_while_its_plugin_is_disconnected() -> None:
    node = Node()
    node.plugin(devices("a", "b"))
    node.admit(pod("p", gpu=2), start=True)
    node.restart()
    assert node.manager.capacity().allocatable == {GPU: 0}
    record = node.pods.known("p")
    assert (record.phase, record.message) == ("Running", "")


def test_pod_admitted_again_is_not_counted_twice() -> None:
    node = Node(node_allocatable={CPU: 4, PODS: 1})
    node.admit(pod("p", guaranteed(cpus=4)), start=True)
    node.restart()
    assert node.pods.known("p").phase == "Running"
    check = NodeCheck({CPU: 4000, PODS: 1})
    for _ in range(3):
        check.place(pod("p", guaranteed(cpus=4)), lambda _: None)
    check.remove(PodUid("p"))
    check.remove(PodUid("p"))
    check.place(pod("q", guaranteed(cpus=4)), lambda _: None)


def test_failed_pod_is_not_counted() -> None:
    node = Node(node_allocatable={PODS: 1})
    node.plugin(devices("a"))
    assert answers(node, pod("p", gpu=1)) == [ADMITTED]
    node.restart(reboot=True)
    assert node.pods.known("p").phase == "Failed"
    assert answers(node, pod("q")) == [ADMITTED]


def test_rejection_by_the_node_check_frees_everything() -> None:
    node = Node(node_allocatable={PODS: 0}, providers=cpus_and_memory())
    plugin = node.plugin(rows("01"))
    before = node.manager.providers(), node.store.data
    assert answers(node, pod("p", guaranteed(gpu=1))) == [too_small("pods", 1, 0, 0)]
    assert (node.manager.providers(), node.store.data) == before
    assert len(plugin.calls) == 1  # Allocate had been called
    node.manager.self_check()


@pytest.mark.parametrize("policy", ["none", "single-numa-node"])
def test_topology_is_checked_before_the_node(policy: str) -> None:
    node = Node(topology_policy=policy, node_allocatable={PODS: 0})
    node.plugin(rows("01"))
    (reason, _), *_ = answers(node, pod("p", gpu=2))
    assert reason == ("OutOfpods" if policy == "none" else "TopologyAffinityError")


# -- capacity and allocatable in the node's status ------------------------------------------


def test_removed_resource_counts_as_zero() -> None:
    status = NodeStatus()
    status.update({"a": 2, "b": 1, "c": 4}, {"a": 1, "b": 1, "c": 4})
    status.update({"b": 3}, {"b": 2}, removed=["a", "b"])
    assert status.capacity == {"a": 0, "b": 3, "c": 4}
    assert status.allocatable == {"a": 0, "b": 2, "c": 4}
    kept = status.copy()
    status.reset()
    assert status.capacity == status.allocatable == {"a": 0, "b": 0, "c": 0}
    assert kept.capacity == {"a": 0, "b": 3, "c": 4}


def test_containers_of_a_pod_add_up() -> None:
    node = Node(node_allocatable={CPU: "3000m"})
    spec = pod("p", guaranteed("x", cpus=2), guaranteed("y", cpus=2), container("z"))
    assert answers(node, spec) == [too_small("cpu", 4000, 0, 3000)]
