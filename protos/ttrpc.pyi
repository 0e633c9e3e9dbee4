"""The messages of ttrpc: a request names its method, and a response has a status or a payload.

Container runtimes use ttrpc for NRI plugins. It is gRPC without HTTP/2.
"""

# Generated from ttrpc.proto by tools/generate_protos.py: edit that file instead.

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class Request(Message):
    service: str
    """Full name of the service, such as nri.pkg.api.v1alpha1.Plugin."""
    method: str
    payload: bytes
    """The request message of the method."""
    timeout_nano: int
    """Time until the deadline, in nanoseconds; 0 for none."""
    def __init__(
        self,
        *,
        service: str | None = ...,
        method: str | None = ...,
        payload: bytes | None = ...,
        timeout_nano: int | None = ...,
    ) -> None: ...

class Response(Message):
    @property
    def status(self) -> Status:
        """Absent if the call succeeded."""
    payload: bytes
    """The response message of the method."""
    def __init__(
        self,
        *,
        status: Status | None = ...,
        payload: bytes | None = ...,
    ) -> None: ...

class Status(Message):
    code: int
    """A status code of gRPC."""
    message: str
    def __init__(
        self,
        *,
        code: int | None = ...,
        message: str | None = ...,
    ) -> None: ...
