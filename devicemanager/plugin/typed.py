"""Devices that say what they are: a path, a network interface, a PCI device.

The classic response can hand out paths only. Typed devices travel beside it in a field
of their own, which a kubelet that does not know it skips. A path stands in the classic
list too, so every kubelet mounts it; interfaces and PCI devices need one that knows.
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
        raise ValueError(f"{attribute.name} must be an interface name: {fault}: {name!r}")


def _namespace(instance: object, attribute: attrs.Attribute[str], path: str) -> None:
    if path != "":
        absolute_path(instance, attribute, path)


def _pci_id(text: str) -> str:
    match = _PCI_ID.fullmatch(text.lower()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"a PCI id is four hexadecimal digits, such as 8086 or 0x8086: {text!r}")
    return match[1]


@attrs.frozen(kw_only=True)
class FilesystemDevice:
    """A device reached through a path, by default the same one in the container."""

    host_path: str = attrs.field(converter=path_text, validator=absolute_path)
    container_path: str = attrs.field(
        default=attrs.Factory(lambda self: self.host_path, takes_self=True),
        converter=path_text,
        validator=absolute_path,
    )
    permissions: str = attrs.field(default="rw", validator=permission_letters)


@attrs.frozen
class NetlinkDevice:
    """A network interface that moves into the container, by default under its own name.

    ``net_ns`` is the path of the network namespace it is in before; empty is the host's.
    """

    interface_name: str = attrs.field(validator=_interface)
    container_name: str = attrs.field(
        default=attrs.Factory(lambda self: self.interface_name, takes_self=True),
        validator=_interface,
    )
    net_ns: str = attrs.field(default="", validator=_namespace)


@attrs.frozen
class PciDevice:
    """One PCI device with these ids; the kubelet finds its address on the host.

    Ids are four hexadecimal digits, as in sysfs with or without ``0x``.
    """

    vendor_id: str = attrs.field(converter=_pci_id)
    product_id: str = attrs.field(converter=_pci_id)


class ApiType(enum.Enum):
    """Through which interface of the kernel a flat device is reached."""

    PATH = "PATH"
    NETLINK = "NETLINK"

    @classmethod
    def of(cls, value: ApiType | str | int) -> ApiType:
        """From the value, its name in any case, or its number, PATH being 0 and NETLINK 1.
        Raises ValueError."""
        members = list(cls)
        if isinstance(value, ApiType):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(members):
            return members[value]
        names = ", ".join(f"{member.name} ({number})" for number, member in enumerate(members))
        raise ValueError(f"an API type is one of {names}, not {value!r}")


def _api_type(value: ApiType | str | int) -> ApiType:
    return ApiType.of(value)


@attrs.frozen(kw_only=True)
class FlatDevice:
    """The flat form: one identifier inside, one outside, and what kind they are of.

    ``api_type`` may also be its name in any case, or its number. Raises ``ValueError`` for
    what the form of its kind does not take.

    ``permissions`` fit a path only: ``rw`` if left empty. An interface has none.
    """

    identifier_container: str = attrs.field(converter=path_text)
    identifier_host: str = attrs.field(converter=path_text)
    api_type: ApiType = attrs.field(default=ApiType.PATH, converter=_api_type)
    permissions: str = ""

    def __attrs_post_init__(self) -> None:
        # A mistake shows where it is made, not when a pod comes.
        self.typed()

    def typed(self) -> FilesystemDevice | NetlinkDevice:
        """The same device in the form that travels."""
        if self.api_type is ApiType.PATH:
            permissions = self.permissions or "rw"
            return FilesystemDevice(
                host_path=self.identifier_host,
                container_path=self.identifier_container,
                permissions=permissions,
            )
        if self.permissions:
            raise ValueError(
                f"permissions fit PATH devices only; leave them out for {self.identifier_host!r}"
            )
        return NetlinkDevice(self.identifier_host, self.identifier_container)


TypedDevice: TypeAlias = FilesystemDevice | NetlinkDevice | PciDevice
"""A device in the form that travels."""


def add_typed_devices(
    response: dp.ContainerAllocateResponse, devices: Iterable[TypedDevice | FlatDevice]
) -> None:
    """Append devices of either form to a container's response, paths to both its lists.

    Raises ``ValueError``, before anything is appended, for a path that the classic list
    already takes from another host path.
    """
    from protos import deviceplugin_v1beta1 as dp

    typed = [device.typed() if isinstance(device, FlatDevice) else device for device in devices]
    paths = [device for device in typed if isinstance(device, FilesystemDevice)]
    classic = {device.container_path: device.host_path for device in response.devices}
    missing = []
    for device in paths:
        if device.container_path not in classic:
            missing.append(dp.DeviceSpec(**attrs.asdict(device)))
        taken = classic.setdefault(device.container_path, device.host_path)
        if taken != device.host_path:
            raise ValueError(
                f"two host paths for {device.container_path}: {taken} and {device.host_path}"
            )
    response.devices.extend(missing)
    response.typed_devices.extend(map(_message, typed))


def _message(device: TypedDevice) -> dp.TypedDevice:
    # Loaded when a message is made: values alone must not cost protobuf's import.
    from protos import deviceplugin_v1beta1 as dp

    match device:
        case FilesystemDevice():
            return dp.TypedDevice(filesystem=dp.FilesystemDevice(**attrs.asdict(device)))
        case NetlinkDevice():
            return dp.TypedDevice(netlink=dp.NetlinkDevice(**attrs.asdict(device)))
        case PciDevice():
            return dp.TypedDevice(pci=dp.PciDevice(**attrs.asdict(device)))
