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
from devicemanager.manager.podstates import PodStates
from devicemanager.wire.settings import settings_from_bytes, settings_to_bytes

# The key of field 1000 (typed_devices), length-delimited: without it there is nothing to do.
_TYPED_DEVICES = b"\xc2\x3e"


class PciAssignment:
    """Addresses in the records of the pods. May be used from any thread."""

    def __init__(self, pods: PodStates, lock: threading.Lock, sysfs: Path) -> None:
        self._pods = pods
        self._lock = lock
        self._sysfs = sysfs

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
            resolved = pci.assign(settings, host, self._pods.pci_in_use())
            self._add(pod, _addresses(resolved.pci_devices))
        return settings_to_bytes(resolved)

    def restore(self, pod: PodUid, response: bytes) -> None:
        """Take over a stored answer of an earlier kubelet. Raises WireError."""
        if _TYPED_DEVICES in response:
            addresses = _addresses(settings_from_bytes(response).pci_devices)
            with self._lock:
                self._add(pod, addresses)

    def _add(self, pod: PodUid, addresses: frozenset[str]) -> None:
        self._pods.assign_pci(pod, self._pods.get(pod).pci_addresses | addresses)


def _addresses(devices: tuple[PciDevice, ...]) -> frozenset[str]:
    return frozenset(address for device in devices for address in device.addresses)
