"""Exact JSON of Node, Lease and NodeResourceTopology objects."""

from __future__ import annotations

import pytest

from devicemanager.core.nodestatus.conditions import NodeCondition
from devicemanager.core.topology import NumaTopology
from devicemanager.objects.status.node import (
    NodeSystemInfo,
    default_labels,
    lease_object,
    node_object,
    node_reference,
    node_status_object,
)
from devicemanager.objects.status.topology import PlacedDevice, topology_object

INFO = NodeSystemInfo("v1.32.0", operating_system="os", architecture="arch", boot_id="b")


def test_lease_names_its_holder_and_time() -> None:
    assert lease_object({"name": "n"}, "holder", duration=40, now=1.5) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "n"},
        "spec": {
            "holderIdentity": "holder",
            "leaseDurationSeconds": 40,
            "renewTime": "1970-01-01T00:00:01.500000Z",
        },
    }


def test_node_object_has_labels_annotations_and_taints() -> None:
    result = node_object(
        "n", {"phase": "x"}, labels=default_labels("n", INFO), annotations={"a": "b"}
    )
    assert result == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n",
            "labels": {
                "beta.kubernetes.io/arch": "arch",
                "beta.kubernetes.io/os": "os",
                "kubernetes.io/arch": "arch",
                "kubernetes.io/hostname": "n",
                "kubernetes.io/os": "os",
            },
            "annotations": {
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "a": "b",
            },
        },
        "spec": {"taints": []},
        "status": {"phase": "x"},
    }
    assert node_reference("n", "u") == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}


def test_node_status_keeps_transition_time_of_unchanged_conditions() -> None:
    def status(ready: bool, now: float, before: object = None) -> dict[str, object]:
        conditions = [NodeCondition("Ready", ready, "Reason", "text")]
        amounts = {"cpu": "4"}, {"cpu": "3"}
        return node_status_object("n", conditions, amounts, INFO, now=now, before=before)  # type: ignore[arg-type]

    def times(result: dict[str, object]) -> list[str]:
        (condition,) = result["conditions"]  # type: ignore[misc]
        return [condition[f"last{name}Time"][-3:-1] for name in ("Heartbeat", "Transition")]

    first = status(True, 1.0)
    assert first == {
        "addresses": [{"type": "Hostname", "address": "n"}],
        "allocatable": {"cpu": "3"},
        "capacity": {"cpu": "4"},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "lastHeartbeatTime": "1970-01-01T00:00:01Z",
                "lastTransitionTime": "1970-01-01T00:00:01Z",
                "reason": "Reason",
                "message": "text",
            }
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": INFO.as_object(),
    }
    assert status(False, 1.0)["conditions"] == [{**first["conditions"][0], "status": "False"}]  # type: ignore[index]
    assert times(status(True, 2.0, first)) == ["02", "01"]
    assert times(status(False, 2.0, first)) == ["02", "02"]


def test_node_info_has_ten_fields_of_api() -> None:
    assert INFO.as_object() == {
        "architecture": "arch",
        "bootID": "b",
        "containerRuntimeVersion": "containerd://2.0.0+devicemanager",
        "kernelVersion": "",
        "kubeProxyVersion": "v1.32.0",
        "kubeletVersion": "v1.32.0",
        "machineID": "",
        "operatingSystem": "os",
        "osImage": "devicemanager",
        "systemUUID": "",
    }


NUMA = NumaTopology.of([0, 1], [[10, 21], [22, 10]])
DEVICES = [
    PlacedDevice("gpu", (0,), is_healthy=True, is_free=True),
    PlacedDevice("gpu", (0, 1), is_healthy=True, is_free=False),
    PlacedDevice("gpu", (1,), is_healthy=False, is_free=True),
    PlacedDevice("gpu", (7,), is_healthy=True, is_free=True),
    PlacedDevice("fpga", (), is_healthy=True, is_free=True),
]


def test_zones_count_devices_by_numa_node() -> None:
    result = topology_object("n", "restricted", "pod", NUMA, DEVICES, owner={"uid": "u"})
    assert result == {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n", "ownerReferences": [{"uid": "u"}]},
        "topologyPolicies": ["RestrictedPodLevel"],
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "restricted"},
            {"name": "topologyManagerScope", "value": "pod"},
        ],
        "zones": [
            {
                "name": f"node-{node}",
                "type": "Node",
                "costs": [{"name": f"node-{i}", "value": cost} for i, cost in enumerate(costs)],
                "resources": [
                    {
                        "name": "gpu",
                        "capacity": "2",
                        "allocatable": allocatable,
                        "available": available,
                    }
                ],
            }
            for node, costs, allocatable, available in (
                (0, (10, 21), "2", "1"),
                (1, (22, 10), "1", "0"),
            )
        ],
    }
    assert "ownerReferences" not in topology_object("n", "none", "pod", NUMA, [])["metadata"]


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("best-effort", "BestEffort"),
        ("restricted", "Restricted"),
        ("single-numa-node", "SingleNUMANode"),
    ],
)
def test_topology_policies_name_policy_and_scope(policy: str, name: str, scope: str) -> None:
    result = topology_object("n", policy, scope, NUMA, [])
    assert result["topologyPolicies"] == [f"{name}{scope.capitalize()}Level"]


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("none", None),
        ("best-effort", "BestEffort"),
        ("restricted", "Restricted"),
        ("single-numa-node", "SingleNUMANode"),
    ],
)
@pytest.mark.parametrize(("scope", "level"), [("container", "ContainerLevel"), ("pod", "PodLevel")])
def test_policy_and_scope_are_one_value_for_older_schedulers(
    policy: str, name: str | None, scope: str, level: str
) -> None:
    result = topology_object("n", policy, scope, NUMA, [])
    assert result["topologyPolicies"] == ["None" if name is None else name + level]
    assert [each["value"] for each in result["attributes"]] == [policy, scope]
    assert result["metadata"] == {"name": "n"}
