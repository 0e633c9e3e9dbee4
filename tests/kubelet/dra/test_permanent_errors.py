"""Permanent errors of drivers: the field ``permanent_error`` of the proposal KEP-5322."""

from __future__ import annotations

import pytest

from devicemanager import DeviceManagerError, Settings
from tests.kubelet.dra.objects import claim, pod

GATE = {"DRAHandlePermanentDriverFailures": True}
TEXT = (
    "Failed to prepare dynamic resources: prepare dynamic resources: "
    "NodePrepareResources failed permanently for ResourceClaim gpu: no such mode"
)
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"


def failing_driver(node, **options):
    driver = node.driver(**options)
    driver.faults.permanent_error = "no such mode"
    return driver


def rpcs(driver):
    return [call.rpc for call in driver.calls]


def admit(node):
    return node.kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))


def test_pod_fails_and_its_claims_are_unprepared(nodes):
    node = nodes(feature_gates=GATE)
    driver = failing_driver(node)
    admission = admit(node)
    assert admission.admitted
    assert "failed permanently" in admission.containers["main"].error
    found = node.kubelet.pod("uid-train")
    assert (found.phase, found.reason) == ("Failed", "FailedPrepareDynamicResources")
    assert found.message == TEXT
    assert rpcs(driver) == [PREPARE, UNPREPARE]
    [failed] = node.kubelet.events.recent("prepare-failed")
    assert TEXT in failed.message


def test_failed_pod_is_not_tried_again(nodes):
    node = nodes(feature_gates=GATE)
    driver = failing_driver(node)
    admit(node)
    node.kubelet.resync("uid-train")
    node.clock.advance(3600)
    node.restart(driver)
    assert rpcs(driver) == [PREPARE, UNPREPARE]


def test_failed_unprepare_of_a_failed_pod_is_tried_again(nodes):
    node = nodes(feature_gates=GATE)
    failing_driver(node)
    node.kubelet.faults.set("fail-call", rpc=UNPREPARE, times=1)
    admit(node)
    assert node.kubelet.pod("uid-train").phase == "Pending"
    node.clock.advance(10)
    node.kubelet.wait_for_event("finished", pod="uid-train", after=0)
    assert node.kubelet.pod("uid-train").message == TEXT


def test_pod_also_fails_if_its_container_is_started_later(nodes):
    node = nodes(feature_gates=GATE)
    failing_driver(node)
    node.kubelet.admit(pod(), claims=claim("gpu", "gpu-0"), start=False)
    with pytest.raises(DeviceManagerError, match="failed permanently"):
        node.kubelet.start_container("uid-train", "main")
    assert node.kubelet.pod("uid-train").phase == "Failed"


@pytest.mark.parametrize(
    ("settings", "service"),
    [({}, "v1.DRAPlugin"), ({"feature_gates": GATE}, "v1beta1.DRAPlugin")],
    ids=["gate-off", "v1beta1"],
)
def test_other_kubelets_try_again(nodes, settings, service):
    node = nodes(**settings)
    driver = failing_driver(node, services=[service])
    admit(node)
    assert node.kubelet.pod("uid-train").phase == "Pending"
    driver.faults.permanent_error = ""
    node.kubelet.resync("uid-train")
    assert node.kubelet.pod("uid-train").running


def test_gate_does_not_exist_before_1_35():
    with pytest.raises(ValueError, match="unknown feature gate 'DRAHandlePermanentDriverFailures'"):
        Settings(kubelet_version="1.34", feature_gates=GATE)
