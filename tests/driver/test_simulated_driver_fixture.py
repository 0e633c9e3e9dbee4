"""The fixture ``simulated_driver``, with a mock kubelet."""

import pytest

from devicemanager.driver.simulated import DriverFaults
from devicemanager.kubelet.mock import WaitTimeout
from devicemanager.testing.drivers import SimulatedDriverFactory

CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "train"},
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "driver": "gpu.example.com",
                        "pool": "mock",
                        "device": "gpu-3",
                        "request": "gpu",
                    }
                ]
            }
        }
    },
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train", "uid": "u"},
    "spec": {
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "train"}],
        "containers": [{"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
    },
}


def test_pod_gets_a_device_of_the_driver(mock_kubelet, simulated_driver):
    driver = simulated_driver("gpu.example.com", 4)
    admission = mock_kubelet.admit(POD, claims=CLAIM)
    ((uid, devices),) = driver.prepared.items()
    assert devices == ("gpu-3",)
    [name] = admission.containers["main"].run_options.cdi_devices
    assert name == f"k8s.gpu.example.com/claim={uid}-gpu-3"
    assert driver.cdi_path(uid).exists()
    mock_kubelet.terminate("u")
    assert not driver.prepared and not driver.cdi_path(uid).exists()


def test_two_instances(mock_kubelet, simulated_driver):
    old = simulated_driver(uid="1")
    mock_kubelet.admit(POD, claims=CLAIM)
    new = simulated_driver(uid="2")
    old.stop()
    mock_kubelet.terminate("u")
    assert [call.rpc for call in new.calls] == ["NodeUnprepareResources"]


def test_driver_that_does_not_register(mock_kubelet, simulated_driver):
    with pytest.raises(WaitTimeout):
        simulated_driver(services=["v9.DRAPlugin"], timeout=0.2)
    driver = simulated_driver("other.example.com", services=["v9.DRAPlugin"], timeout=None)
    assert not driver.wait_registered(0)


def test_driver_ends_without_waiting_for_its_faults(mock_kubelet):
    with SimulatedDriverFactory(mock_kubelet) as simulated:
        driver = simulated(faults=DriverFaults(hang=True))
        socket = driver.sockets.service_socket
        assert socket.exists()
    assert driver.faults == DriverFaults()
    assert not socket.exists()
