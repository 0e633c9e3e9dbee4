"""Types of identifiers, with which a type checker detects swapped arguments."""

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
"""Number of one plugin registration. Numbers are never reused, so a late event of an old connection
cannot affect the connection that replaced it (see quirk Q1 in ``versions.quirks``)."""
