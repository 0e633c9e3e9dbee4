"""Typed devices: a path, a network interface or a PCI device.

The standard Allocate response can contain only paths. Typed devices are sent in an additional
field of the response, which a kubelet without support ignores. Paths are also added to the
standard list, so every kubelet mounts them. Interfaces and PCI devices need a kubelet with support.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import attrs

from devicemanager.core.api.names import interface_name_fault
from devicemanager.plugin.validators import (
    absolute_path,
    check_text,
    path_text,
    permission_letters,
)

if TYPE_CHECKING:
    from protos import deviceplugin_v1beta1 as dp

__all__ = [
    "ApiType",
    "FilesystemDevice",
    "FlatDevice",
    "NetlinkDevice",
    "PciDevice",
    "TypedDevice",
    "add_typed_devices",
]

_PCI_ID = re.compile(r"(?:0x)?([0-9a-f]{4})")


def _interface(_instance: object, attribute: attrs.Attribute[str], name: str) -> None:
    check_text(attribute.name, name)
    if fault := interface_name_fault(name):
        raise ValueError(f"invalid {attribute.name} {name!r}: {fault}")


def _namespace(instance: object, attribute: attrs.Attribute[str], path: str) -> None:
    if path != "":
        absolute_path(instance, attribute, path)


def _pci_id(text: str) -> str:
    match = _PCI_ID.fullmatch(text.lower()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"invalid PCI ID {text!r}: expected four hexadecimal digits such as 8086")
    return match[1]


@attrs.frozen(kw_only=True)
class FilesystemDevice:
    """Device that a container uses through a path. By default, the path in the container is the
    same as the path on the host."""

    host_path: str = attrs.field(converter=path_text, validator=absolute_path)
    container_path: str = attrs.field(
        default=attrs.Factory(lambda self: self.host_path, takes_self=True),
        converter=path_text,
        validator=absolute_path,
    )
    permissions: str = attrs.field(default="rw", validator=permission_letters)


@attrs.frozen
class NetlinkDevice:
    """Network interface that is moved into the container; by default, it keeps its name.

    ``net_ns`` is the path of the network namespace of the interface; empty is the host's namespace.
    """

    interface_name: str = attrs.field(validator=_interface)
    container_name: str = attrs.field(
        default=attrs.Factory(lambda self: self.interface_name, takes_self=True),
        validator=_interface,
    )
    net_ns: str = attrs.field(default="", validator=_namespace)


@attrs.frozen
class PciDevice:
    """PCI device given by vendor and product ID; the kubelet finds its address on the host.

    IDs are four hexadecimal digits, with or without ``0x``.
    """

    vendor_id: str = attrs.field(converter=_pci_id)
    product_id: str = attrs.field(converter=_pci_id)


class ApiType(enum.Enum):
    """How a container uses a ``FlatDevice``: through a path, or as a network interface.

    In the API proposal for typed devices, PATH has the number 1, and NETLINK has the number 2.
    """

    PATH = "PATH"
    NETLINK = "NETLINK"

    @classmethod
    def of(cls, value: ApiType | str | int) -> ApiType:
        """Return the API type with this name or number. PATH is 1, and NETLINK is 2.

        The name can be in upper or lower case. Raises ValueError for any other name or number.
        """
        numbers = dict(enumerate(cls, start=1))
        if isinstance(value, ApiType):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        if isinstance(value, int) and not isinstance(value, bool) and value in numbers:
            return numbers[value]
        names = ", ".join(f"{member.name} ({number})" for number, member in numbers.items())
        raise ValueError(f"unknown API type {value!r}: use one of {names}")


def _api_type(value: ApiType | str | int) -> ApiType:
    return ApiType.of(value)


@attrs.frozen(kw_only=True)
class FlatDevice:
    """Typed device given by its path or interface name in the container and on the host.

    ``api_type`` says whether these are paths or interface names. It can be an ``ApiType``, or its
    name or number. ``permissions`` are only for paths; the default is ``rw``. Raises
    ``ValueError`` for values that ``FilesystemDevice`` or ``NetlinkDevice`` reject.
    """

    identifier_container: str = attrs.field(converter=path_text)
    identifier_host: str = attrs.field(converter=path_text)
    api_type: ApiType = attrs.field(default=ApiType.PATH, converter=_api_type)
    permissions: str = ""

    def __attrs_post_init__(self) -> None:
        # Convert once, so that a mistake raises an error here, not when a pod is admitted.
        self.typed()

    def typed(self) -> FilesystemDevice | NetlinkDevice:
        """Convert this flat device to a ``FilesystemDevice`` or ``NetlinkDevice``."""
        if self.api_type is ApiType.PATH:
            permissions = self.permissions or "rw"
            return FilesystemDevice(
                host_path=self.identifier_host,
                container_path=self.identifier_container,
                permissions=permissions,
            )
        if self.permissions:
            raise ValueError(
                f"permissions are for PATH devices only: remove them from {self.identifier_host!r}"
            )
        return NetlinkDevice(self.identifier_host, self.identifier_container)


TypedDevice: TypeAlias = FilesystemDevice | NetlinkDevice | PciDevice
"""Typed device in an Allocate response: a path, a network interface or a PCI device."""


def add_typed_devices(
    response: dp.ContainerAllocateResponse, devices: Iterable[TypedDevice | FlatDevice]
) -> None:
    """Append ``devices`` to ``response.typed_devices``, and devices with a path also to
    ``response.devices``.

    Raises ``ValueError``, and appends nothing, if two devices in the result would have the same
    container path but different host paths.
    """
    from protos import deviceplugin_v1beta1 as dp

    typed = [device.typed() if isinstance(device, FlatDevice) else device for device in devices]
    paths = [device for device in typed if isinstance(device, FilesystemDevice)]
    # Check everything first, so that an error leaves the response unchanged.
    standard = {device.container_path: device.host_path for device in response.devices}
    missing = []
    for device in paths:
        if device.container_path not in standard:
            missing.append(dp.DeviceSpec(**attrs.asdict(device)))
        known = standard.setdefault(device.container_path, device.host_path)
        if known != device.host_path:
            raise ValueError(
                f"two host paths for container path {device.container_path}: {known} and"
                f" {device.host_path}"
            )
    response.devices.extend(missing)
    response.typed_devices.extend(map(_message, typed))


def _message(device: TypedDevice) -> dp.TypedDevice:
    # Imported here: programs that only use the value classes should not import protobuf.
    from protos import deviceplugin_v1beta1 as dp

    match device:
        case FilesystemDevice():
            return dp.TypedDevice(filesystem=dp.FilesystemDevice(**attrs.asdict(device)))
        case NetlinkDevice():
            return dp.TypedDevice(netlink=dp.NetlinkDevice(**attrs.asdict(device)))
        case PciDevice():
            return dp.TypedDevice(pci=dp.PciDevice(**attrs.asdict(device)))
