"""The kubelet's APIs for node agents: which devices are allocated to which pod, and which pods run.

Theory of operation. Node agents call ``List``, ``GetAllocatableResources`` and ``Get`` on a unix
socket. On the server's side, a :class:`Source` supplies values with a version number. ``Source`` is
an interface. The package implements it only for tests (:class:`MemorySource`). ``View`` encodes
the values once per version, and reuses the encoded pods whose objects have not changed. ``Service``
applies the rate limit, counts calls and selects the response. ``PodResourcesServer`` makes the
service available over gRPC. ``PodResourcesClient`` calls the API of any kubelet, and returns the
same types of values as a source.

The subpackage ``pods_api`` has a server and a client of the Pods API. Both APIs use the modules
``running``, ``connection`` and ``errors``.

In:   for the server, a source; for the client, the path of a socket.
Out:  from the server, bytes on a socket; from the client, values (``Pod``, ``Container``,
      ``Allocatable``).

Invariants:

* No response mixes two versions of the source.
* The package does not import the device manager and decides nothing about devices.
* ``values``, ``view``, ``service`` and ``counters`` do not import gRPC. ``values`` does not import
  protobuf, either.
* All names except the errors are imported at first use, to keep start-up fast.

Where to start reading: ``values`` and ``source``, then ``view`` and ``service``. ``profile``
lists the differences between kubelet versions. ``sockets`` has helpers for unix sockets that other
packages use, too.
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
    NotReady,
    NotServing,
    PodNotFound,
    PodResourcesError,
    RateLimited,
    ServeError,
    SocketInUse,
    SocketNotFound,
    SocketPathError,
    WatchDropped,
)

if TYPE_CHECKING:
    from podresources.client import DEFAULT_SOCKET, PodResourcesClient
    from podresources.counters import Counters
    from podresources.profile import Profile
    from podresources.rendering import as_dict
    from podresources.server import PodResourcesServer
    from podresources.service import Method, Rejection, TokenBucket
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
    "Method",
    "MethodUnavailable",
    "NotReady",
    "NotServing",
    "Pod",
    "PodNotFound",
    "PodResourcesClient",
    "PodResourcesError",
    "PodResourcesServer",
    "Profile",
    "RateLimited",
    "Rejection",
    "ServeError",
    "SocketInUse",
    "SocketNotFound",
    "SocketPathError",
    "Source",
    "TokenBucket",
    "View",
    "WatchDropped",
    "as_dict",
    "ids_by_resource",
]

# Imported at first use: client, server and view import gRPC or protobuf, and a server needs no
# values before its first call.
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
    "Method": "service",
    "Pod": "values",
    "PodResourcesClient": "client",
    "PodResourcesServer": "server",
    "Profile": "profile",
    "Rejection": "service",
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
