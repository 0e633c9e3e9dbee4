"""The Node Resource Interface (NRI), v1alpha1: how a container runtime calls its plugins.

A plugin connects to nri.sock of the runtime, and both sides make calls on this connection. Only
the methods and fields that the mock kubelet uses are here.
"""

# Generated from nri_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import enum, file, message

__all__ = [
    "DESCRIPTOR",
    "CDIDevice",
    "ConfigureRequest",
    "ConfigureResponse",
    "Container",
    "ContainerAdjustment",
    "ContainerState",
    "ContainerUpdate",
    "CreateContainerRequest",
    "CreateContainerResponse",
    "Empty",
    "Event",
    "KeyValue",
    "LinuxCPU",
    "LinuxContainer",
    "LinuxContainerAdjustment",
    "LinuxContainerUpdate",
    "LinuxDevice",
    "LinuxMemory",
    "LinuxResources",
    "Mount",
    "OptionalInt64",
    "OptionalUInt64",
    "PodSandbox",
    "RegisterPluginRequest",
    "StateChangeEvent",
    "StopContainerRequest",
    "StopContainerResponse",
    "SynchronizeRequest",
    "SynchronizeResponse",
    "UpdateContainersRequest",
    "UpdateContainersResponse",
]

DESCRIPTOR = file("nri_v1alpha1.proto")

CDIDevice = message("nri.pkg.api.v1alpha1.CDIDevice")
ConfigureRequest = message("nri.pkg.api.v1alpha1.ConfigureRequest")
ConfigureResponse = message("nri.pkg.api.v1alpha1.ConfigureResponse")
Container = message("nri.pkg.api.v1alpha1.Container")
ContainerAdjustment = message("nri.pkg.api.v1alpha1.ContainerAdjustment")
ContainerState = enum("nri.pkg.api.v1alpha1.ContainerState")
ContainerUpdate = message("nri.pkg.api.v1alpha1.ContainerUpdate")
CreateContainerRequest = message("nri.pkg.api.v1alpha1.CreateContainerRequest")
CreateContainerResponse = message("nri.pkg.api.v1alpha1.CreateContainerResponse")
Empty = message("nri.pkg.api.v1alpha1.Empty")
Event = enum("nri.pkg.api.v1alpha1.Event")
KeyValue = message("nri.pkg.api.v1alpha1.KeyValue")
LinuxCPU = message("nri.pkg.api.v1alpha1.LinuxCPU")
LinuxContainer = message("nri.pkg.api.v1alpha1.LinuxContainer")
LinuxContainerAdjustment = message("nri.pkg.api.v1alpha1.LinuxContainerAdjustment")
LinuxContainerUpdate = message("nri.pkg.api.v1alpha1.LinuxContainerUpdate")
LinuxDevice = message("nri.pkg.api.v1alpha1.LinuxDevice")
LinuxMemory = message("nri.pkg.api.v1alpha1.LinuxMemory")
LinuxResources = message("nri.pkg.api.v1alpha1.LinuxResources")
Mount = message("nri.pkg.api.v1alpha1.Mount")
OptionalInt64 = message("nri.pkg.api.v1alpha1.OptionalInt64")
OptionalUInt64 = message("nri.pkg.api.v1alpha1.OptionalUInt64")
PodSandbox = message("nri.pkg.api.v1alpha1.PodSandbox")
RegisterPluginRequest = message("nri.pkg.api.v1alpha1.RegisterPluginRequest")
StateChangeEvent = message("nri.pkg.api.v1alpha1.StateChangeEvent")
StopContainerRequest = message("nri.pkg.api.v1alpha1.StopContainerRequest")
StopContainerResponse = message("nri.pkg.api.v1alpha1.StopContainerResponse")
SynchronizeRequest = message("nri.pkg.api.v1alpha1.SynchronizeRequest")
SynchronizeResponse = message("nri.pkg.api.v1alpha1.SynchronizeResponse")
UpdateContainersRequest = message("nri.pkg.api.v1alpha1.UpdateContainersRequest")
UpdateContainersResponse = message("nri.pkg.api.v1alpha1.UpdateContainersResponse")
