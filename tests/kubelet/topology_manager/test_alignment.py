"""Devices along the NUMA affinity: what is chosen, and what the plugin's preference gets."""

from __future__ import annotations

import pytest

from devicemanager.core.topology import NumaTopology, TopologyConfigError
from devicemanager.testing.fakes import (
    ALLOCATE,
    GET_PREFERRED_ALLOCATION,
    FakeCall,
    FakePlugin,
    Preference,
    first,
    garbage,
    last,
    one_short,
)
from tests.helpers import container, device, pod
from tests.node import GPU, NIC, Node, rows

AFFINITY_REJECTION = (
    "TopologyAffinityError",
    "Resources cannot be allocated with Topology locality",
)


def preferences(plugin: FakePlugin) -> list[tuple[str, str, int]]:
    """Return available IDs, IDs to include and size of every preference call, in order."""
    return [
        (" ".join(call.available), " ".join(call.must_include), call.size)
        for call in plugin.calls
        if call.method == GET_PREFERRED_ALLOCATION
    ]


def test_more_aligned_devices_than_needed() -> None:
    node = Node(topology_policy="restricted")
    plugin = node.plugin(rows("001110"), preference=last)
    node.admit(pod("first", gpu=1))
    node.admit(pod("p", gpu=2))
    # Node 0 has two left and is the lower one: exactly enough, so no preference is requested.
    assert node.devices("p") == {"app": {GPU: ["d0", "d1"]}}
    assert preferences(plugin) == [("d0 d1 d5", "", 1)]
    node.admit(pod("q", gpu=2))
    assert preferences(plugin)[1:] == [("d2 d3 d4", "", 2)]
    assert node.devices("q") == {"app": {GPU: ["d3", "d4"]}}


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        (first, ["d0", "d1"]),
        (last, ["d2", "d3"]),
        (one_short, ["d0", "d1"]),
        (garbage, ["d0", "d1"]),
        (lambda *_: ("d3",), ["d0", "d3"]),
        (lambda *_: ("d4", "d5", "d3"), ["d0", "d3"]),  # never beyond the affinity
        (lambda *_: (), ["d0", "d1"]),
    ],
)
def test_incomplete_preference_is_filled_up(answer: Preference, chosen: list[str]) -> None:
    node = Node(topology_policy="best-effort")
    node.plugin(rows("000011"), preference=answer)
    node.admit(pod("p", gpu=2))
    assert node.devices("p") == {"app": {GPU: chosen}}


def late(layout: str, preference: Preference | None, gpu: int) -> tuple[Node, FakePlugin]:
    """A pod aligned to node 0 for its NIC; its GPUs are allocated when its container starts."""
    node = Node(topology_policy="best-effort")
    node.plugin(rows("0"), NIC, "nic.sock")
    node.admit(pod("p", gpu=gpu, nic=1))
    plugin = node.plugin(rows(layout), preference=preference)
    node.start("p")
    return node, plugin


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        (None, ["d1", "d2", "d3"]),  # aligned, then unaligned, then the rest
        (first, ["d0", "d1", "d3"]),
        (last, ["d3", "d4", "d5"]),
        (lambda *_: ("d0",), ["d0", "d1", "d3"]),
    ],
)
def test_fewer_aligned_devices_than_needed(answer: Preference | None, chosen: list[str]) -> None:
    node, plugin = late("-1101-", answer, 3)
    assert node.devices("p")["app"][GPU] == chosen
    expected = [("d0 d1 d2 d3 d4 d5", "d3", 3)]
    assert preferences(plugin) == ([] if answer is None else expected)


def test_devices_without_topology_come_last() -> None:
    node, _ = late("-10-", None, 3)
    assert node.devices("p")["app"][GPU] == ["d0", "d1", "d2"]


def test_as_many_aligned_devices_as_needed() -> None:
    node, plugin = late("1001", last, 2)
    assert node.devices("p")["app"][GPU] == ["d1", "d2"]
    assert preferences(plugin) == []


def test_device_on_two_nodes_is_aligned_to_either() -> None:
    node, plugin = late("1b1", last, 1)
    assert node.devices("p")["app"][GPU] == ["d1"]
    assert preferences(plugin) == []


def test_resource_without_topology_is_not_split() -> None:
    node, plugin = late("---", last, 1)
    assert node.devices("p")["app"][GPU] == ["d2"]
    assert preferences(plugin) == [("d0 d1 d2", "", 1)]


def test_reused_devices_are_in_must_include() -> None:
    node = Node(topology_policy="restricted")
    plugin = node.plugin(rows("111000"), preference=lambda *_: ("d2",))
    spec = pod("p", container("app", gpu=2), init=[container("init", gpu=1)])
    node.admit(spec)
    # For one device node 0 comes first; the init container's devices are on node 0.
    assert preferences(plugin) == [("d3 d4 d5", "", 1), ("d3 d4 d5", "d3", 2)]
    assert node.devices("p") == {"init": {GPU: ["d3"]}, "app": {GPU: ["d3", "d4"]}}


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_two_resources_are_aligned_to_one_node(policy: str) -> None:
    node = Node(topology_policy=policy)
    node.plugin(rows("0011"))
    node.plugin(rows("1"), NIC, "nic.sock")
    admission = node.admit(pod("p", gpu=1, nic=1))
    assert node.devices("p") == {"app": {GPU: ["d2"], NIC: ["d0"]}}
    assert admission.containers["app"].affinity == (1,)
    rejected = node.admit(pod("q", gpu=1, nic=1))
    assert (rejected.reason, rejected.message) == AFFINITY_REJECTION


@pytest.mark.parametrize(("scope", "admitted"), [("container", True), ("pod", False)])
def test_scope_container_and_scope_pod(scope: str, admitted: bool) -> None:
    node = Node(topology_policy="single-numa-node", topology_scope=scope)
    plugin = node.plugin(rows("0011"))
    admission = node.admit(pod("p", container("x", gpu=2), container("y", gpu=1)))
    assert admission.admitted is admitted
    if admitted:
        affinities = {name: one.affinity for name, one in admission.containers.items()}
        assert affinities == {"x": (0,), "y": (1,)}
    else:
        assert (admission.reason, admission.message) == AFFINITY_REJECTION
        assert [call for call in plugin.calls if call.method == ALLOCATE] == []
        assert node.admit(pod("q", container("x", gpu=1), container("y", gpu=1))).admitted
        assert node.devices("q") == {"x": {GPU: ["d0"]}, "y": {GPU: ["d1"]}}


def test_pod_scope_uses_the_effective_request() -> None:
    node = Node(topology_policy="single-numa-node", topology_scope="pod")
    node.plugin(rows("0011"))
    big_init = pod("p", container("app", gpu=1), init=[container("init", gpu=3)])
    assert node.admit(big_init).reason == "TopologyAffinityError"
    one_by_one = pod("q", container("app", gpu=2), init=[container("init", gpu=2)])
    assert node.admit(one_by_one).admitted
    assert node.devices("q") == {"init": {GPU: ["d0", "d1"]}, "app": {GPU: ["d0", "d1"]}}


def test_closest_nodes_are_preferred_only_with_the_option() -> None:
    numa = NumaTopology.of([0, 1, 2], [[10, 30, 11], [30, 10, 30], [11, 30, 10]])
    layout = [device("a", 0), device("b", 1), device("c", 2)]
    for options, nodes in (({}, (0, 1)), ({"prefer-closest-numa-nodes": "true"}, (0, 2))):
        node = Node(topology_policy="best-effort", numa=numa, topology_options=options)
        node.plugin(layout)
        assert node.admit(pod("p", gpu=2)).containers["app"].affinity == nodes


def test_too_many_numa_nodes_prevent_the_start() -> None:
    from devicemanager.core.topology import NumaTopology

    nine = NumaTopology.of(range(9))
    with pytest.raises(
        TopologyConfigError, match=r"^unsupported on machines with more than 8 NUMA"
    ):
        Node(topology_policy="restricted", numa=nine)
    Node(numa=nine)
    Node(
        topology_policy="restricted", numa=nine, topology_options={"max-allowable-numa-nodes": "9"}
    )


def test_order_of_calls() -> None:
    node = Node(topology_policy="restricted")
    plugin = node.plugin(rows("000"), preference=last)
    node.admit(pod("p", gpu=1))
    assert plugin.calls == [
        FakeCall(GET_PREFERRED_ALLOCATION, available=("d0", "d1", "d2"), size=1),
        FakeCall(ALLOCATE, ("d2",)),
    ]
