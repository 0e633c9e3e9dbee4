"""Convert the values of a plugin author to messages of the API deviceplugin/v1beta1."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message

from devicemanager.core.api.deviceplugin import HEALTHY, UNHEALTHY
from devicemanager.plugin.typed import add_typed_devices
from devicemanager.plugin.values import ContainerSettings, Device
from protos import deviceplugin_v1beta1 as dp

__all__ = ["container_response", "device_message", "encode_list", "to_bytes"]


def device_message(device: Device) -> dp.Device:
    """Convert one device to the message ``Device`` of the DevicePlugin API."""
    message = dp.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
    # Without NUMA nodes, leave the field unset: an empty topology hides the device (Q13).
    for node in device.numa:
        message.topology.nodes.add(ID=node)
    return message


def encode_list(devices: Iterable[Device]) -> bytes:
    """Return a serialized ListAndWatchResponse with these devices."""
    return dp.ListAndWatchResponse(devices=map(device_message, devices)).SerializeToString()


def container_response(settings: ContainerSettings) -> dp.ContainerAllocateResponse:
    """Convert the settings of one container to its message in the Allocate response."""
    response = dp.ContainerAllocateResponse(
        envs=settings.envs,
        mounts=[
            dp.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only)
            for m in settings.mounts
        ],
        devices=[
            dp.DeviceSpec(
                container_path=d.container_path, host_path=d.host_path, permissions=d.permissions
            )
            for d in settings.devices
        ],
        annotations=settings.annotations,
        cdi_devices=[dp.CDIDevice(name=name) for name in settings.cdi_devices],
    )
    add_typed_devices(response, settings.typed_devices)
    return response


def to_bytes(message: Message | bytes) -> bytes:
    """Return a response as bytes. If ``message`` is already bytes, return it unchanged."""
    return message if isinstance(message, bytes) else message.SerializeToString()
