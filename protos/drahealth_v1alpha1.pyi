"""Health of a DRA driver's devices, v1alpha1.

Served by the driver on the same socket as the claim preparation.
"""

# Generated from drahealth_v1alpha1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor
HealthStatus: EnumTypeWrapper

class NodeWatchResourcesRequest(Message):
    """An empty message."""
    def __init__(self) -> None: ...

class DeviceIdentifier(Message):
    """A device of the driver."""
    pool_name: str
    device_name: str
    def __init__(
        self,
        *,
        pool_name: str | None = ...,
        device_name: str | None = ...,
    ) -> None: ...

class DeviceHealth(Message):
    """The health of one device."""
    @property
    def device(self) -> DeviceIdentifier: ...
    health: int
    last_updated_time: int
    """When the driver found this health, in seconds since 1970."""
    health_check_timeout_seconds: int
    """After this number of seconds without a report, the health is unknown."""
    message: str
    """A text for people, of up to 1024 bytes."""
    def __init__(
        self,
        *,
        device: DeviceIdentifier | None = ...,
        health: int | None = ...,
        last_updated_time: int | None = ...,
        health_check_timeout_seconds: int | None = ...,
        message: str | None = ...,
    ) -> None: ...

class NodeWatchResourcesResponse(Message):
    """The health of all devices."""
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[DeviceHealth]: ...
    def __init__(
        self,
        *,
        devices: Iterable[DeviceHealth] | None = ...,
    ) -> None: ...
