"""Merge the plugins' responses for one container into its run options.

Allocate returns container settings per resource, but the container runtime needs one set of run
options per container. If two resources set different values for one key, the first value wins,
as in the kubelet. The dropped value is reported as a ``Conflict``; the kubelet only logs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Generic, TypeVar

import attrs

from devicemanager.core.ids import ResourceName


@attrs.frozen(kw_only=True)
class Mount:
    """A host directory or file that is mounted into the container."""

    container_path: str
    host_path: str
    read_only: bool = False


@attrs.frozen(kw_only=True)
class DeviceSpec:
    """A device node in the container.

    ``permissions`` is the plugin's text with the letters r (read), w (write) and m (mknod).
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
    """A PCI device, identified by vendor ID and product ID of four hexadecimal digits each.

    ``addresses``, such as ``0000:3b:00.0``, is empty until the IDs are looked up on a host.
    """

    vendor_id: str
    product_id: str
    addresses: tuple[str, ...] = ()


@attrs.frozen
class ContainerSettings:
    """Container settings of one resource, from a plugin's ContainerAllocateResponse.

    The items are in the plugin's order. ``filesystem_devices``, ``network_interfaces`` and
    ``pci_devices`` come from typed devices, an extension of the API by this project.
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
    """A setting of a container for which two different values were returned.

    ``kind`` is the kind of setting: ``env``, ``mount``, ``mount access``, ``device``,
    ``device permissions``, ``annotation`` or ``network interface``. ``kept_value`` is used, and
    ``dropped_value`` is not. ``kept_by`` and ``dropped_by`` name the sources of these two values: a
    resource, or another source such as a CDI device. Both values can have the same source.
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
    devices and CDI names in that order. Resources, environment variables and annotations are
    sorted by name; their order in the kubelet is random. ``devices`` also has the
    ``filesystem_devices`` of ``ContainerSettings``.
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
"""Texts that must be equal in two values with the same key. Each pair has the kind of conflict to
report if the texts differ, and the text."""


def _mount_facts(mount: Mount) -> _Facts:
    access = "read-only" if mount.read_only else "read-write"
    return ("mount", mount.host_path), ("mount access", access)


def _device_facts(device: DeviceSpec) -> _Facts:
    return ("device", device.host_path), ("device permissions", device.permissions)


class _FirstValues(Generic[_V]):
    """Store for the first value of each key, and for the resource that set the value."""

    def __init__(self, facts: Callable[[_V], _Facts], conflicts: list[Conflict]) -> None:
        self._facts = facts
        self._conflicts = conflicts
        self._values: dict[str, tuple[ResourceName, _V]] = {}

    def offer(self, resource: ResourceName, key: str, value: _V) -> None:
        """Store ``value`` if the key is new; otherwise add a conflict if the values differ."""
        first, kept = self._values.setdefault(key, (resource, value))
        for (kind, mine), (_, other) in zip(self._facts(kept), self._facts(value), strict=True):
            if mine != other:
                # Report only the first difference: if the host paths differ, the access modes
                # belong to different files.
                self._conflicts.append(Conflict(kind, key, first, mine, resource, other))
                return

    def values(self) -> tuple[_V, ...]:
        return tuple(value for _, value in self._values.values())

    def sorted(self) -> dict[str, _V]:
        return {key: self._values[key][1] for key in sorted(self._values)}


def merge(responses: Mapping[ResourceName, ContainerSettings]) -> RunOptions:
    """Merge the settings of a container's resources, in the order of resource names.

    Follows ``podDevices.deviceRunContainerOptions`` (v1.32): the first value of an
    environment variable, container path or annotation wins, and a CDI name is listed once.
    """
    # The kubelet compares only host paths. Here, different permissions or read-only flags are
    # also conflicts, because the container does not get the dropped value.
    # The kubelet iterates over a Go map, so its winner of a conflict is random. Here it is fixed.
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
        cdi_devices=tuple(
            dict.fromkeys(name for _, settings in ordered for name in settings.cdi_devices)
        ),
        network_interfaces=interfaces,
        pci_devices=_merge_pci(settings.pci_devices for _, settings in ordered),
        conflicts=tuple(conflicts),
    )


def _merge_interfaces(
    ordered: Iterable[tuple[ResourceName, ContainerSettings]], conflicts: list[Conflict]
) -> tuple[NetworkInterface, ...]:
    """Select network interfaces: one per name in the container, and each host interface once.

    All others are added to ``conflicts``.
    """
    # Two indexes are needed: two interfaces cannot have the same name in the container, and an
    # interface can be moved only once.
    kept: dict[str, tuple[ResourceName, NetworkInterface]] = {}
    moved: dict[tuple[str, str], tuple[ResourceName, NetworkInterface]] = {}
    for resource, settings in ordered:
        for interface in settings.network_interfaces:
            source = (interface.net_ns, interface.host_name)
            first = kept.get(interface.container_name) or moved.get(source)
            if first is None:
                kept[interface.container_name] = moved[source] = (resource, interface)
            # Two resources can return the same interface under the same name. This is allowed.
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
    """Combine the PCI devices of all resources; an address is listed only once."""
    devices: list[PciDevice] = []
    seen: set[str] = set()
    for device in (device for group in groups for device in group):
        unseen = tuple(a for a in device.addresses if a not in seen)
        seen.update(unseen)
        # A device without addresses cannot be compared, so it is always listed.
        if unseen or not device.addresses:
            devices.append(attrs.evolve(device, addresses=unseen))
    return tuple(sorted(devices, key=attrgetter("vendor_id", "product_id", "addresses")))
