"""Convert between ContainerAllocateResponse messages and ``ContainerSettings``."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from google.protobuf.message import DecodeError

from devicemanager.core.printable import counted
from devicemanager.core.runoptions import (
    ContainerSettings,
    DeviceSpec,
    Mount,
    NetworkInterface,
    PciDevice,
)
from devicemanager.kubelet.wire.errors import WireError
from protos import deviceplugin_v1beta1 as dp

__all__ = [
    "settings_from_bytes",
    "settings_from_message",
    "settings_to_bytes",
    "settings_to_message",
]


def settings_from_bytes(alloc_resp: bytes) -> ContainerSettings:
    """Decode a ContainerAllocateResponse that a plugin sent or a checkpoint stores.

    Raises ``WireError`` if the bytes are not a valid message. Also raises ``WireError`` for a typed
    device of a kind other than filesystem, netlink or pci: the container must not start without
    this device.
    """
    try:
        message = dp.ContainerAllocateResponse.FromString(alloc_resp)
    except DecodeError as error:
        size = counted(len(alloc_resp), "byte")
        raise WireError(
            f"invalid ContainerAllocateResponse of {size} ({error}): "
            "the plugin or the checkpoint entry is broken"
        ) from error
    return settings_from_message(message)


def is_response(alloc_resp: bytes) -> bool:
    """True if the bytes are a ContainerAllocateResponse."""
    try:
        dp.ContainerAllocateResponse.FromString(alloc_resp)
    except DecodeError:
        return False
    return True


def without_cdi_devices(alloc_resp: bytes) -> bytes:
    """Return an encoded ContainerAllocateResponse without the field ``cdi_devices``.

    Kubelet versions without this field drop it before they store the response.
    """
    message = dp.ContainerAllocateResponse.FromString(alloc_resp)
    if not message.cdi_devices:
        return alloc_resp
    message.ClearField("cdi_devices")
    # Deterministic, because the bytes are part of the checkpoint and of its checksum.
    return message.SerializeToString(deterministic=True)


def settings_from_message(message: dp.ContainerAllocateResponse) -> ContainerSettings:
    """Convert a ContainerAllocateResponse to ``ContainerSettings``; maps are sorted by key.

    Raises ``WireError`` for a typed device of a kind other than filesystem, netlink or pci.
    """
    filesystem: list[DeviceSpec] = []
    interfaces: list[NetworkInterface] = []
    pci: list[PciDevice] = []
    for index, typed in enumerate(message.typed_devices):
        match typed.WhichOneof("device"):
            case "filesystem":
                filesystem.append(_device_spec(typed.filesystem))
            case "netlink":
                interfaces.append(_interface(typed.netlink))
            case "pci":
                pci.append(_pci_device(typed.pci))
            case _:
                raise WireError(
                    f"typed device {index} of the Allocate response has an unknown kind: use one "
                    "of filesystem, netlink, pci"
                )
    return ContainerSettings(
        # Protobuf maps have no order. They are sorted, so that equal messages result in equal
        # settings.
        envs=dict(sorted(message.envs.items())),
        mounts=tuple(
            Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only)
            for m in message.mounts
        ),
        devices=tuple(map(_device_spec, message.devices)),
        annotations=dict(sorted(message.annotations.items())),
        cdi_devices=tuple(device.name for device in message.cdi_devices),
        network_interfaces=tuple(interfaces),
        pci_devices=tuple(pci),
        filesystem_devices=tuple(filesystem),
    )


def _device_spec(device: dp.DeviceSpec | dp.FilesystemDevice) -> DeviceSpec:
    return DeviceSpec(
        container_path=device.container_path,
        host_path=device.host_path,
        permissions=device.permissions,
    )


def _pci_device(pci: dp.PciDevice) -> PciDevice:
    return PciDevice(pci.vendor_id, pci.product_id, tuple(pci.addresses))


def _interface(netlink: dp.NetlinkDevice) -> NetworkInterface:
    name = netlink.interface_name
    # If the message has no name for the container, the interface keeps its name.
    return NetworkInterface(name, netlink.container_name or name, netlink.net_ns)


def settings_to_message(settings: ContainerSettings) -> dp.ContainerAllocateResponse:
    """Convert ``ContainerSettings`` to a ContainerAllocateResponse."""
    message = dp.ContainerAllocateResponse(
        envs=settings.envs,
        mounts=[
            dp.Mount(
                container_path=mount.container_path,
                host_path=mount.host_path,
                read_only=mount.read_only,
            )
            for mount in settings.mounts
        ],
        devices=[dp.DeviceSpec(**attrs.asdict(device)) for device in settings.devices],
        annotations=settings.annotations,
        cdi_devices=[dp.CDIDevice(name=name) for name in settings.cdi_devices],
    )
    message.typed_devices.extend(_typed_devices(settings))
    return message


def _typed_devices(settings: ContainerSettings) -> Iterator[dp.TypedDevice]:
    for device in settings.filesystem_devices:
        yield dp.TypedDevice(filesystem=dp.FilesystemDevice(**attrs.asdict(device)))
    for interface in settings.network_interfaces:
        netlink = dp.NetlinkDevice(
            net_ns=interface.net_ns,
            interface_name=interface.host_name,
            container_name=interface.container_name,
        )
        yield dp.TypedDevice(netlink=netlink)
    for pci in settings.pci_devices:
        ids = dp.PciDevice(**attrs.asdict(pci))
        yield dp.TypedDevice(pci=ids)


def settings_to_bytes(settings: ContainerSettings) -> bytes:
    """Encode ``ContainerSettings`` as a ContainerAllocateResponse.

    Equal settings have equal bytes.
    """
    # Deterministic, because the bytes are part of the checkpoint and of its checksum.
    return settings_to_message(settings).SerializeToString(deterministic=True)
