"""The Pods API, v1alpha1: the pods of a node.

Served by the kubelet on pods-api.sock in its pods-api directory.
"""

# Generated from pods_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import enum, file, message

__all__ = [
    "DESCRIPTOR",
    "EventType",
    "GetPodRequest",
    "GetPodResponse",
    "ListPodsRequest",
    "ListPodsResponse",
    "WatchPodsEvent",
    "WatchPodsRequest",
]

DESCRIPTOR = file("pods_v1alpha1.proto")

EventType = enum("v1alpha1.EventType")
GetPodRequest = message("v1alpha1.GetPodRequest")
GetPodResponse = message("v1alpha1.GetPodResponse")
ListPodsRequest = message("v1alpha1.ListPodsRequest")
ListPodsResponse = message("v1alpha1.ListPodsResponse")
WatchPodsEvent = message("v1alpha1.WatchPodsEvent")
WatchPodsRequest = message("v1alpha1.WatchPodsRequest")
