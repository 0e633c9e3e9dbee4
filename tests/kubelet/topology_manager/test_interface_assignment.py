"""Network interfaces that plugins name: each can be in one pod only."""

from __future__ import annotations

import pytest

from devicemanager import MockKubelet
from devicemanager.core.runoptions import ContainerSettings, NetworkInterface
from devicemanager.kubelet.pods.admission import Admission
from devicemanager.kubelet.wire import settings as wire
from devicemanager.testing.fakes import FakePlugin
from tests.helpers import container, devices, pod
from tests.node import GPU, NIC

ETH = NetworkInterface("eth42", "net0")


def register(kubelet: MockKubelet, *interfaces: NetworkInterface, resource: str = NIC) -> None:
    """Register a plugin of five devices whose responses name these interfaces."""
    settings = ContainerSettings(network_interfaces=interfaces)
    plugin = FakePlugin(resource, responses=(wire.settings_to_bytes(settings),))
    plugin.register(kubelet.manager.plugins, f"{resource[-3:]}.sock")
    plugin.send_list(devices(*"abcde"))


def rejection(admission: Admission) -> str:
    assert not admission.admitted
    assert admission.reason == "UnexpectedAdmissionError"
    return admission.message


def test_interface_belongs_to_one_pod_at_a_time(mock_kubelet: MockKubelet) -> None:
    register(mock_kubelet, ETH)
    register(mock_kubelet, NetworkInterface("eth42", "other"), resource=GPU)
    assert mock_kubelet.admit(pod("p", nic=1)).admitted
    for name, wanted in (("q", {"nic": 1}), ("r", {"gpu": 1})):
        message = rejection(mock_kubelet.admit(pod(name, **wanted)))
        assert "network interface eth42 is in use by pod p" in message
        assert mock_kubelet.devices(name) == {}
    mock_kubelet.terminate("p")
    assert mock_kubelet.admit(pod("s", gpu=1)).admitted


def test_interface_survives_a_restart(mock_kubelet: MockKubelet) -> None:
    register(mock_kubelet, ETH)
    assert mock_kubelet.admit(pod("p", nic=1)).admitted
    mock_kubelet.restart()
    register(mock_kubelet, ETH)
    assert "is in use by pod p" in rejection(mock_kubelet.admit(pod("q", nic=1)))
    mock_kubelet.terminate("p")
    assert mock_kubelet.admit(pod("r", nic=1)).admitted


def test_containers_of_a_pod_can_share_an_interface(
    mock_kubelet: MockKubelet,
) -> None:
    register(mock_kubelet, ETH)
    assert mock_kubelet.admit(pod("p", container("x", nic=1), container("y", nic=1))).admitted


def test_rejected_pod_frees_its_interface(mock_kubelet: MockKubelet) -> None:
    register(mock_kubelet, ETH)
    register(mock_kubelet, NetworkInterface("eth0", "eth0", "/run/netns/x"), resource=GPU)
    rejected = mock_kubelet.admit(pod("p", container("x", nic=1), container("y", gpu=1)))
    assert "is in network namespace /run/netns/x" in rejection(rejected)
    assert mock_kubelet.admit(pod("q", nic=1)).admitted


def test_interface_of_another_namespace_is_rejected(
    mock_kubelet: MockKubelet,
) -> None:
    register(mock_kubelet, NetworkInterface("eth\x1b0", "eth0", "/run/netns/x"))
    assert rejection(mock_kubelet.admit(pod("p", nic=1))) == (
        "Allocate failed due to network interface eth\\x1b0 is in network namespace /run/netns/x: "
        "expected the host's namespace, because a runtime cannot move other interfaces, "
        "which is unexpected"
    )
    assert mock_kubelet.devices("p") == {}


@pytest.mark.parametrize("name", ["0000:3b:00.0", "", "a b"])
def test_invalid_interface_name_does_not_affect_other_pods(
    mock_kubelet: MockKubelet, name: str
) -> None:
    register(mock_kubelet, NetworkInterface(name, "net0"))
    assert mock_kubelet.admit(pod("p", nic=1)).admitted
    register(mock_kubelet, ETH, resource=GPU)
    assert mock_kubelet.admit(pod("q", gpu=1)).admitted
