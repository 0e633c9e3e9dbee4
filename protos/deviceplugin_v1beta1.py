"""The device plugin API, v1beta1: how plugins advertise devices to the kubelet.

There are two services, on unix sockets in one directory. The kubelet serves
Registration on kubelet.sock. A plugin serves DevicePlugin on another socket
and passes its name when it registers.
"""

# Generated from deviceplugin_v1beta1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import file, message

__all__ = [
    "DESCRIPTOR",
    "AllocateRequest",
    "AllocateResponse",
    "CDIDevice",
    "ContainerAllocateRequest",
    "ContainerAllocateResponse",
    "ContainerPreferredAllocationRequest",
    "ContainerPreferredAllocationResponse",
    "Device",
    "DevicePluginOptions",
    "DeviceSpec",
    "Empty",
    "FilesystemDevice",
    "ListAndWatchResponse",
    "Mount",
    "NUMANode",
    "NetlinkDevice",
    "PciDevice",
    "PreStartContainerRequest",
    "PreStartContainerResponse",
    "PreferredAllocationRequest",
    "PreferredAllocationResponse",
    "RegisterRequest",
    "TopologyInfo",
    "TypedDevice",
]

DESCRIPTOR = file("deviceplugin_v1beta1.proto")

AllocateRequest = message("v1beta1.AllocateRequest")
AllocateResponse = message("v1beta1.AllocateResponse")
CDIDevice = message("v1beta1.CDIDevice")
ContainerAllocateRequest = message("v1beta1.ContainerAllocateRequest")
ContainerAllocateResponse = message("v1beta1.ContainerAllocateResponse")
ContainerPreferredAllocationRequest = message("v1beta1.ContainerPreferredAllocationRequest")
ContainerPreferredAllocationResponse = message("v1beta1.ContainerPreferredAllocationResponse")
Device = message("v1beta1.Device")
DevicePluginOptions = message("v1beta1.DevicePluginOptions")
DeviceSpec = message("v1beta1.DeviceSpec")
Empty = message("v1beta1.Empty")
FilesystemDevice = message("v1beta1.FilesystemDevice")
ListAndWatchResponse = message("v1beta1.ListAndWatchResponse")
Mount = message("v1beta1.Mount")
NUMANode = message("v1beta1.NUMANode")
NetlinkDevice = message("v1beta1.NetlinkDevice")
PciDevice = message("v1beta1.PciDevice")
PreStartContainerRequest = message("v1beta1.PreStartContainerRequest")
PreStartContainerResponse = message("v1beta1.PreStartContainerResponse")
PreferredAllocationRequest = message("v1beta1.PreferredAllocationRequest")
PreferredAllocationResponse = message("v1beta1.PreferredAllocationResponse")
RegisterRequest = message("v1beta1.RegisterRequest")
TopologyInfo = message("v1beta1.TopologyInfo")
TypedDevice = message("v1beta1.TypedDevice")
