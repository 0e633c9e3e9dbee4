"""PodResources: which pod holds which device, as the kubelet tells node agents.

A server over any :class:`Source`, a client for any kubelet, and the values they share.
The package defines the source it needs and knows nothing of the device manager; nothing
here decides who gets a device. Values, view, rate limit and counters are free of gRPC.
Everything but the errors is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from podresources.client import DEFAULT_SOCKET, PodResourcesClient
    from podresources.counters import Counters
    from podresources.rendering import as_dict
    from podresources.server import PodResourcesServer
    from podresources.service import TokenBucket
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

# Client, server and view load gRPC or protobuf; a server that nobody has asked yet needs no
# values.
_LAZY = {
    "Allocatable": "values",
    "ClaimResource": "values",
    "Container": "values",
    "ContainerDevices": "values",
    "ContainerMemory": "values",
    "Counters": "counters",
    "DEFAULT_SOCKET": "client",
    "DynamicResource": "values",
    "MemorySource": "source",
    "Pod": "values",
    "PodResourcesClient": "client",
    "PodResourcesServer": "server",
    "Source": "source",
    "TokenBucket": "service",
    "View": "view",
    "as_dict": "rendering",
    "ids_by_resource": "values",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
