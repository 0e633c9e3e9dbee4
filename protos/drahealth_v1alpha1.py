"""Health of a DRA driver's devices, v1alpha1.

Served by the driver on the same socket as the claim preparation.
"""

# Generated from drahealth_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from protos._pool import enum, file, message

__all__ = [
    "DESCRIPTOR",
    "DeviceHealth",
    "DeviceIdentifier",
    "HealthStatus",
    "NodeWatchResourcesRequest",
    "NodeWatchResourcesResponse",
]

DESCRIPTOR = file("drahealth_v1alpha1.proto")

DeviceHealth = message("v1alpha1.DeviceHealth")
DeviceIdentifier = message("v1alpha1.DeviceIdentifier")
HealthStatus = enum("v1alpha1.HealthStatus")
NodeWatchResourcesRequest = message("v1alpha1.NodeWatchResourcesRequest")
NodeWatchResourcesResponse = message("v1alpha1.NodeWatchResourcesResponse")
