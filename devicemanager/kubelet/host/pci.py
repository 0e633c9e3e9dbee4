"""Find PCI devices of the host by vendor and product ID, through sysfs.

``find`` reads sysfs, and ``assign`` chooses devices without reading files, so that a caller can
hold a lock only for ``assign``. ``resolve`` does both.

A container's settings come from a plugin's Allocate response. They can request PCI devices, which
is an extension of the API by this project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from devicemanager.core.errors import AllocationError
from devicemanager.core.runoptions import ContainerSettings, PciDevice

__all__ = ["HostDevices", "PciUnavailable", "addresses", "assign", "find", "resolve"]


@attrs.frozen
class HostDevices:
    """Result of ``find``: the host's PCI devices with the vendor and product IDs that a container's
    settings request."""

    sysfs: Path
    addresses: Mapping[tuple[str, str], tuple[str, ...]]
    """Mapping from pairs of vendor ID and product ID to the sorted PCI addresses of the devices."""


class PciUnavailable(AllocationError):
    """Error for an allocation that needs more PCI devices than are free on the host."""


def addresses(vendor_id: str, product_id: str, sysfs: Path = Path("/sys")) -> tuple[str, ...]:
    """Return the addresses of all PCI devices with this vendor ID and product ID, sorted.

    An address is a text such as ``0000:3b:00.0``. ``sysfs`` is the mount point of sysfs. The IDs
    are four hexadecimal digits, with or without ``0x``. A device that vanishes during the read is
    omitted.
    """
    wanted = (_plain(vendor_id), _plain(product_id))
    devices = sysfs / "bus/pci/devices"
    entries = devices.iterdir() if devices.is_dir() else ()
    return tuple(sorted(device.name for device in entries if _ids(device) == wanted))


def _ids(device: Path) -> tuple[str, str] | None:
    try:
        return _plain((device / "vendor").read_text()), _plain((device / "device").read_text())
    # The device vanished during the read, for example by hot-unplug or a reload of its driver.
    except OSError:
        return None


def _plain(text: str) -> str:
    # sysfs prefixes IDs with 0x; plugins write them with or without it, in either case.
    return text.strip().lower().removeprefix("0x")


def resolve(
    settings: ContainerSettings, sysfs: Path = Path("/sys"), in_use: Collection[str] = ()
) -> ContainerSettings:
    """Return a container's settings, with a PCI address for every PCI device.

    The lowest free addresses are chosen. A device that already has addresses keeps them. ``in_use``
    are the addresses of devices in use by other pods. Raises ``PciUnavailable`` if too few devices
    are free.
    """
    return assign(settings, find(settings, sysfs), in_use)


def find(settings: ContainerSettings, sysfs: Path = Path("/sys")) -> HostDevices:
    """Read the host's PCI devices with the vendor and product IDs in a container's settings.

    Devices in the settings that already have addresses are skipped.
    """
    # Devices with addresses are skipped: a restored response already has them.
    pairs = {_pair(device) for device in settings.pci_devices if not device.addresses}
    return HostDevices(sysfs, {pair: addresses(*pair, sysfs) for pair in sorted(pairs)})


def assign(
    settings: ContainerSettings, host: HostDevices, in_use: Collection[str] = ()
) -> ContainerSettings:
    """Return a container's settings, with a PCI address from ``host`` for every PCI device.

    ``host`` is the result of ``find`` for the same settings. Addresses are chosen, and errors
    raised, as in ``resolve``. Does not read sysfs.
    """
    if not settings.pci_devices:
        return settings
    # Addresses in the settings themselves are in use, too.
    used = {*in_use, *(a for device in settings.pci_devices for a in device.addresses)}
    open_requests = Counter(
        _pair(device) for device in settings.pci_devices if not device.addresses
    )
    # All or nothing: ``_free`` raises before any address is assigned.
    free = {pair: _free(pair, count, host, used) for pair, count in open_requests.items()}
    return attrs.evolve(
        settings,
        pci_devices=tuple(
            device
            if device.addresses
            else attrs.evolve(device, addresses=(free[_pair(device)].pop(0),))
            for device in settings.pci_devices
        ),
    )


def _pair(device: PciDevice) -> tuple[str, str]:
    return _plain(device.vendor_id), _plain(device.product_id)


def _free(
    pair: tuple[str, str], wanted: int, host: HostDevices, used: Collection[str]
) -> list[str]:
    present = host.addresses[pair]
    free = [address for address in present if address not in used]
    if len(free) < wanted:
        raise PciUnavailable(
            f"too few PCI devices {':'.join(pair)}: {wanted} needed, but {len(free)} of "
            f"{len(present)} under {host.sysfs / 'bus/pci/devices'} are free"
        )
    return free
