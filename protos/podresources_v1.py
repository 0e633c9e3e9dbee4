"""The PodResources API, v1: the resources that are allocated to containers.

Served by the kubelet on kubelet.sock in its pod-resources directory.
"""

# Generated from podresources_v1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import file, message

__all__ = [
    "DESCRIPTOR",
    "AllocatableResourcesRequest",
    "AllocatableResourcesResponse",
    "CDIDevice",
    "ClaimResource",
    "ContainerDevices",
    "ContainerMemory",
    "ContainerResources",
    "DynamicResource",
    "GetPodResourcesRequest",
    "GetPodResourcesResponse",
    "ListPodResourcesRequest",
    "ListPodResourcesResponse",
    "NUMANode",
    "PodResources",
    "TopologyInfo",
]

DESCRIPTOR = file("podresources_v1.proto")

AllocatableResourcesRequest = message("v1.AllocatableResourcesRequest")
AllocatableResourcesResponse = message("v1.AllocatableResourcesResponse")
CDIDevice = message("v1.CDIDevice")
ClaimResource = message("v1.ClaimResource")
ContainerDevices = message("v1.ContainerDevices")
ContainerMemory = message("v1.ContainerMemory")
ContainerResources = message("v1.ContainerResources")
DynamicResource = message("v1.DynamicResource")
GetPodResourcesRequest = message("v1.GetPodResourcesRequest")
GetPodResourcesResponse = message("v1.GetPodResourcesResponse")
ListPodResourcesRequest = message("v1.ListPodResourcesRequest")
ListPodResourcesResponse = message("v1.ListPodResourcesResponse")
NUMANode = message("v1.NUMANode")
PodResources = message("v1.PodResources")
TopologyInfo = message("v1.TopologyInfo")
