"""Merge the plugins' responses of one container into its run options.

Allocate returns container settings per resource; the container runtime needs one set of run
options per container. If two resources set different values for one key, the first value wins,
as in the kubelet. The other value is reported as a ``Conflict``, where the kubelet only logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Generic, TypeVar

import attrs

from devicemanager.core.ids import ResourceName


@attrs.frozen(kw_only=True)
class Mount:
    """A host directory or file mounted into the container."""

    container_path: str
    host_path: str
    read_only: bool = False


@attrs.frozen(kw_only=True)
class DeviceSpec:
    """A device node in the container.

    ``permissions`` is the plugin's text, made of the letters r (read), w (write), m (mknod).
    """

    container_path: str
    host_path: str
    permissions: str = "rw"


@attrs.frozen
class NetworkInterface:
    """A network interface that is moved into the container's network namespace.

    ``net_ns`` is the path of its present namespace; empty for the host's namespace.
    """

    host_name: str
    container_name: str
    net_ns: str = ""


@attrs.frozen
class PciDevice:
    """A PCI device, identified by vendor and product ID of four hexadecimal digits each.

    ``addresses`` (``0000:3b:00.0``) are empty until the IDs are resolved on a host.
    """

    vendor_id: str
    product_id: str
    addresses: tuple[str, ...] = ()


@attrs.frozen
class ContainerSettings:
    """One ContainerAllocateResponse, in the plugin's order.

    ``filesystem_devices``, ``network_interfaces`` and ``pci_devices`` come from typed
    devices, which a plugin can send in addition to the other fields.
    """

    envs: Mapping[str, str] = attrs.field(factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    annotations: Mapping[str, str] = attrs.field(factory=dict)
    cdi_devices: tuple[str, ...] = ()
    network_interfaces: tuple[NetworkInterface, ...] = ()
    pci_devices: tuple[PciDevice, ...] = ()
    filesystem_devices: tuple[DeviceSpec, ...] = ()


@attrs.frozen
class Conflict:
    """One key with two different values, from two sources or from the same one.

    ``kind`` is the setting: ``env``, ``mount``, ``mount access``, ``device``,
    ``device permissions``, ``annotation`` or ``network interface``. ``kept_by`` and
    ``dropped_by`` are resource names, or other sources such as a CDI device. The value of
    ``kept_by`` is used.
    """

    kind: str
    key: str
    kept_by: str
    kept_value: str
    dropped_by: str
    dropped_value: str

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.key}: {self.kept_value!r} from {self.kept_by} is used, "
            f"{self.dropped_value!r} from {self.dropped_by} is dropped"
        )


@attrs.frozen
class RunOptions:
    """Merged settings of all resources of a container (``DeviceRunContainerOptions``, v1.32).

    The settings of one resource keep the plugin's order, because a runtime applies mounts,
    devices and CDI names in that order. Resources are sorted by name, where the kubelet's order
    is random, and so are environment variables and annotations. Typed filesystem devices are
    part of ``devices``.
    """

    envs: Mapping[str, str] = attrs.field(factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    annotations: Mapping[str, str] = attrs.field(factory=dict)
    cdi_devices: tuple[str, ...] = ()
    network_interfaces: tuple[NetworkInterface, ...] = ()
    pci_devices: tuple[PciDevice, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


_V = TypeVar("_V")
_Facts = tuple[tuple[str, str], ...]
"""Parts of a value that must agree for one key, as pairs of conflict kind and text."""


def _mount_facts(mount: Mount) -> _Facts:
    access = "read-only" if mount.read_only else "read-write"
    return ("mount", mount.host_path), ("mount access", access)


def _device_facts(device: DeviceSpec) -> _Facts:
    return ("device", device.host_path), ("device permissions", device.permissions)


class _FirstValues(Generic[_V]):
    """The first value of each key, with its resource."""

    def __init__(self, facts: Callable[[_V], _Facts], conflicts: list[Conflict]) -> None:
        self._facts = facts
        self._conflicts = conflicts
        self._values: dict[str, tuple[ResourceName, _V]] = {}

    def offer(self, resource: ResourceName, key: str, value: _V) -> None:
        """Store ``value`` if the key is new; otherwise report the first difference."""
        first, kept = self._values.setdefault(key, (resource, value))
        for (kind, mine), (_, other) in zip(self._facts(kept), self._facts(value), strict=True):
            if mine != other:
                self._conflicts.append(Conflict(kind, key, first, mine, resource, other))
                return

    def values(self) -> tuple[_V, ...]:
        return tuple(value for _, value in self._values.values())

    def sorted(self) -> dict[str, _V]:
        return {key: self._values[key][1] for key in sorted(self._values)}


def merge(responses: Mapping[ResourceName, ContainerSettings]) -> RunOptions:
    """Merge the settings of a container's resources, in sorted order of the resources.

    Follows ``podDevices.deviceRunContainerOptions`` (v1.32): the first value of an
    environment variable, container path or annotation wins, and a CDI name is listed once.
    """
    # The kubelet compares only host paths. Here different permissions or read-only flags are
    # conflicts, too, because the container lacks what was dropped.
    ordered = [(resource, responses[resource]) for resource in sorted(responses)]
    conflicts: list[Conflict] = []
    envs = _FirstValues[str](lambda value: (("env", value),), conflicts)
    mounts = _FirstValues(_mount_facts, conflicts)
    devices = _FirstValues(_device_facts, conflicts)
    annotations = _FirstValues[str](lambda value: (("annotation", value),), conflicts)
    for resource, settings in ordered:
        for name in sorted(settings.envs):
            envs.offer(resource, name, settings.envs[name])
        for mount in settings.mounts:
            mounts.offer(resource, mount.container_path, mount)
        for device in (*settings.devices, *settings.filesystem_devices):
            devices.offer(resource, device.container_path, device)
        for name in sorted(settings.annotations):
            annotations.offer(resource, name, settings.annotations[name])
    interfaces = _merge_interfaces(ordered, conflicts)
    return RunOptions(
        envs=envs.sorted(),
        mounts=mounts.values(),
        devices=devices.values(),
        annotations=annotations.sorted(),
        cdi_devices=_once(name for _, settings in ordered for name in settings.cdi_devices),
        network_interfaces=interfaces,
        pci_devices=_merge_pci(settings.pci_devices for _, settings in ordered),
        conflicts=tuple(conflicts),
    )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _merge_interfaces(
    ordered: Iterable[tuple[ResourceName, ContainerSettings]], conflicts: list[Conflict]
) -> tuple[NetworkInterface, ...]:
    """Select one interface per container name, and each interface under one name only."""
    # Both indexes are needed: two interfaces cannot have one name in the container, and one
    # interface can be moved only once.
    kept: dict[str, tuple[ResourceName, NetworkInterface]] = {}
    moved: dict[tuple[str, str], tuple[ResourceName, NetworkInterface]] = {}
    for resource, settings in ordered:
        for interface in settings.network_interfaces:
            source = (interface.net_ns, interface.host_name)
            first = kept.get(interface.container_name) or moved.get(source)
            if first is None:
                kept[interface.container_name] = moved[source] = (resource, interface)
            elif first[1] != interface:
                conflicts.append(_interface_conflict(*first, resource, interface))
    return tuple(interface for _, (_, interface) in sorted(kept.items()))


def _interface_conflict(
    first: ResourceName, kept: NetworkInterface, resource: ResourceName, dropped: NetworkInterface
) -> Conflict:
    same_target = kept.container_name == dropped.container_name
    key = dropped.container_name if same_target else dropped.host_name
    values = [f"{i.host_name} as {i.container_name}" for i in (kept, dropped)]
    if kept.net_ns != dropped.net_ns:
        values = [
            f"{text} from {i.net_ns or 'the host'}"
            for text, i in zip(values, (kept, dropped), strict=True)
        ]
    return Conflict("network interface", key, first, values[0], resource, values[1])


def _merge_pci(groups: Iterable[tuple[PciDevice, ...]]) -> tuple[PciDevice, ...]:
    """Join PCI devices; a resolved address is listed once."""
    devices: list[PciDevice] = []
    seen: set[str] = set()
    for device in (device for group in groups for device in group):
        unseen = tuple(a for a in device.addresses if a not in seen)
        seen.update(unseen)
        # Without addresses there is nothing to compare: each such request is listed.
        if unseen or not device.addresses:
            devices.append(attrs.evolve(device, addresses=unseen))
    return tuple(sorted(devices, key=attrgetter("vendor_id", "product_id", "addresses")))
