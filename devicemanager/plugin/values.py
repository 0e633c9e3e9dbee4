"""The plain values an author's methods take and return.

A value that a container runtime would refuse is refused here, with a ValueError that
names it, so that the mistake shows where it was made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from devicemanager.api.cdi import split_name
from devicemanager.plugin.typed import FlatDevice, TypedDevice
from devicemanager.plugin.validators import absolute_path, permission_letters

__all__ = [
    "ContainerSettings",
    "Device",
    "DeviceSpec",
    "Mount",
]

_ANNOTATION_NAME = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
_ANNOTATION_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def _nodes(numa: int | Iterable[int] | None) -> tuple[int, ...]:
    nodes = () if numa is None else (numa,) if isinstance(numa, int) else tuple(numa)
    if any(node < -1 for node in nodes):
        raise ValueError(f"NUMA node ids are 0 or more, not {min(nodes)}")
    # sysfs says -1 for a device that has no node.
    return tuple(node for node in nodes if node >= 0)


def _not_empty(_instance: object, _attribute: object, device_id: str) -> None:
    if not isinstance(device_id, str) or not device_id:
        raise ValueError(f"a device id is text and not empty: {device_id!r}")


@attrs.frozen
class Device:
    """One device of a resource.

    ``id`` is unique within the resource and the same after every restart; 63 characters
    at most. ``numa`` names the NUMA nodes it is near to: a number, several, or none. A
    node of -1 means unknown, as in sysfs, and is left out.
    """

    id: str = attrs.field(validator=_not_empty)
    healthy: bool = True
    numa: tuple[int, ...] = attrs.field(default=(), converter=_nodes)


@attrs.frozen(kw_only=True)
class Mount:
    """A host path mounted into the container."""

    container_path: str = attrs.field(validator=absolute_path)
    host_path: str = attrs.field(validator=absolute_path)
    read_only: bool = False


@attrs.frozen(kw_only=True)
class DeviceSpec:
    """A host device node made visible in the container, by default under the same path.

    ``permissions`` are those of the devices cgroup: some of ``r``, ``w`` and ``m``.
    """

    host_path: str = attrs.field(validator=absolute_path)
    container_path: str = attrs.field(
        default=attrs.Factory(lambda self: self.host_path, takes_self=True), validator=absolute_path
    )
    permissions: str = attrs.field(default="rw", validator=permission_letters)


def _device_specs(devices: Iterable[DeviceSpec | str]) -> tuple[DeviceSpec, ...]:
    return tuple(
        DeviceSpec(host_path=device) if isinstance(device, str) else device for device in devices
    )


def _mounts(mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    return tuple(mounts)


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


def _typed(
    devices: Iterable[TypedDevice | FlatDevice],
) -> tuple[TypedDevice | FlatDevice, ...]:
    return tuple(devices)


def _environment(_instance: object, _attribute: object, envs: Mapping[str, str]) -> None:
    for name, value in envs.items():
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"not a name of an environment variable: {name!r}")
        if not isinstance(value, str) or "\0" in value:
            raise ValueError(f"environment variable {name} must be text without NUL: {value!r}")


def _annotation_keys(_instance: object, _attribute: object, keys: Mapping[str, str]) -> None:
    for key in keys:
        prefix, slash, name = key.rpartition("/")
        if not _ANNOTATION_NAME.fullmatch(name) or (
            slash and not _ANNOTATION_PREFIX.fullmatch(prefix)
        ):
            raise ValueError(f"not a valid annotation key: {key!r}")


def _cdi_names(_instance: object, _attribute: object, names: tuple[str, ...]) -> None:
    for name in names:
        if not isinstance(name, str) or split_name(name) is None:
            raise ValueError(f"not a CDI name of the form vendor/class=name: {name!r}")


def _one_source_each(
    _instance: object,
    attribute: attrs.Attribute[Any],
    entries: Iterable[Mount | DeviceSpec],
) -> None:
    sources: dict[str, str] = {}
    for entry in entries:
        if sources.setdefault(entry.container_path, entry.host_path) != entry.host_path:
            raise ValueError(f"{attribute.name}: two host paths for {entry.container_path}")


@attrs.frozen
class ContainerSettings:
    """What a container needs in order to use the devices it was given.

    A device may be written as its path alone. ``cdi_devices`` are fully qualified names,
    ``vendor/class=name``. ``typed_devices`` are those of :mod:`devicemanager.plugin.typed`,
    which reach kubelets that know them; paths among them reach every kubelet.
    """

    envs: Mapping[str, str] = attrs.field(factory=dict, validator=_environment)
    mounts: tuple[Mount, ...] = attrs.field(
        default=(), converter=_mounts, validator=_one_source_each
    )
    devices: tuple[DeviceSpec, ...] = attrs.field(
        default=(), converter=_device_specs, validator=_one_source_each
    )
    annotations: Mapping[str, str] = attrs.field(factory=dict, validator=_annotation_keys)
    cdi_devices: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_cdi_names)
    typed_devices: tuple[TypedDevice | FlatDevice, ...] = attrs.field(default=(), converter=_typed)
