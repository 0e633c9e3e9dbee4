"""Preparation of resource claims on a node, v1: the API of a DRA driver.

The driver serves this on the socket that it names in its registration. The kubelet calls it
before a pod's sandbox is created, and after the pod's containers have ended.
"""

# Generated from dra_v1.proto by tools/generate_protos.py: edit that file instead.

from collections.abc import Iterable, Mapping

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import (
    MessageMap,
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
)
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class NodePrepareResourcesRequest(Message):
    """Claims to prepare."""
    @property
    def claims(self) -> RepeatedCompositeFieldContainer[Claim]: ...
    def __init__(
        self,
        *,
        claims: Iterable[Claim] | None = ...,
    ) -> None: ...

class NodePrepareResourcesResponse(Message):
    """The results of the claims."""
    @property
    def claims(self) -> MessageMap[str, NodePrepareResourceResponse]:
        """Results by UID of the claim, one for each requested claim."""
    def __init__(
        self,
        *,
        claims: Mapping[str, NodePrepareResourceResponse] | None = ...,
    ) -> None: ...

class NodePrepareResourceResponse(Message):
    """The result of one claim."""
    @property
    def devices(self) -> RepeatedCompositeFieldContainer[Device]:
        """The prepared devices."""
    error: str
    """The reason of a failure; the devices are then ignored."""
    permanent_error: bool
    """True if the same call would fail again. Proposed in KEP-5322; no kubelet reads it yet."""
    def __init__(
        self,
        *,
        devices: Iterable[Device] | None = ...,
        error: str | None = ...,
        permanent_error: bool | None = ...,
    ) -> None: ...

class Device(Message):
    """A prepared device."""
    @property
    def request_names(self) -> RepeatedScalarFieldContainer[str]:
        """The claim's requests that the device is for; empty means all."""
    pool_name: str
    device_name: str
    @property
    def cdi_device_ids(self) -> RepeatedScalarFieldContainer[str]:
        """Fully qualified names of CDI devices."""
    share_id: str
    """The share of a device that several claims use."""
    def __init__(
        self,
        *,
        request_names: Iterable[str] | None = ...,
        pool_name: str | None = ...,
        device_name: str | None = ...,
        cdi_device_ids: Iterable[str] | None = ...,
        share_id: str | None = ...,
    ) -> None: ...

class NodeUnprepareResourcesRequest(Message):
    """Claims to unprepare."""
    @property
    def claims(self) -> RepeatedCompositeFieldContainer[Claim]: ...
    def __init__(
        self,
        *,
        claims: Iterable[Claim] | None = ...,
    ) -> None: ...

class NodeUnprepareResourcesResponse(Message):
    """The results of the claims."""
    @property
    def claims(self) -> MessageMap[str, NodeUnprepareResourceResponse]:
        """Results by UID of the claim, one for each requested claim."""
    def __init__(
        self,
        *,
        claims: Mapping[str, NodeUnprepareResourceResponse] | None = ...,
    ) -> None: ...

class NodeUnprepareResourceResponse(Message):
    """The result of one claim."""
    error: str
    """The reason of a failure."""
    def __init__(
        self,
        *,
        error: str | None = ...,
    ) -> None: ...

class Claim(Message):
    """A ResourceClaim object. All fields are required."""
    namespace: str
    uid: str
    name: str
    def __init__(
        self,
        *,
        namespace: str | None = ...,
        uid: str | None = ...,
        name: str | None = ...,
    ) -> None: ...
