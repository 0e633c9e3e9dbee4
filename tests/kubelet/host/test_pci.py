"""PCI IDs to addresses, in a sysfs of the test."""

from collections.abc import Callable
from pathlib import Path

import pytest

from devicemanager.core.runoptions import ContainerSettings, PciDevice
from devicemanager.kubelet.host.pci import PciUnavailable, addresses, resolve

Sysfs = Callable[..., Path]


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    def make(**devices: str) -> Path:
        """Name (``a01`` is 0000:01:00.0) to ``vendor:product``, or "" for a device that
        vanishes."""
        for name, ids in devices.items():
            device = tmp_path / "bus/pci/devices" / f"0000:{name[1:]}:00.0"
            device.mkdir(parents=True)
            vendor, _, product = ids.partition(":")
            (device / "vendor").write_text(f"0x{vendor}\n")
            if product:
                (device / "device").write_text(f"0x{product}\n")
        return tmp_path

    return make


def wanting(*devices: PciDevice) -> ContainerSettings:
    return ContainerSettings(envs={"A": "1"}, pci_devices=devices)


NIC = PciDevice("8086", "1572")


def test_addresses_match_both_ids_and_are_sorted(sysfs: Sysfs) -> None:
    root = sysfs(a3b="8086:1572", a02="8086:1572", a03="8086:1573", a04="10de:1572", a05="8086")
    assert addresses("8086", "1572", root) == ("0000:02:00.0", "0000:3b:00.0")
    assert addresses("0x8086", "0x1573", root) == ("0000:03:00.0",)
    assert addresses("ffff", "ffff", root) == ()


def test_every_request_gets_a_different_address(sysfs: Sysfs) -> None:
    root = sysfs(a01="8086:1572", a02="10de:20b0", a03="8086:1572", a04="8086:1572")
    gpu = PciDevice("10DE", "0x20B0")
    assert resolve(wanting(NIC, gpu, NIC), root) == wanting(
        PciDevice("8086", "1572", ("0000:01:00.0",)),
        PciDevice("10DE", "0x20B0", ("0000:02:00.0",)),
        PciDevice("8086", "1572", ("0000:03:00.0",)),
    )


def test_addresses_in_use_are_not_assigned_again(sysfs: Sysfs) -> None:
    root = sysfs(a01="8086:1572", a02="8086:1572", a03="8086:1572")
    given = PciDevice("8086", "1572", ("0000:01:00.0",))
    resolved = resolve(wanting(NIC, given), root, in_use={"0000:02:00.0"})
    assert resolved.pci_devices == (PciDevice("8086", "1572", ("0000:03:00.0",)), given)


def test_missing_device_error_names_device_and_directory(sysfs: Sysfs) -> None:
    root = sysfs()
    with pytest.raises(PciUnavailable) as error:
        resolve(wanting(NIC), root)
    assert str(error.value) == (
        f"too few PCI devices 8086:1572: 1 needed, but 0 of 0 under {root}/bus/pci/devices are free"
    )


def test_too_few_devices_error_has_the_numbers(sysfs: Sysfs) -> None:
    root = sysfs(a01="8086:1572", a02="8086:1572")
    with pytest.raises(
        PciUnavailable, match=r"^too few PCI devices 8086:1572: 2 needed, but 1 of 2 under"
    ):
        resolve(wanting(NIC, NIC), root, in_use={"0000:01:00.0"})


def test_settings_without_pci_devices_read_no_sysfs() -> None:
    settings = ContainerSettings(envs={"A": "1"})
    assert resolve(settings, Path("/nonexistent")) is settings
