"""Explanations of real admissions, as text."""

from __future__ import annotations

import pytest

from devicemanager.core.errors import RpcError
from devicemanager.core.explanation.model import AlignmentFault
from devicemanager.core.explanation.text import render
from devicemanager.core.ids import ResourceName
from devicemanager.core.topology import NumaTopology
from devicemanager.events.stream import EventKind
from tests.helpers import container, device, pod
from tests.node import GPU, NIC, Node, cpus_and_memory, guaranteed, rows

ALIGNED = """\
pod default/train admitted
  policy single-numa-node, scope container

container app
  vendor.com/gpu: 2 requested
    node 0 [#.##] 1 of 4 free
    node 1 [**.x] 3 of 4 free
    chosen: d4, d5
    fits on node 1!, nodes 0+1 (! preferred)
  vendor.com/nic: 1 requested
    no node [*] 1 of 1 free
    chosen: d0
    fits on any node: its devices have no topology
  cpu fits on node 0!, node 1!, nodes 0+1 (! preferred)
  memory fits on node 0!, node 1!, nodes 0+1 (! preferred)
  => single-numa-node: aligned to node 1

legend: . free, # in use, x unhealthy, * chosen

in use:
  vendor.com/gpu d0: pod default/holds-d0, container app
  vendor.com/gpu d2: pod default/holds-d2, container app
  vendor.com/gpu d3: pod default/holds-d3, container app
"""

REJECTED = """\
pod default/train rejected: TopologyAffinityError
  Resources cannot be allocated with Topology locality
  policy restricted, scope container

container x
  vendor.com/gpu: 1 requested
    node 0 [*.] 2 of 2 free
    node 1 [#.] 1 of 2 free
    chosen before the rejection: d0
    fits on node 0!, node 1!, nodes 0+1 (! preferred)
  => restricted: aligned to node 0

container y
  vendor.com/gpu: 2 requested
    node 0 [+.] 1 of 2 free
    node 1 [#.] 1 of 2 free
    fits on nodes 0+1
  vendor.com/fpga: 1 requested, not registered: the kubelet ignores this request
  => restricted: vendor.com/gpu is free only across nodes 0+1; fewer nodes would be enough if no device were in use
     under policy best-effort or none, the pod would not be rejected for this

legend: . free, # in use, x unhealthy, * chosen, + of this pod's other containers

in use:
  vendor.com/gpu d2: pod default/other, container app
"""  # noqa: E501

NOT_TOGETHER = """\
pod default/train rejected: TopologyAffinityError
  Resources cannot be allocated with Topology locality
  policy single-numa-node, scope pod

the pod as a whole
  vendor.com/gpu: 1 requested
    node 0 [.] 1 of 1 free
    fits on node 0! (! preferred)
  vendor.com/nic: 1 requested
    node 1 [.] 1 of 1 free
    fits on node 1! (! preferred)
  => single-numa-node: vendor.com/gpu can be aligned to node 0, vendor.com/nic can be aligned to node 1; there is no common node
     under policy best-effort or none, the pod would not be rejected for this

legend: . free, # in use, x unhealthy, * chosen
"""  # noqa: E501

FAILED = """\
pod default/train rejected: UnexpectedAdmissionError
  Allocate failed due to rpc error: code = Unknown desc = on fire, which is unexpected
  policy none, scope container

container init
  vendor.com/gpu: 2 requested
    no node [**.] 3 of 3 free
    chosen before the rejection: d0, d1

container app
  vendor.com/gpu: 1 requested
    no node [*..] 3 of 3 free
    chosen before the rejection: d0
  vendor.com/nic: 1 requested
    no node [.] 1 of 1 free
  => rpc error: code = Unknown desc = on fire

legend: . free, # in use, x unhealthy, * chosen
"""


def test_explanation_of_an_aligned_admission() -> None:
    node = Node(topology_policy="single-numa-node", providers=cpus_and_memory())
    node.plugin(rows("-"), NIC, "nic.sock")
    gpu = node.plugin(rows("00001111", d7="Unhealthy"))
    for preferred in ("d0", "d2", "d3"):
        gpu = node.plugin(
            rows("00001111", d7="Unhealthy"), preference=lambda *_, id_=preferred: (id_,)
        )
        node.admit(pod(f"holds-{preferred}", gpu=1))
    assert node.admit(pod("train", guaranteed(cpus=2, gpu=2, nic=1))).explain() == ALIGNED
    assert gpu.calls[-1].device_ids == ("d4", "d5")


def test_explanation_shows_devices_chosen_before_the_rejection() -> None:
    node = Node(topology_policy="restricted")
    node.plugin(rows("0011"))
    node.plugin(rows("11"), NIC, "nic.sock")
    node.admit(pod("other", gpu=1, nic=1))
    assert node.devices("other")["app"][GPU] == ["d2"]
    admission = node.admit(pod("train", container("x", gpu=1), container("y", gpu=2, fpga=1)))
    assert admission.explain() == REJECTED
    explanation = admission.explanation
    assert explanation is not None and explanation.steps[1].merge is not None
    assert explanation.steps[1].merge.faults == {GPU: AlignmentFault.SPREAD}
    assert explanation.steps[1].unknown == {ResourceName("vendor.com/fpga"): 1}


def test_explanation_of_a_rejection_in_pod_scope() -> None:
    node = Node(topology_policy="single-numa-node", topology_scope="pod")
    node.plugin(rows("0"))
    node.plugin(rows("1", "n"), NIC, "nic.sock")
    rejected = node.admit(pod("train", container("x", gpu=1), container("y", nic=1)))
    assert rejected.explain() == NOT_TOGETHER


def test_explanation_of_a_failed_allocation() -> None:
    node = Node()
    node.plugin(rows("---"))
    node.plugin(rows("-"), NIC, "nic.sock", allocate_error=RpcError("Unknown", "on fire"))
    spec = pod("train", container("app", gpu=1, nic=1), init=[container("init", gpu=2)])
    assert node.admit(spec).explain() == FAILED


def test_allocated_devices_count_as_chosen() -> None:
    node = Node()
    node.plugin(rows("--"))
    spec = pod("p", container("x", gpu=1), container("y", gpu=1))
    node.admit(spec, start=True)
    node.new_process()
    node.plugin(rows("--"))
    text = "".join(f"    no node [{drawn}] 0 of 2 free\n" for drawn in ("*+", "+*"))
    explained = node.manager.explain(node.manager.admit(spec))
    assert (explained.admitted, explained.reason, explained.message) == (True, "", "")
    lines = [line for line in render(explained).splitlines(True) if "no node [" in line]
    assert "".join(lines) == text


def test_rejection_before_any_step() -> None:
    node = Node(strict=True)
    rejected = node.admit(pod("p", gpu=1))
    assert rejected.explanation is None
    assert rejected.explain() == (
        "pod default/p rejected: Allocate failed due to cannot allocate unregistered device "
        "vendor.com/gpu, which is unexpected\n"
    )


def test_explanation_of_the_node_check() -> None:
    node = Node(node_allocatable={ResourceName("pods"): 0})
    node.plugin(rows("-"))
    text = node.admit(pod("p", gpu=1)).explain()
    assert text.startswith(
        "pod default/p rejected: OutOfpods\n"
        "  Node didn't have enough resource: pods, requested: 1, used: 0, capacity: 0\n"
    )
    assert "chosen before the rejection: d0" in text


ON_NODE_1 = (
    "a device is on NUMA node 1, which this machine does not have: add the node to the topology "
    "(Settings.numa, --numa)"
)


def test_device_on_a_missing_numa_node() -> None:
    """Rejected as the kubelet would, and the cause is named: in an event and here."""
    node = Node(numa=NumaTopology.of([0]), topology_policy="single-numa-node")
    node.plugin(rows("11"))
    admission = node.admit(pod("train", gpu=1))
    assert admission.reason == "TopologyAffinityError"
    (event,) = node.events.recent(EventKind.LIST_SUSPECT)
    assert event.message == f"{GPU}: {ON_NODE_1}" and event.is_warning
    assert f"  {ON_NODE_1}\n" in admission.explain()


def test_without_numa_the_topology_follows_the_devices() -> None:
    node = Node(numa=None, topology_policy="single-numa-node")
    node.plugin(rows("011"))
    admission = node.admit(pod("train", gpu=2))
    assert admission.containers["app"].devices == {GPU: ["d1", "d2"]}
    assert "aligned to node 1" in admission.explain()
    # A later plugin can need more nodes.
    node.plugin([device("n0", 3)], NIC, name="nic.sock")
    assert node.admit(pod("more", nic=1)).admitted
    assert node.manager.policy.topology == NumaTopology.of(range(4))
    assert not node.events.recent(EventKind.LIST_SUSPECT)


@pytest.mark.parametrize(
    ("settings", "nodes"),
    [
        ({"topology_policy": "restricted"}, 8),
        (
            {
                "topology_policy": "restricted",
                "topology_options": {"max-allowable-numa-nodes": "9"},
            },
            9,
        ),
        ({"topology_policy": "none"}, 64),
    ],
)
def test_grown_topology_stays_within_the_kubelets_limits(settings, nodes) -> None:
    node = Node(numa=None, **settings)
    node.plugin([device("d0", nodes - 1), device("d1", nodes)])
    assert len(node.manager.policy.topology.nodes) == nodes
    (event,) = node.events.recent(EventKind.LIST_SUSPECT)
    assert f"NUMA node {nodes}, which this machine does not have" in event.message


def test_holders_are_those_at_the_time_of_the_decision() -> None:
    """Without pods that came later, and without pods that use none of the resource."""
    node = Node()
    node.plugin(rows("--"))
    node.plugin(rows("-", "n"), NIC, "nic.sock")
    assert node.admit(pod("first", gpu=1)).admitted
    assert node.admit(pod("nics", nic=1)).admitted
    second, third = node.admit(pod("second", gpu=1)), node.admit(pod("third", gpu=1))
    assert second.explanation is not None and third.explanation is not None
    for is_gone in (False, True):
        assert [one.name for one in second.explanation.holders] == ["default/first"]
        assert [(one.name, one.ids) for one in third.explanation.holders] == [
            ("default/first", ("d0",)),
            ("default/second", ("d1",)),
        ]
        assert third.explain().endswith(
            "\n\nin use:\n  vendor.com/gpu d0: pod default/first, container app\n"
            "  vendor.com/gpu d1: pod default/second, container app\n"
        )
        if not is_gone:
            node.terminate("first")  # an explanation that was read does not change


def test_long_lists_of_holders_are_shortened() -> None:
    node = Node()
    node.plugin(rows("-" * 60))
    for number in range(60):
        node.admit(pod(f"p{number:02}", gpu=1))
    lines = node.admit(pod("train", gpu=1)).explain().splitlines()
    assert lines[-1] == "  and 10 more containers"
    assert lines.index("in use:") == len(lines) - 52
