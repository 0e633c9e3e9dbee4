"""PodResources: which pod holds which device, as the kubelet tells node agents.

A server over any :class:`Source`, a client for any kubelet, and the values they share.
The package defines the source it needs and knows nothing of the device manager; nothing
here decides who gets a device. Values, view, rate limit and counters are free of gRPC,
which is loaded only when the server or the client is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.lazy import lazy_names
from podresources.counters import Counters
from podresources.errors import (
    AnswerInvalid,
    AnswerTooLarge,
    CallFailed,
    ClientClosed,
    DeadlineExceeded,
    MethodUnavailable,
    NotServing,
    PodNotFound,
    PodResourcesError,
    RateLimited,
    ServeError,
    SocketInUse,
    SocketNotFound,
    SocketPathError,
)
from podresources.ratelimit import TokenBucket
from podresources.rendering import as_dict
from podresources.source import MemorySource, Source
from podresources.values import (
    Allocatable,
    ClaimResource,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    Pod,
    ids_by_resource,
)

if TYPE_CHECKING:
    from podresources.client import DEFAULT_SOCKET, PodResourcesClient
    from podresources.server import PodResourcesServer
    from podresources.view import View

__all__ = [
    "DEFAULT_SOCKET",
    "Allocatable",
    "AnswerInvalid",
    "AnswerTooLarge",
    "CallFailed",
    "ClaimResource",
    "ClientClosed",
    "Container",
    "ContainerDevices",
    "ContainerMemory",
    "Counters",
    "DeadlineExceeded",
    "DynamicResource",
    "MemorySource",
    "MethodUnavailable",
    "NotServing",
    "Pod",
    "PodNotFound",
    "PodResourcesClient",
    "PodResourcesError",
    "PodResourcesServer",
    "RateLimited",
    "ServeError",
    "SocketInUse",
    "SocketNotFound",
    "SocketPathError",
    "Source",
    "TokenBucket",
    "View",
    "as_dict",
    "ids_by_resource",
]

# Their modules load gRPC or protobuf.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "DEFAULT_SOCKET": "client",
        "PodResourcesClient": "client",
        "PodResourcesServer": "server",
        "View": "view",
    },
)
