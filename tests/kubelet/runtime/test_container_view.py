"""The OCI configuration of an admitted container."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devicemanager import MockKubelet
from devicemanager.core.runoptions import ContainerSettings, DeviceSpec
from devicemanager.driver.simulated import SimulatedDriver
from devicemanager.kubelet.pods.admission import ContainerOutcome
from devicemanager.kubelet.runtime.cdi import UnresolvedCdiDevices, load
from devicemanager.kubelet.runtime.oci import OciError
from devicemanager.kubelet.wire import settings as wire
from devicemanager.testing.fakes import FakePlugin
from tests.helpers import devices, pod
from tests.kubelet.dra import objects as dra_objects
from tests.node import GPU

CDI = {
    "cdiVersion": "0.6.0",
    "kind": "vendor.com/gpu",
    "devices": [{"name": "a", "containerEdits": {"env": ["FROM=cdi"]}}],
}


def admitted(kubelet: MockKubelet, settings: ContainerSettings) -> ContainerOutcome:
    plugin = FakePlugin(GPU, responses=(wire.settings_to_bytes(settings),))
    plugin.register(kubelet.manager.plugins, "gpu.sock")
    plugin.send_list(devices("a"))
    admission = kubelet.admit(pod("p", gpu=1))
    assert admission.admitted, admission.message
    return admission.containers["app"]


def test_settings_become_part_of_an_oci_configuration(mock_kubelet: MockKubelet) -> None:
    null = DeviceSpec(container_path="/dev/gpu0", host_path="/dev/null", permissions="rw")
    container = admitted(mock_kubelet, ContainerSettings(envs={"GPU": "a"}, devices=(null,)))
    config = container.oci().config
    assert config["process"]["env"] == ["GPU=a"]
    (rule,) = config["linux"]["resources"]["devices"]
    assert rule == {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rw"}


def test_cdi_devices_are_resolved(mock_kubelet: MockKubelet, tmp_path: Path) -> None:
    container = admitted(mock_kubelet, ContainerSettings(cdi_devices=("vendor.com/gpu=a",)))
    with pytest.raises(
        UnresolvedCdiDevices,
        match=r"^unresolvable CDI devices vendor\.com/gpu=a: searched /etc/cdi, /var/run/cdi",
    ):
        container.oci()
    (tmp_path / "gpu.json").write_text(json.dumps(CDI))
    assert container.oci(load([tmp_path])).config == {"process": {"env": ["FROM=cdi"]}}


def test_cdi_devices_of_resource_claims_are_resolved(mock_kubelet: MockKubelet) -> None:
    with SimulatedDriver(kubelet=mock_kubelet) as driver:
        driver.wait_registered()
        admission = mock_kubelet.admit(dra_objects.pod(), claims=dra_objects.claim("gpu", "gpu-0"))
        registry = load([mock_kubelet.root / "cdi"])
        config = admission.containers["main"].oci(registry).config
    assert config["process"]["env"] == ["DRA_DEVICE_GPU_0=gpu-0"]


def test_missing_host_device_is_named(mock_kubelet: MockKubelet) -> None:
    absent = DeviceSpec(container_path="/dev/gpu0", host_path="/dev/absent")
    container = admitted(mock_kubelet, ContainerSettings(devices=(absent,)))
    with pytest.raises(OciError, match=r"^device /dev/gpu0: /dev/absent on the host: No such file"):
        container.oci()
