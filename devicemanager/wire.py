"""Between protobuf messages and the core's values.

Everything a plugin sends is untrusted: bytes that are no message, or that say something
we cannot give a container, become one typed error and never a crash elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress, count
from operator import ne
from typing import Any, TypeVar, cast

import attrs
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from devicemanager.core.devices import Device, Nodes
from devicemanager.core.errors import PluginError
from devicemanager.core.ids import DeviceId
from devicemanager.core.inventory import Columns
from devicemanager.core.runoptions import (
    ContainerSettings,
    DeviceSpec,
    Mount,
    NetworkInterface,
    PciDevice,
)
from protos import deviceplugin_v1beta1 as dp

__all__ = [
    "ListReader",
    "WireError",
    "device_columns",
    "devices_from_list",
    "settings_from_bytes",
    "settings_from_message",
    "settings_to_bytes",
    "settings_to_message",
]

T = TypeVar("T")


class WireError(PluginError):
    """A peer's bytes do not mean what the API says. The text is one line for the user."""


# --- container settings ---------------------------------------------------------------


def settings_from_bytes(alloc_resp: bytes) -> ContainerSettings:
    """Read a ContainerAllocateResponse, as a plugin sent it or a checkpoint kept it.

    Raises ``WireError`` for bytes that are no such message and for a typed device of a
    kind not known here: silently left out, the container would start without it.
    """
    try:
        message = dp.ContainerAllocateResponse.FromString(alloc_resp)
    except DecodeError as error:
        size = len(alloc_resp)
        raise WireError(
            f"{size} bytes are not a ContainerAllocateResponse ({error}): "
            "the plugin or the checkpoint entry is broken"
        ) from error
    return settings_from_message(message)


def settings_from_message(message: dp.ContainerAllocateResponse) -> ContainerSettings:
    """The message's values, in its order; maps sorted by key. Raises ``WireError``."""
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
                    f"typed device {index} of the allocation response is of no known kind "
                    "(filesystem, netlink, pci)"
                )
    return ContainerSettings(
        envs=dict(sorted(message.envs.items())),
        mounts=tuple(Mount(m.container_path, m.host_path, m.read_only) for m in message.mounts),
        devices=tuple(map(_device_spec, message.devices)),
        annotations=dict(sorted(message.annotations.items())),
        cdi_devices=tuple(device.name for device in message.cdi_devices),
        network_interfaces=tuple(interfaces),
        pci_devices=tuple(pci),
        filesystem_devices=tuple(filesystem),
    )


def _device_spec(device: dp.DeviceSpec | dp.FilesystemDevice) -> DeviceSpec:
    return DeviceSpec(device.container_path, device.host_path, device.permissions)


def _pci_device(pci: dp.PciDevice) -> PciDevice:
    return PciDevice(pci.vendor_id, pci.product_id, tuple(pci.addresses))


def _interface(netlink: dp.NetlinkDevice) -> NetworkInterface:
    name = netlink.interface_name
    return NetworkInterface(name, netlink.container_name or name, netlink.net_ns)


def settings_to_message(settings: ContainerSettings) -> dp.ContainerAllocateResponse:
    """The message that says the same."""
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
    """``settings_to_message``, serialized: equal settings give equal bytes."""
    return settings_to_message(settings).SerializeToString(deterministic=True)


# --- device lists ---------------------------------------------------------------------


def _raw_list_class() -> type[Message]:
    """ListAndWatchResponse with its devices left as bytes.

    Bytes and submessages look alike on the wire. Walking 10,000 devices as messages costs
    some 13 ms with topology; cutting their bytes costs 2 ms, because what follows the id
    (health and topology) takes few different values and is decoded once for each.
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="raw_list.proto", syntax="proto3")
    raw = file.message_type.add(name="RawList")
    raw.field.add(name="devices", number=1, type=field.TYPE_BYTES, label=field.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("RawList"))


_RawList = _raw_list_class()
_ID_TAG = 0x0A
_LONG = 0x80


def device_columns(message: bytes) -> Columns:
    """Read the bytes of a ListAndWatchResponse. Raises ``WireError`` if they are not one."""
    return ListReader().read(message)


class ListReader:
    """Reads the lists of one plugin, one after the other.

    Devices that a list tells as the one before did are not read again: those are nearly
    all when one changes health. Not thread-safe.
    """

    def __init__(self) -> None:
        self._devices: list[bytes] = []
        self._columns = Columns([], [], [])

    def read(self, message: bytes) -> Columns:
        """The devices of a message. Raises as ``device_columns`` does."""
        raw: Any = _RawList()
        try:
            raw.ParseFromString(message)
            devices = list(raw.devices)
            columns = self._amended(devices)
        except (DecodeError, UnicodeDecodeError) as error:
            raise WireError(
                f"{len(message)} bytes are not a ListAndWatchResponse ({error}): "
                "the plugin is broken"
            ) from error
        self._devices, self._columns = devices, columns
        return columns

    def _amended(self, devices: list[bytes]) -> Columns:
        """The last list's columns with what differs now."""
        if len(devices) != len(self._devices):
            return _columns(devices)
        different = list(compress(count(), map(ne, devices, self._devices)))
        new = _columns(devices[number] for number in different)
        last = self._columns
        return Columns(
            _with(last.ids, different, new.ids),
            _with(last.health, different, new.health),
            _with(last.numa, different, new.numa),
        )


def _with(column: list[T], numbers: Iterable[int], values: Iterable[T]) -> list[T]:
    """A copy with other values in some places."""
    copy = column.copy()
    for number, value in zip(numbers, values, strict=True):
        copy[number] = value
    return copy


def _columns(devices: Iterable[bytes]) -> Columns:
    ids: list[str] = []
    health: list[str] = []
    numa: list[Nodes] = []
    states: dict[bytes, tuple[str, Nodes]] = {}
    for device in devices:
        # Encoders write the id first; below 128 bytes its length is one byte.
        if len(device) > 2 and device[0] == _ID_TAG and device[1] < _LONG:
            end = device[1] + 2
            state = states.get(device[end:])
            if state is not None:
                ids.append(device[2:end].decode())
                health.append(state[0])
                numa.append(state[1])
                continue
        whole = dp.Device.FromString(device)
        state = whole.health, _numa(whole)
        ids.append(whole.ID)
        health.append(state[0])
        numa.append(state[1])
        rest = _rest(device, whole.ID)
        if rest:
            states[rest] = state
    # NewType's call costs as much as the walk when made once per device.
    return Columns(cast("list[DeviceId]", ids), health, numa)


def _numa(device: dp.Device) -> Nodes:
    if not device.HasField("topology"):
        return None
    return tuple(node.ID for node in device.topology.nodes)


def _rest(device: bytes, device_id: str) -> bytes:
    """The bytes after the id, if they alone say all but the id; else b""."""
    text = device_id.encode()
    if not 0 < len(text) < _LONG or not device.startswith(bytes((_ID_TAG, len(text))) + text):
        return b""
    rest = device[len(text) + 2 :]
    return b"" if dp.Device.FromString(rest).ID else rest


def devices_from_list(message: bytes) -> tuple[Device, ...]:
    """The same as ``Device`` values. Raises ``WireError``."""
    columns = device_columns(message)
    return tuple(map(Device, columns.ids, columns.health, columns.numa))
