"""Which pod has which PCI device and which network interface of the host.

A plugin names PCI devices by vendor and product id. When its answer comes in, each gets
an address of its own, written into the stored answer so that it stays over restarts. An
interface is named by itself; it can be in one pod's network namespace only.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.core.errors import AllocationError
from devicemanager.core.ids import PodUid
from devicemanager.core.printable import printable
from devicemanager.kubelet.manager.active_pods import PodStates

if TYPE_CHECKING:
    from devicemanager.core.runoptions import ContainerSettings, NetworkInterface

__all__ = ["HostDeviceAssignment", "InterfaceUnavailable"]

# The key of field 1000 (typed_devices), length-delimited: without it there is nothing to do.
_TYPED_DEVICES = b"\xc2\x3e"


class InterfaceUnavailable(AllocationError):
    """A network interface that an allocation names cannot be given to the pod."""


class HostDeviceAssignment:
    """Addresses and interfaces in the records of the pods. May be used from any thread."""

    def __init__(self, pods: PodStates, lock: threading.Lock, sysfs: Path) -> None:
        self._pods = pods
        self._lock = lock
        self._sysfs = sysfs

    def resolve(self, pod: PodUid, response: bytes) -> bytes:
        """The answer with an address for every PCI device in it.

        Raises PciUnavailable if the host has too few, InterfaceUnavailable for an interface
        that another pod has or that no runtime can move, WireError if it cannot be read.
        """
        if _TYPED_DEVICES not in response:
            return response
        from devicemanager.kubelet.host import pci
        from devicemanager.kubelet.wire.settings import settings_from_bytes, settings_to_bytes

        settings = settings_from_bytes(response)
        # Read before the lock is taken: sysfs may take its time. What is free is decided
        # under it, so two pods never get one device.
        host = pci.find(settings, self._sysfs) if settings.pci_devices else None
        with self._lock:
            for interface in settings.network_interfaces:
                self._check(pod, interface)
            if host is not None:
                settings = pci.assign(settings, host, self._pods.host_devices_in_use())
            self._add(pod, settings)
        return response if host is None else settings_to_bytes(settings)

    def restore(self, pod: PodUid, response: bytes) -> None:
        """Take over a stored answer of an earlier kubelet. Raises WireError."""
        if _TYPED_DEVICES in response:
            from devicemanager.kubelet.wire.settings import settings_from_bytes

            settings = settings_from_bytes(response)
            with self._lock:
                self._add(pod, settings)

    def _check(self, pod: PodUid, interface: NetworkInterface) -> None:
        name = printable(interface.host_name)
        if interface.net_ns:
            raise InterfaceUnavailable(
                f"network interface {name} is in {printable(interface.net_ns)}: unsupported, "
                "since a runtime moves only interfaces of the namespace it runs in"
            )
        # The containers of one pod share their namespace, so each of them may name it.
        holder = self._pods.holder_of(_key(interface))
        if holder not in (None, pod):
            raise InterfaceUnavailable(f"network interface {name} is in use by pod {holder}")

    def _add(self, pod: PodUid, settings: ContainerSettings) -> None:
        self._pods.assign_host_devices(pod, self._pods.get(pod).host_devices | _names(settings))


def _names(settings: ContainerSettings) -> frozenset[str]:
    addresses = (address for device in settings.pci_devices for address in device.addresses)
    return frozenset(addresses) | frozenset(map(_key, settings.network_interfaces))


def _key(interface: NetworkInterface) -> str:
    # Told apart from PCI addresses, whatever a plugin calls it.
    return f"interface {interface.host_name}"
