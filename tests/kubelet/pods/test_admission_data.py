"""The result of an admission as plain data, as docs/json.md describes it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from devicemanager.core.errors import RequestError
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.ledger import AllocatedDevices
from devicemanager.core.runoptions import ContainerSettings, DeviceSpec, RunOptions
from devicemanager.kubelet.pods.admission import Admission, ContainerOutcome
from devicemanager.kubelet.pods.data import (
    container_data,
    explanation_data,
    explanation_lines,
    oci_data,
    settings_data,
    sorted_devices,
)
from devicemanager.kubelet.wire.settings import settings_to_bytes
from tests.helpers import devices, pod
from tests.node import GPU, Node

NIC = ResourceName("a.com/nic")
SETTINGS = ContainerSettings(envs={"A": "1"})


def held(response: bytes, *ids: str) -> AllocatedDevices:
    return AllocatedDevices({-1: tuple(map(DeviceId, ids))}, response)


def outcome(response: bytes = b"", **fields: Any) -> ContainerOutcome:
    holdings = {GPU: held(response, "g1", "g0"), NIC: held(b"", "n0")}
    return ContainerOutcome("main", holdings, **fields)


def test_started_container_has_these_fields() -> None:
    options = RunOptions(envs={"A": "1"})
    claims = {"net": ("p/n1", "p/n0"), "gpu": ("p/g0",)}
    given = outcome(affinity=(0, 1), options=options, claims=claims)
    data = container_data(given)
    assert data == {
        "devices": {"a.com/nic": ["n0"], "vendor.com/gpu": ["g0", "g1"]},
        "claims": {"gpu": ["p/g0"], "net": ["p/n1", "p/n0"]},
        "numa_nodes": [0, 1],
        "settings": attrs.asdict(options),
        "settings_error": None,
        "oci": given.oci().config,
        "oci_error": None,
        "start_error": None,
    }
    assert data["oci"]["process"]["env"] == ["A=1"]
    assert [*data["devices"]] == ["a.com/nic", "vendor.com/gpu"] == [*sorted_devices(given)]
    assert [*data["claims"]] == ["gpu", "net"]


def test_container_that_cannot_be_started_has_the_errors() -> None:
    data = container_data(outcome(b"\xff", error="no image"))
    assert data["settings"] is data["oci"] is data["numa_nodes"] is None
    assert data["start_error"] == "no image"
    for name in ("settings_error", "oci_error"):
        assert data[name].startswith("invalid ContainerAllocateResponse of 1 byte "), name


def test_device_that_the_host_lacks_is_an_error_of_oci_only() -> None:
    lacks = ContainerSettings(
        devices=(DeviceSpec(container_path="/dev/x", host_path="/nowhere/x", permissions="rw"),)
    )
    given = outcome(settings_to_bytes(lacks))
    data = container_data(given)
    assert data["settings"] == settings_data(given.run_options)
    assert data["settings_error"] is None
    with pytest.raises(RequestError) as caught:
        given.oci()
    assert oci_data(given) == {"oci": None, "oci_error": str(caught.value)}


def test_explanation_has_policy_steps_holders_and_text() -> None:
    node = Node()
    node.plugin(devices("a", "b"))
    node.admit(pod("p", gpu=1))
    admission = node.admit(pod("q", gpu=2))
    data = explanation_data(admission)
    assert data is not None
    assert [*data] == ["policy", "steps", "holders", "text"]
    assert data["policy"]["name"] == "none"
    assert data["holders"] == [
        {
            "pod": "default/p",
            "uid": "p",
            "container": "app",
            "resource": GPU,
            "device_ids": ["a"],
        }
    ]
    assert data["text"] == explanation_lines(admission)
    assert data["text"][0] == "policy none, scope container"
    assert len(data["steps"]) == 1 and len(data["text"]) > 1
    assert all(line and "\n" not in line for line in data["text"])
    assert "default/p" in data["text"][-1]


def test_pod_that_was_rejected_before_has_no_explanation() -> None:
    admission = Admission(pod("p"), False, "Reason", "text")
    assert explanation_data(admission) is None and explanation_lines(admission) == []
