"""Extended resources by DRA, without an API server: from a device plugin to a driver and back."""

from __future__ import annotations

import pytest

from devicemanager.claims.errors import DoesNotFit
from devicemanager.testing import device_class, pod_manifest, resource_slice

GPU = "vendor.com/gpu"


@pytest.fixture
def driver(mock_kubelet, simulated_driver):
    """A driver with four devices, whose class has the name of the plugin's resource."""
    found = simulated_driver(devices=4)
    slices = resource_slice([f"gpu-{number}" for number in range(4)])
    mock_kubelet.resource_claims.load([slices, device_class(extended_resource=GPU)])
    return found


def admitted(kubelet, name, count=1):
    pod = pod_manifest(name, {GPU: count}, uid=name)
    pod["spec"]["restartPolicy"] = "Always"
    kubelet.admit(pod).raise_for_rejection()
    return kubelet.pod(name).containers[0]


def test_pod_gets_a_claim_if_no_plugin_serves_the_resource(mock_kubelet, driver):
    container = admitted(mock_kubelet, "train", 2)
    assert (container.devices, len(container.cdi_devices)) == ({}, 2)
    (claim,) = mock_kubelet.dra_status().claims
    assert claim.name.startswith("train-extended-resources-")
    assert [device.device for device in claim.devices] == ["gpu-0", "gpu-1"]
    assert claim.pods == ("train",)
    with pytest.raises(DoesNotFit, match=r"container-0-request-0: devices wanted: 3, usable: 2"):
        admitted(mock_kubelet, "greedy", 3)
    mock_kubelet.terminate("train")
    assert mock_kubelet.dra_status().claims == ()


def test_migration_from_plugin_to_driver(mock_kubelet, driver, simulated_plugin):
    plugin = simulated_plugin(GPU, 1)
    by_plugin = admitted(mock_kubelet, "old")
    assert (by_plugin.devices[GPU], by_plugin.cdi_devices) == (("gpu-mock-0",), ())
    assert driver.calls == ()
    # The plugin leaves: its devices are no longer allocatable, and DRA serves new pods.
    plugin.stop()
    mock_kubelet.wait_for_resource(GPU, 0)
    assert len(admitted(mock_kubelet, "new").cdi_devices) == 1
    assert mock_kubelet.pod("old").running == mock_kubelet.pod("new").running == {"main"}
    # The plugin is back: it serves new pods, and never those that have a claim.
    simulated_plugin(GPU, 1)
    mock_kubelet.wait_for_resource(GPU, 1)
    mock_kubelet.restart_container("new", "main")
    mock_kubelet.terminate("old")
    assert admitted(mock_kubelet, "third").devices == {GPU: ("gpu-mock-0",)}
    assert len(mock_kubelet.calls(rpc="Allocate")) == 2  # those for "old" and "third"


def test_init_container_shares_the_devices_of_the_app_container(mock_kubelet, driver):
    pod = pod_manifest("train", {GPU: 2}, init=[{GPU: 1}], uid="train")
    mock_kubelet.admit(pod)
    (claim,) = mock_kubelet.dra_status().claims
    assert len(claim.devices) == 2
    assert len(mock_kubelet.pod("train").init_containers[0].cdi_devices) == 2
