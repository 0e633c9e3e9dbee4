"""Which container has which PCI device of the host.

A plugin names PCI devices by vendor and product id. When its answer comes in, each gets
an address of its own, written into the stored answer so that it stays over restarts.
"""

from __future__ import annotations

import threading
from pathlib import Path

from devicemanager.core.ids import PodUid
from devicemanager.core.runoptions import PciDevice
from devicemanager.host import pci
from devicemanager.wire.settings import settings_from_bytes, settings_to_bytes

# The key of field 1000 (typed_devices), length-delimited: without it there is nothing to do.
_TYPED_DEVICES = b"\xc2\x3e"


class PciAssignment:
    """Addresses by pod, guarded by the state's lock. ``resolve`` and ``restore`` take it;
    the others want it held."""

    def __init__(self, lock: threading.Lock, sysfs: Path) -> None:
        self._lock = lock
        self._sysfs = sysfs
        self._held: dict[PodUid, frozenset[str]] = {}

    def resolve(self, pod: PodUid, response: bytes) -> bytes:
        """The answer with an address for every PCI device in it.

        Raises PciUnavailable if the host has too few, WireError if it cannot be read.
        """
        if _TYPED_DEVICES not in response:
            return response
        settings = settings_from_bytes(response)
        if not settings.pci_devices:
            return response
        # Read before the lock is taken: sysfs may take its time. What is free is decided
        # under it, so two pods never get one device.
        host = pci.find(settings, self._sysfs)
        with self._lock:
            in_use = frozenset[str]().union(*self._held.values())
            resolved = pci.assign(settings, host, in_use)
            self._hold(pod, _addresses(resolved.pci_devices))
        return settings_to_bytes(resolved)

    def restore(self, pod: PodUid, response: bytes) -> None:
        """Take over a stored answer of an earlier kubelet. Raises WireError."""
        if _TYPED_DEVICES in response:
            addresses = _addresses(settings_from_bytes(response).pci_devices)
            with self._lock:
                self._hold(pod, addresses)

    def held(self, pod: PodUid) -> frozenset[str]:
        """The addresses a pod has."""
        return self._held.get(pod, frozenset())

    def reset(self, pod: PodUid, addresses: frozenset[str] = frozenset()) -> None:
        """The pod has only these addresses from now on."""
        self._held.pop(pod, None)
        self._hold(pod, addresses)

    def _hold(self, pod: PodUid, addresses: frozenset[str]) -> None:
        if addresses:
            self._held[pod] = self._held.get(pod, frozenset()) | addresses


def _addresses(devices: tuple[PciDevice, ...]) -> frozenset[str]:
    return frozenset(address for device in devices for address in device.addresses)
