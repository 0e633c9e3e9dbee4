"""Values that the methods of a plugin author take and return.

A value that a container runtime would reject raises a ValueError that names the value. So the
error is raised in the author's code, not when a pod is admitted.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any, SupportsIndex, TypeGuard, TypeVar

import attrs

from devicemanager.core.api.cdi import split_name
from devicemanager.core.api.deviceplugin import HEALTHY, MAX_NUMA_NODES, UNHEALTHY
from devicemanager.core.api.names import is_qualified_name
from devicemanager.plugin.typed import (
    FilesystemDevice,
    FlatDevice,
    NetlinkDevice,
    PciDevice,
    TypedDevice,
)
from devicemanager.plugin.validators import (
    absolute_path,
    check_text,
    path_text,
    permission_letters,
    several,
)

__all__ = [
    "ContainerSettings",
    "Device",
    "DeviceSpec",
    "Mount",
]

# `1` and `0` are equal to True and False, so the type is checked first.
_HEALTH = {True: True, False: False, HEALTHY: True, UNHEALTHY: False}


def _nodes(numa: SupportsIndex | Iterable[SupportsIndex] | None) -> tuple[int, ...]:
    if numa is None:
        return ()
    if _is_index(numa):
        numa = (numa,)
    # A string is iterable: "01" would pass as nodes 0 and 1.
    if isinstance(numa, str) or not isinstance(numa, Iterable):
        raise _not_a_node(numa)
    # sysfs shows -1 for a device without NUMA affinity.
    return tuple(node for node in map(_node, numa) if node >= 0)


def _is_index(value: object) -> TypeGuard[SupportsIndex]:
    # Same result as isinstance with the protocol, but ten times as fast: lists can have many
    # devices.
    return hasattr(value, "__index__")


def _node(node: SupportsIndex) -> int:
    # A bool has `__index__`: True would pass as node 1.
    if isinstance(node, bool) or not _is_index(node):
        raise _not_a_node(node)
    number = operator.index(node)
    if not -1 <= number < MAX_NUMA_NODES:
        raise ValueError(f"invalid NUMA node {number}: use 0 to {MAX_NUMA_NODES - 1}")
    return number


def _not_a_node(value: object) -> ValueError:
    return ValueError(
        f"invalid numa {value!r}: expected a node number, a list of node numbers, or None"
    )


def _device_id(_instance: object, _attribute: object, device_id: str) -> None:
    check_text("device ID", device_id)
    if not device_id:
        raise ValueError("invalid device ID '': expected a non-empty string")


def _health(healthy: bool | str) -> bool:
    # Reject other strings: as a bool, every non-empty string would mean a healthy device.
    if not isinstance(healthy, bool | str) or healthy not in _HEALTH:
        raise ValueError(f"invalid health {healthy!r}: use a bool, {HEALTHY!r} or {UNHEALTHY!r}")
    return _HEALTH[healthy]


@attrs.frozen
class Device:
    """Device that a plugin advertises.

    ``id`` must be unique within the resource, unchanged after restarts, and at most 63 characters
    long. ``healthy`` is a bool, ``Healthy`` or ``Unhealthy``. ``numa`` is the device's NUMA
    affinity: a node number, a list of node numbers, or None. As in sysfs, -1 means unknown and is
    ignored.
    """

    id: str = attrs.field(validator=_device_id)
    healthy: bool = attrs.field(default=True, converter=_health)
    numa: tuple[int, ...] = attrs.field(default=(), converter=_nodes)


@attrs.frozen(kw_only=True)
class Mount:
    """Host path that is mounted into the container."""

    container_path: str = attrs.field(converter=path_text, validator=absolute_path)
    host_path: str = attrs.field(converter=path_text, validator=absolute_path)
    read_only: bool = False


@attrs.frozen(kw_only=True)
class DeviceSpec:
    """Device node of the host that the container gets, by default under the same path.

    ``permissions`` are some of ``r``, ``w`` and ``m``, as in the devices cgroup.
    """

    host_path: str = attrs.field(converter=path_text, validator=absolute_path)
    container_path: str = attrs.field(
        default=attrs.Factory(lambda self: self.host_path, takes_self=True),
        converter=path_text,
        validator=absolute_path,
    )
    permissions: str = attrs.field(default="rw", validator=permission_letters)


T = TypeVar("T")


def _all_of(
    what: str, kinds: type[T] | tuple[type[T], ...], values: Iterable[Any]
) -> tuple[T, ...]:
    entries = several(what, values)
    for entry in entries:
        if not isinstance(entry, kinds):
            allowed = kinds if isinstance(kinds, tuple) else (kinds,)
            names = " or ".join(kind.__name__ for kind in allowed)
            raise ValueError(f"invalid entry {entry!r} in {what}: expected {names}")
    return entries


def _device_specs(
    devices: Iterable[DeviceSpec | str | os.PathLike[str]],
) -> tuple[DeviceSpec, ...]:
    specs = (
        DeviceSpec(host_path=device) if isinstance(device, str | os.PathLike) else device
        for device in several("devices", devices)
    )
    return _all_of("devices", DeviceSpec, specs)


def _mounts(mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    return _all_of("mounts", Mount, mounts)


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return several("cdi_devices", names)


def _typed(devices: Iterable[TypedDevice | FlatDevice]) -> tuple[TypedDevice | FlatDevice, ...]:
    kinds = (FilesystemDevice, NetlinkDevice, PciDevice, FlatDevice)
    return _all_of("typed_devices", kinds, devices)


def _mapping(what: str, values: object) -> None:
    if not isinstance(values, Mapping):
        raise ValueError(f"invalid {what} {values!r}: expected a mapping of names to text")


def _environment(
    _instance: object, attribute: attrs.Attribute[Any], envs: Mapping[str, str]
) -> None:
    _mapping(attribute.name, envs)
    for name, value in envs.items():
        check_text("name of an environment variable", name)
        if not name or "=" in name or "\0" in name:
            raise ValueError(
                f"invalid name of an environment variable {name!r}: expected text without = and NUL"
            )
        check_text(f"environment variable {name}", value)
        if "\0" in value:
            raise ValueError(f"environment variable {name} must not contain a NUL: {value!r}")


def _annotations(
    _instance: object, attribute: attrs.Attribute[Any], annotations: Mapping[str, str]
) -> None:
    _mapping(attribute.name, annotations)
    for key, value in annotations.items():
        check_text("annotation key", key)
        # Annotation keys have the same rules as in the API server.
        if not is_qualified_name(key):
            raise ValueError(
                f"invalid annotation key {key!r}: expected a name such as vendor.com/key"
            )
        check_text(f"annotation {key}", value)


def _cdi_names(_instance: object, _attribute: object, names: tuple[str, ...]) -> None:
    for name in names:
        check_text("CDI name", name)
        if split_name(name) is None:
            raise ValueError(f"invalid CDI name {name!r}: expected vendor/class=name")


def _one_source_each(
    _instance: object,
    attribute: attrs.Attribute[Any],
    entries: Iterable[Mount | DeviceSpec],
) -> None:
    # A repeated entry is harmless, and common with several devices of one card.
    sources: dict[str, str] = {}
    for entry in entries:
        if sources.setdefault(entry.container_path, entry.host_path) != entry.host_path:
            raise ValueError(
                f"{attribute.name}: two host paths for container path {entry.container_path}"
            )


@attrs.frozen
class ContainerSettings:
    """Settings that a container needs to use its devices: variables, mounts, device nodes.

    A device node can be given as a path. ``cdi_devices`` are fully qualified CDI names,
    ``vendor/class=name``. ``typed_devices`` are values of :mod:`devicemanager.plugin.typed`: every
    kubelet mounts paths, but only some kubelets support the other types.
    """

    envs: Mapping[str, str] = attrs.field(factory=dict, validator=_environment)
    mounts: tuple[Mount, ...] = attrs.field(
        default=(), converter=_mounts, validator=_one_source_each
    )
    devices: tuple[DeviceSpec, ...] = attrs.field(
        default=(), converter=_device_specs, validator=_one_source_each
    )
    annotations: Mapping[str, str] = attrs.field(factory=dict, validator=_annotations)
    cdi_devices: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_cdi_names)
    typed_devices: tuple[TypedDevice | FlatDevice, ...] = attrs.field(default=(), converter=_typed)
