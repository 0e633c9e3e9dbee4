"""The node's status: conditions, capacity and allocatable, and changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.node import NodeStatus
from devicemanager.core.nodestatus.amounts import digest, node_amounts, node_patch
from devicemanager.core.nodestatus.conditions import Pressure, node_conditions
from devicemanager.core.quantity import Quantity
from devicemanager.objects.status.node import (
    NodeSystemInfo,
    default_labels,
    node_object,
    node_status_object,
)

FIXED = {
    name: Quantity.parse(text)
    for name, text in {
        "cpu": "7500m",
        "memory": "32Gi",
        "pods": "110",
        "ephemeral-storage": "1Ti",
    }.items()
}
INFO = NodeSystemInfo("v1.32.0+devicemanager")


def status(now: float = 0.0, before: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    devices = NodeStatus({"vendor.com/gpu": 8, "vendor.com/gone": 0}, {"vendor.com/gpu": 7})
    amounts = node_amounts(FIXED, devices)
    conditions = node_conditions(amounts[0], **more)
    return node_status_object(
        "n", conditions, amounts, INFO, now=now, before=before, address="127.1.0.1", port=10250
    )


def test_conditions_of_a_ready_node() -> None:
    made = status()
    assert [(each["type"], each["status"], each["reason"]) for each in made["conditions"]] == [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    assert made["conditions"][-1]["message"] == "kubelet is posting ready status"
    assert made["capacity"] == {
        "cpu": "7500m",
        "ephemeral-storage": "1Ti",
        "memory": "32Gi",
        "pods": "110",
        "vendor.com/gone": "0",
        "vendor.com/gpu": "8",
    }
    assert made["allocatable"]["vendor.com/gpu"] == "7"
    assert made["addresses"] == [
        {"type": "InternalIP", "address": "127.1.0.1"},
        {"type": "Hostname", "address": "n"},
    ]
    assert len(made["nodeInfo"]) == 10
    assert made["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}


@pytest.mark.parametrize(
    ("capacity", "errors", "message"),
    [
        (["cpu", "memory", "pods", "ephemeral-storage"], ["a"], "a"),
        (["cpu", "memory", "pods", "ephemeral-storage"], ["a", "b"], "[a, b]"),
        (["cpu", "memory", "pods", "ephemeral-storage"], ["a", "a"], "a"),
        (["cpu"], [], "missing node capacity for resources: memory, pods, ephemeral-storage"),
    ],
)
def test_reasons_for_a_node_that_is_not_ready(
    capacity: list[str], errors: list[str], message: str
) -> None:
    ready = node_conditions(capacity, errors)[-1]
    assert (ready.type, ready.status, ready.reason) == ("Ready", False, "KubeletNotReady")
    assert ready.message == message


def test_conditions_of_a_node_under_pressure() -> None:
    short = node_conditions(FIXED, pressures=[Pressure.DISK])
    assert [each.status for each in short] == [False, True, False, True]
    assert short[1].message == "kubelet has disk pressure"


def test_reserved_amounts_count_as_capacity_only() -> None:
    devices = NodeStatus({}, {})
    capacity, allocatable = node_amounts(FIXED, devices, {"cpu": Quantity.parse("500m")})
    assert (capacity["cpu"], allocatable["cpu"]) == ("8", "7500m")


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.booleans())
def test_digest_ignores_heartbeats(first: float, second: float, ready: bool) -> None:
    errors = [] if ready else ["broken"]
    before = status(first, errors=errors)
    after = status(second, before, errors=errors)
    assert digest(before) == digest(after)
    flipped = status(second, before, errors=["broken"] if ready else [])
    assert digest(before) != digest(flipped)
    transitions = {each["type"]: each["lastTransitionTime"] for each in flipped["conditions"]}
    old = {each["type"]: each["lastTransitionTime"] for each in before["conditions"]}
    assert transitions["MemoryPressure"] == old["MemoryPressure"]


@pytest.mark.parametrize("field", ["capacity", "allocatable", "addresses", "nodeInfo"])
def test_digest_changes_with_everything_else(field: str) -> None:
    before = status()
    after = copy.deepcopy(before)
    after[field] = {"vendor.com/gpu": "9"}
    assert digest(before) != digest(after)


def test_patch_replaces_addresses() -> None:
    patch = node_patch(status())["status"]
    assert patch["addresses"][-1] == {"$patch": "replace"}
    assert len(patch["addresses"]) == 3


def test_node_object_for_registration() -> None:
    taint = {"key": "example.com/virtual", "value": "true", "effect": "NoSchedule"}
    made = node_object("n", status(), labels=default_labels("n", INFO), taints=[taint])
    assert made["metadata"]["labels"]["kubernetes.io/hostname"] == "n"
    assert made["metadata"]["annotations"] == {
        "volumes.kubernetes.io/controller-managed-attach-detach": "true"
    }
    assert made["spec"] == {"taints": [taint]}
    assert "providerID" not in made["spec"]
