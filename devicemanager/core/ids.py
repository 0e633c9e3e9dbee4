"""Types of identifiers, so that a type checker detects swapped string arguments."""

from typing import NewType

ResourceName = NewType("ResourceName", str)
"""Name of an extended resource such as ``vendor.com/gpu``."""

DeviceId = NewType("DeviceId", str)
"""Device ID, unique within its resource."""

PodUid = NewType("PodUid", str)
"""``metadata.uid`` of a pod."""

ContainerName = NewType("ContainerName", str)
"""Name of a container, unique within its pod."""

EndpointId = NewType("EndpointId", int)
"""Number of one registration. It is never reused, so that a late event of an old connection
cannot affect the connection that replaced it (Q1)."""
