"""Render run options and CDI devices to a fragment of an OCI configuration."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from devicemanager.core.printable import printable
from devicemanager.core.runoptions import Conflict, NetworkInterface, PciDevice, RunOptions
from devicemanager.kubelet.runtime.cdi.registry import Registry
from devicemanager.kubelet.runtime.oci.checks import OciError
from devicemanager.kubelet.runtime.oci.container import PLUGINS, ContainerConfig
from devicemanager.kubelet.runtime.oci.hostnodes import HostNodes, read_nodes

PCI_ANNOTATION_PREFIX = "pci.devicemanager/"
"""Prefix of annotations with PCI addresses: ``pci.devicemanager/8086.1572: 0000:3b:00.0,...``. OCI
has no field for PCI devices, so runtimes of virtual machines read annotations."""


@attrs.frozen
class Fragment:
    """A part of an OCI configuration, in plain JSON values, and its conflicts.

    ``config`` has only fields with a value. ``conflicts`` starts with ``RunOptions.conflicts``,
    followed by the conflicts that ``render`` found, for example between a device plugin and a CDI
    device. In these conflicts, the later value has precedence, as in a container runtime.
    """

    config: Mapping[str, Any]
    conflicts: tuple[Conflict, ...] = ()


def render(
    options: RunOptions, cdi: Registry | None = None, nodes: HostNodes = read_nodes
) -> Fragment:
    """Render a container's run options to a part of an OCI configuration.

    ``cdi`` resolves CDI device names. ``nodes`` returns the device nodes at a host path. Raises
    ``CdiError`` for CDI names that ``cdi`` does not define. Raises ``OciError`` for a device that
    is not on the host, and for permissions other than r, w and m. Also raises ``OciError`` for an
    interface outside the runtime's network namespace, and for a PCI device without addresses.
    """
    container = ContainerConfig(nodes)
    # CDI devices come last and have precedence, as when a container runtime applies CDI.
    for name, value in options.envs.items():
        container.env(PLUGINS, name, value)
    for mount in options.mounts:
        container.bind(PLUGINS, mount)
    for device in options.devices:
        container.device(device)
    for interface in options.network_interfaces:
        container.interface(PLUGINS, _host_interface(interface), interface.container_name)
    for key, text in {**options.annotations, **_pci_annotations(options.pci_devices)}.items():
        container.annotate(PLUGINS, key, text)
    if options.cdi_devices:
        for name, edits in (cdi or Registry()).resolve(options.cdi_devices):
            container.edit(name, edits)
    config = container.config()
    return Fragment(config, (*options.conflicts, *container.conflicts))


def _host_interface(interface: NetworkInterface) -> str:
    # OCI supports only interfaces of the runtime's own network namespace.
    if interface.net_ns:
        raise OciError(
            f"network interface {interface.host_name} is in network namespace "
            f"{printable(interface.net_ns)}: expected the host's namespace, because a runtime "
            "cannot move other interfaces"
        )
    return interface.host_name


def _pci_annotations(devices: tuple[PciDevice, ...]) -> dict[str, str]:
    annotations: dict[str, list[str]] = {}
    for device in devices:
        if not device.addresses:
            raise OciError(
                f"PCI device {device.vendor_id}:{device.product_id} has no address: "
                "set PciDevice.addresses, or use the run options of an admitted pod"
            )
        key = f"{PCI_ANNOTATION_PREFIX}{device.vendor_id}.{device.product_id}"
        # All devices with the same vendor and product ID share one annotation.
        annotations.setdefault(key, []).extend(device.addresses)
    return {key: ",".join(addresses) for key, addresses in annotations.items()}


def apply(config: Mapping[str, Any], fragment: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of an OCI configuration, to which the settings in ``fragment`` are added.

    ``fragment`` is the field ``config`` of a ``Fragment``. If both configurations have the same
    environment variable, mount or device, the value of ``fragment`` is used.
    """
    # Deep copies, so that the result shares no list or table with the arguments.
    whole = copy.deepcopy(dict(config))
    part = copy.deepcopy(dict(fragment))
    _merge(whole, part, ())
    return whole


def _merge(whole: dict[str, Any], part: dict[str, Any], place: tuple[str, ...]) -> None:
    for key, value in part.items():
        here = (*place, key)
        if isinstance(value, dict):
            _merge(whole.setdefault(key, {}), value, here)
        elif isinstance(value, list):
            whole[key] = _join(whole.get(key) or [], value, _IDENTITY.get(here))
        else:
            whole[key] = value


def _join(old: list[Any], new: list[Any], identity: Callable[[Any], object] | None) -> list[Any]:
    if identity is None:
        return [*old, *new]
    replaced = {identity(entry) for entry in new}
    return [*_others(old, replaced, identity), *new]


def _others(
    entries: Iterable[Any], replaced: set[object], identity: Callable[[Any], object]
) -> Iterable[Any]:
    return (entry for entry in entries if identity(entry) not in replaced)


_IDENTITY: Mapping[tuple[str, ...], Callable[[Any], object]] = {
    ("process", "env"): lambda entry: entry.partition("=")[0],
    ("process", "user", "additionalGids"): lambda entry: entry,
    ("mounts",): lambda entry: entry["destination"],
    ("linux", "devices"): lambda entry: entry["path"],
}
"""Functions that return the key of a list entry. An entry replaces an entry with the same key. In
other lists, entries are only added."""
