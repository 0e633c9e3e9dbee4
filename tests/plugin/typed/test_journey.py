"""Typed devices from a plugin's response through the checkpoint to an OCI fragment."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import checkpoint
from devicemanager.core.ids import ResourceName
from devicemanager.core.runoptions import DeviceSpec, NetworkInterface, PciDevice, merge
from devicemanager.kubelet.host import pci
from devicemanager.kubelet.runtime.oci import render
from devicemanager.kubelet.wire.settings import settings_from_bytes, settings_to_bytes
from devicemanager.plugin import typed
from protos import deviceplugin_v1beta1 as dp

NIC = ResourceName("vendor.com/nic")


@pytest.fixture
def response_bytes() -> bytes:
    """A plugin's AllocateResponse for one container, serialized."""
    response = dp.ContainerAllocateResponse(envs={"NIC": "zero"})
    typed.add_typed_devices(
        response,
        [
            typed.FlatDevice(
                identifier_container="/dev/nic0",
                identifier_host="/dev/null",
                api_type=typed.ApiType.PATH,
                permissions="rw",
            ),
            typed.FlatDevice(
                identifier_container="net0", identifier_host="eth42", api_type=typed.ApiType.NETLINK
            ),
            typed.PciDevice("8086", "1572"),
        ],
    )
    return dp.AllocateResponse(container_responses=[response]).SerializeToString()


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    device = tmp_path / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x8086\n")
    (device / "device").write_text("0x1572\n")
    return tmp_path


def recorded(response_bytes: bytes) -> bytes:
    """Return what the kubelet stores: the first container response, serialized."""
    return dp.AllocateResponse.FromString(response_bytes).container_responses[0].SerializeToString()


def after_restart(alloc_resp: bytes) -> bytes:
    """Return the same bytes after they were in the checkpoint file."""
    entry = checkpoint.PodDevicesEntry("uid", "main", NIC, {-1: ("nic0",)}, alloc_resp)
    text = checkpoint.dumps(checkpoint.Checkpoint((entry,), {NIC: ("nic0",)}))
    (stored,) = checkpoint.loads(text).entries or ()
    assert stored.alloc_resp is not None
    return stored.alloc_resp


def test_all_types_reach_the_fragment_after_a_restart(response_bytes: bytes, sysfs: Path) -> None:
    settings = pci.resolve(settings_from_bytes(after_restart(recorded(response_bytes))), sysfs)
    options = merge({NIC: settings})
    assert options.devices == (
        DeviceSpec(container_path="/dev/nic0", host_path="/dev/null", permissions="rw"),
    )
    assert options.network_interfaces == (NetworkInterface("eth42", "net0"),)
    assert options.pci_devices == (PciDevice("8086", "1572", ("0000:3b:00.0",)),)
    assert options.conflicts == ()
    config = render(options).config
    assert config["process"] == {"env": ["NIC=zero"]}
    assert config["annotations"] == {"pci.devicemanager/8086.1572": "0000:3b:00.0"}
    assert config["linux"]["netDevices"] == {"eth42": {"name": "net0"}}
    (device,) = config["linux"]["devices"]
    assert (device["path"], device["major"], device["minor"]) == ("/dev/nic0", 1, 3)


def test_decoding_and_encoding_changes_nothing(response_bytes: bytes) -> None:
    settings = settings_from_bytes(recorded(response_bytes))
    assert settings_from_bytes(after_restart(settings_to_bytes(settings))) == settings


def test_missing_pci_device_is_an_error_at_allocation(
    response_bytes: bytes, tmp_path: Path
) -> None:
    with pytest.raises(
        pci.PciUnavailable, match=r"^too few PCI devices 8086:1572: 1 needed, but 0 of 0"
    ):
        pci.resolve(settings_from_bytes(recorded(response_bytes)), tmp_path)


def plain_kubelet_messages() -> Any:
    """Return the class AllocateResponse of a kubelet without typed devices."""
    file = descriptor_pb2.FileDescriptorProto()
    dp.DESCRIPTOR.CopyToProto(file)
    (response,) = (m for m in file.message_type if m.name == "ContainerAllocateResponse")
    (extra,) = (field for field in response.field if field.number == 1000)
    response.field.remove(extra)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("v1beta1.AllocateResponse"))


def test_kubelet_without_typed_devices_mounts_the_path(response_bytes: bytes) -> None:
    (response,) = plain_kubelet_messages().FromString(response_bytes).container_responses
    assert {field.name for field, _ in response.ListFields()} == {"envs", "devices"}
    (device,) = response.devices
    assert (device.container_path, device.host_path, device.permissions) == (
        "/dev/nic0",
        "/dev/null",
        "rw",
    )
