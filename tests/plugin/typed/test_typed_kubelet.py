"""Typed devices from an author's plugin through a kubelet, its checkpoint and its restarts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import checkpoint
from devicemanager.core.runoptions import RunOptions
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.runtime.oci import render
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.wire.settings import settings_from_bytes
from devicemanager.plugin import ContainerSettings, Manager, Plugin, PluginSettings, StaticLister
from devicemanager.plugin.typed import FlatDevice, NetlinkDevice, PciDevice
from devicemanager.testing import pod_manifest

NIC = "vendor.com/nic"
LOW, HIGH = "0000:3b:00.0", "0000:af:00.0"


class Nics(Plugin):
    """A plugin whose devices are a path, an interface and a PCI device at once."""

    def __init__(self) -> None:
        self.allocations = 0

    def devices(self) -> list[str]:
        return ["nic0", "nic1", "nic2"]

    def allocate(self, device_ids: Sequence[str]) -> ContainerSettings:
        self.allocations += 1
        (name,) = device_ids
        return ContainerSettings(
            envs={"NIC": name},
            typed_devices=[
                FlatDevice(identifier_container="/dev/nic", identifier_host="/dev/null"),
                NetlinkDevice(f"eth-{name}", "net0"),
                PciDevice("8086", "1572"),
            ],
        )


@pytest.fixture
def root(directory: Path) -> Path:
    return directory


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for address in (LOW, HIGH):
        device = tmp_path / "bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x8086\n")
        (device / "device").write_text("0x1572\n")
    return Settings(sysfs=tmp_path)


@pytest.fixture
def plugin(root: Path) -> Iterator[Nics]:
    nics = Nics()
    lister = StaticLister("vendor.com", {"nic": nics})
    with Manager(lister, root / "device-plugins", PluginSettings(stop_grace=0.2, recheck=0.2)):
        yield nics


def pod(name: str) -> dict[str, Any]:
    return pod_manifest(name, {NIC: 1}, uid=name)


def fragment(options: RunOptions) -> Mapping[str, Any]:
    rendered = render(options)
    assert rendered.conflicts == ()
    return rendered.config


def check(config: Mapping[str, Any], name: str, address: str) -> None:
    assert config["process"]["env"] == [f"NIC={name}"]
    assert config["annotations"] == {"pci.devicemanager/8086.1572": address}
    assert config["linux"]["netDevices"] == {f"eth-{name}": {"name": "net0"}}
    (node,) = config["linux"]["devices"]
    assert (node["path"], node["major"], node["minor"]) == ("/dev/nic", 1, 3)


def recorded(kubelet: MockKubelet) -> dict[str, tuple[str, ...]]:
    """Return the PCI addresses by pod in the checkpoint file."""
    addresses = {}
    for entry in checkpoint.load(kubelet.checkpoint_path).entries or ():
        assert entry.alloc_resp is not None
        (device,) = settings_from_bytes(entry.alloc_resp).pci_devices
        addresses[entry.pod_uid] = device.addresses
    return addresses


def test_container_keeps_its_devices_after_every_restart(
    root: Path, settings: Settings, plugin: Nics
) -> None:
    with MockKubelet(root, settings) as kubelet:
        kubelet.wait_for_resource(NIC, 3)
        for name in ("a", "b"):
            kubelet.admit(pod(name)).raise_for_rejection()
        first = fragment(kubelet.start_container("b", "main"))
        check(first, "nic1", HIGH)
        assert recorded(kubelet) == {"a": (LOW,), "b": (HIGH,)}
        # The lowest free address of the host is another one now.
        kubelet.terminate("a")
        kubelet.restart()
        kubelet.wait_for_resource(NIC, 3)
        assert fragment(kubelet.restart_container("b", "main")) == first

    with MockKubelet(root, settings) as another:
        another.wait_for_resource(NIC, 3)
        admission = another.admit(pod("b"))
        assert fragment(admission.containers["main"].run_options) == first
        assert plugin.allocations == 2
        # Addresses that the checkpoint has are not allocated again.
        another.admit(pod("c")).raise_for_rejection()
        assert recorded(another) == {"b": (HIGH,), "c": (LOW,)}
        rejected = another.admit(pod("d"))
        assert not rejected.admitted
        assert "PCI devices 8086:1572: 1 needed, but 0 of 2" in rejected.message
        another.check()
