"""The PodResources API, v1alpha1: the first version, for old clients.

Served by the kubelet on the same socket as v1.
"""

# Generated from podresources_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import file, message

__all__ = [
    "DESCRIPTOR",
    "ContainerDevices",
    "ContainerResources",
    "ListPodResourcesRequest",
    "ListPodResourcesResponse",
    "PodResources",
]

DESCRIPTOR = file("podresources_v1alpha1.proto")

ContainerDevices = message("v1alpha1.ContainerDevices")
ContainerResources = message("v1alpha1.ContainerResources")
ListPodResourcesRequest = message("v1alpha1.ListPodResourcesRequest")
ListPodResourcesResponse = message("v1alpha1.ListPodResourcesResponse")
PodResources = message("v1alpha1.PodResources")
