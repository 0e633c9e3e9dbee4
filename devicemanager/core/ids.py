"""Identifiers as types, so that swapping two string arguments fails the type check."""

from typing import NewType

ResourceName = NewType("ResourceName", str)
"""An extended resource such as ``vendor.com/gpu``."""

DeviceId = NewType("DeviceId", str)
"""A device's id, unique within its resource."""

PodUid = NewType("PodUid", str)
"""``metadata.uid`` of a pod."""

ContainerName = NewType("ContainerName", str)
"""A container's name, unique within its pod."""

EndpointId = NewType("EndpointId", int)
"""The number of one registration. Never reused, so a late event of an old connection
cannot be taken for one of the connection that replaced it (Q1)."""
