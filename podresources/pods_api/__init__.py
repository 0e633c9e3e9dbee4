"""The kubelet's Pods API: the pods of a node, as core/v1 objects (KEP-4188).

Theory of operation. Kubelets from Kubernetes 1.37 on serve ``ListPods``, ``GetPod`` and
``WatchPods`` on a unix socket beside PodResources. On the server's side, a :class:`PodsSource`
(defined here, implemented elsewhere) returns pods as bytes and sends events to ``Watcher`` queues.
``PodsService`` applies the rate limit and selects the response; ``PodsServer`` makes the service
available over gRPC. ``PodsClient`` calls the API of any kubelet and returns pods in the form of
Kubernetes' JSON. ``encoding`` converts between that form and protobuf.

In:   a source; or the path of a socket.
Out:  bytes on a socket; or pods as dicts.

Invariants:

* A slow client never delays the source: when the client's queue is full, its watch ends.
* Encoding raises an error for fields that ``core_v1.proto`` does not have. Decoding skips them.
* All names are loaded at first use, to keep start-up fast.

Where to start reading: ``service``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podresources.pods_api.client import DEFAULT_SOCKET, PodEvent, PodsClient, PodWatch
    from podresources.pods_api.encoding import pod_from_bytes, pod_to_bytes
    from podresources.pods_api.server import PodsServer
    from podresources.pods_api.service import PodsSource
    from podresources.pods_api.watcher import EventType, Watcher

__all__ = [
    "DEFAULT_SOCKET",
    "EventType",
    "PodEvent",
    "PodWatch",
    "PodsClient",
    "PodsServer",
    "PodsSource",
    "Watcher",
    "pod_from_bytes",
    "pod_to_bytes",
]

_LAZY = {
    "DEFAULT_SOCKET": "client",
    "EventType": "watcher",
    "PodEvent": "client",
    "PodWatch": "client",
    "PodsClient": "client",
    "PodsServer": "server",
    "PodsSource": "service",
    "Watcher": "watcher",
    "pod_from_bytes": "encoding",
    "pod_to_bytes": "encoding",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
