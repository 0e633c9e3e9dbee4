"""A client of the Pods API of any kubelet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs
from google.protobuf.message import DecodeError

from podresources.connection import Connection
from podresources.errors import AnswerInvalid
from podresources.pods_api.encoding import pod_from_bytes
from podresources.pods_api.watcher import EventType
from protos import pods_v1alpha1 as v1alpha1
from protos import pods_v1alpha1_grpc as v1alpha1_grpc

DEFAULT_SOCKET = "/var/lib/kubelet/pods-api/pods-api.sock"

Pod = Mapping[str, Any]
"""A core/v1 Pod in the form of Kubernetes' JSON, with the fields of ``core_v1.proto``."""

T = TypeVar("T")


@attrs.frozen
class PodEvent:
    """Event of WatchPods: its type, and the pod that it concerns."""

    type: EventType
    pod: Pod
    """The pod. It is empty for ``INITIAL_SYNC_COMPLETE``, and has only name, namespace and UID for
    ``DELETED``."""


class PodsClient:
    """Client of one socket of the Pods API. Thread-safe; connects at the first call.

    ``socket_path``: a path, also as ``unix:///path``. ``timeout``: seconds for one call, except
    ``watch_pods``.

    Every method raises a :class:`PodResourcesError`: SocketNotFound, NotServing, NotReady,
    DeadlineExceeded, RateLimited, MethodUnavailable, AnswerTooLarge, AnswerInvalid,
    CallFailed or ClientClosed. ``get_pod`` also raises PodNotFound, and a watch WatchDropped.
    """

    def __init__(
        self, socket_path: str | os.PathLike[str] = DEFAULT_SOCKET, *, timeout: float = 10.0
    ) -> None:
        self._connection = Connection(socket_path, timeout, "PodsClient", "pods-api/pods-api.sock")
        self.socket_path = self._connection.socket_path

    def list_pods(self) -> tuple[Pod, ...]:
        """Return all pods of the node, sorted by UID."""

        def read(data: bytes) -> tuple[Pod, ...]:
            pods = v1alpha1.ListPodsResponse.FromString(data).pods
            return tuple(pod_from_bytes(pod) for pod in pods)

        return self._read(v1alpha1_grpc.LIST_PODS, self._call(v1alpha1_grpc.LIST_PODS, b""), read)

    def get_pod(self, uid: str) -> Pod:
        """Return the pod with this UID."""

        def read(data: bytes) -> Pod:
            return pod_from_bytes(v1alpha1.GetPodResponse.FromString(data).pod)

        request = v1alpha1.GetPodRequest(podUID=uid).SerializeToString()
        return self._read(v1alpha1_grpc.GET_POD, self._call(v1alpha1_grpc.GET_POD, request), read)

    def watch_pods(self, timeout: float | None = None) -> PodWatch:
        """Return a watch of the pods. Its events are ``ADDED`` for each existing pod, then
        ``INITIAL_SYNC_COMPLETE``, then the changes.

        Iterate over the watch. To end it, call ``cancel`` or leave its ``with`` block. The
        iteration raises DeadlineExceeded after ``timeout`` seconds; None for no limit.
        """
        method = v1alpha1_grpc.WATCH_PODS
        stream = self._connection.stream(method, b"", timeout)
        events = (self._read(method, data, _event) for data in stream)
        return PodWatch(events, stream.cancel)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, method: str, request: bytes) -> bytes:
        return self._connection.call(method, request)

    def _read(self, method: str, data: bytes, decode: Callable[[bytes], T]) -> T:
        try:
            return decode(data)
        except (DecodeError, ValueError) as error:
            raise AnswerInvalid(
                f"{self.socket_path}: invalid response to {method}: {error}"
            ) from error


class PodWatch:
    """Events of one watch: an iterator, and a context manager that ends the watch."""

    def __init__(self, events: Iterator[PodEvent], cancel: Callable[[], None]) -> None:
        """Internal: use ``PodsClient.watch_pods``."""
        self._events = events
        self._cancel = cancel

    def __iter__(self) -> Iterator[PodEvent]:
        return self

    def __next__(self) -> PodEvent:
        return next(self._events)

    def cancel(self) -> None:
        """End the watch, from any thread. The iteration stops. Idempotent."""
        self._cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()


def _event(data: bytes) -> PodEvent:
    message = v1alpha1.WatchPodsEvent.FromString(data)
    try:
        kind = EventType(v1alpha1.EventType.Name(message.type))
    except ValueError:  # of a later version
        kind = EventType.UNSPECIFIED
    return PodEvent(kind, pod_from_bytes(message.pod))
