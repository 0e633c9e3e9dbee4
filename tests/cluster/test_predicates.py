"""Pods that require another node are rejected with the kubelet's texts, and get no devices."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.cluster.pods.predicates import node_predicates
from tests.cluster.world import World

AFFINITY = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
OS_FIELD = "Failed to admit pod as the OS field doesn't match node OS"
OS_LABEL = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
TAINTS = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"


NAME = {"key": "metadata.name", "operator": "In", "values": ["n"]}


def required(*terms: Any) -> Any:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def term(operator: str, *values: str) -> Any:
    return {"matchExpressions": [{"key": "zone", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        ({"os": {"name": "windows"}}, "PodOSNotSupported", OS_FIELD),
        ({"nodeSelector": {"zone": "b"}}, "NodeAffinity", AFFINITY),
        ({"affinity": required(term("In", "b"))}, "NodeAffinity", AFFINITY),
        ({"affinity": required()}, "NodeAffinity", AFFINITY),
        ({"os": {"name": "linux"}, "nodeSelector": {"zone": "a"}}, "", ""),
        ({"affinity": required(term("In", "b"), term("Exists"))}, "", ""),
        ({"affinity": required({"matchFields": [NAME]})}, "", ""),
    ],
)
def test_node_checks_what_a_pod_requires(spec: Any, reason: str, message: str) -> None:
    world = World()
    node = world.join(labels={"zone": "a"}, gpus=1)
    world.run("a", **spec)
    status = world.status("a")
    if not reason:
        assert status["phase"] == "Running"
        return
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert status["message"] == f"Pod was rejected: {message}"
    assert [each["message"] for each in world.events(reason)] == [message]
    assert not any(each.pod for each in node.kubelet.inventory())


def test_rejection_for_devices_comes_first() -> None:
    """As in the kubelet, devices are allocated before the node is checked."""
    world = World()
    world.join(gpus=1)
    world.run("a", gpus=2, os={"name": "windows"})
    assert world.status("a")["reason"] == "UnexpectedAdmissionError"


def test_labels_that_a_user_changes_count() -> None:
    world = World()
    world.join()
    change = {"metadata": {"labels": {"zone": "b"}}}
    world.call("PATCH", "/api/v1/nodes/n", change, patch="merge")
    world.settle()
    world.run("a", nodeSelector={"zone": "b"})
    assert world.status("a")["phase"] == "Running"


@pytest.mark.parametrize(
    ("tolerations", "accepted"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "k", "operator": "Exists", "effect": "NoExecute"}], True),
        ([{"key": "k", "value": "v"}], True),
        ([{"key": "k", "value": "w"}], False),
        ([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], False),
        ([{"key": "other", "operator": "Exists"}], False),
    ],
)
def test_kubelet_reads_noexecute_taints(tolerations: Any, accepted: bool) -> None:
    pod = {"metadata": {}, "spec": {"tolerations": tolerations}}
    taint = {"key": "k", "value": "v", "effect": "NoExecute"}
    rejected = node_predicates(pod, "n", {}, [taint])
    assert (rejected is None) is accepted
    assert rejected is None or (rejected.reason, rejected.message) == ("TaintToleration", TAINTS)
    assert node_predicates(pod, "n", {}, [{**taint, "effect": "NoSchedule"}]) is None


def test_label_of_the_operating_system() -> None:
    pod = {"metadata": {"labels": {"kubernetes.io/os": "windows"}}, "spec": {}}
    rejected = node_predicates(pod, "n", {})
    assert rejected is not None
    assert rejected.reason == "PodOSSelectorNodeLabelDoesNotMatch"
    assert rejected.message == OS_LABEL
