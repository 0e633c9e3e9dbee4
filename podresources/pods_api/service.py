"""The methods of the Pods API, without a transport.

Follows ``PodsServer`` and ``ListenAndServePodsServer`` (pkg/kubelet/apis/pods/server.go and
pkg/kubelet/server/server.go, v1.37.2).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from podresources.pods_api.counters import PodsCounters
from podresources.pods_api.watcher import EventType, Watcher
from podresources.service import RateLimit, Rejection, check_request
from protos import pods_v1alpha1 as v1alpha1
from protos import pods_v1alpha1_grpc as v1alpha1_grpc

NOT_READY_TEXT = "Kubelet is initializing"
"""The kubelet's error while it does not know all pods (``validateReady``)."""

DROPPED_TEXT = "watch client channel closed"
"""The kubelet's error for a client that reads too slowly (``WatchPods``)."""

T = TypeVar("T")


def not_found_text(uid: str) -> str:
    """Return the kubelet's error for an unknown pod (``GetPod``)."""
    return f"pod with UID {uid} not found"


class PodsSource(Protocol):
    """Source of the node's pods. A pod is a serialized core/v1 Pod (bytes).

    Several threads call the methods at once.
    """

    @property
    def is_ready(self) -> bool:
        """True if all pods of the node are known."""

    def pods(self) -> Sequence[bytes]:
        """Return all pods, sorted by UID."""

    def pod(self, uid: str) -> bytes | None:
        """Return the pod with this UID; None if the UID is unknown."""

    def watch(self, watcher: Watcher) -> None:
        """Put all later events into the queue ``watcher``, until ``unwatch`` is called. A closed
        queue drops them."""

    def unwatch(self, watcher: Watcher) -> None:
        """Send no more events to ``watcher``. Idempotent."""


Intercept = Callable[[str], object]
"""Function that is called with the method name of each accepted call.

It may block, and may raise :class:`Rejection`.
"""


class PodsService:
    """Handler of Pods API requests. Requests and responses are bytes. Thread-safe.

    Methods raise :class:`Rejection`, but no other exception.
    """

    def __init__(
        self,
        source: PodsSource,
        limit: RateLimit,
        on_error: Callable[[Exception], object],
        intercept: Intercept,
        counters: PodsCounters,
    ) -> None:
        self._counters = counters
        self._source = source
        self._limit = limit
        self._on_error = on_error
        self._intercept = intercept

    def list(self, request: bytes) -> bytes:
        """Return the serialized response to ListPods."""

        def answer() -> bytes:
            pods = self._guarded(self._source.pods)
            return v1alpha1.ListPodsResponse(pods=pods).SerializeToString()

        return self._answer(v1alpha1_grpc.LIST_PODS, v1alpha1.ListPodsRequest, request, answer)

    def get(self, request: bytes) -> bytes:
        """Return the serialized response to GetPod."""

        def answer() -> bytes:
            uid = v1alpha1.GetPodRequest.FromString(request).podUID
            pod = self._guarded(lambda: self._source.pod(uid))
            if pod is None:
                raise Rejection("NOT_FOUND", not_found_text(uid))
            return v1alpha1.GetPodResponse(pod=pod).SerializeToString()

        return self._answer(v1alpha1_grpc.GET_POD, v1alpha1.GetPodRequest, request, answer)

    def watch(
        self, request: bytes, watcher: Watcher, is_cancelled: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Yield the serialized events of WatchPods until ``watcher`` is closed. Then raise
        Rejection, unless ``is_cancelled`` returns true because the client has ended the watch.

        The caller must call ``unwatch`` of the source at the end, even after an error.
        """
        # The kubelet limits only the other methods: it has no interceptor for streams.
        path = v1alpha1_grpc.WATCH_PODS
        check_request(path, v1alpha1.WatchPodsRequest, request)
        with self._counting(path) as outcome:
            self._begin(path)
            # First the queue, so that no event is missed. Its events can be older than the list.
            self._source.watch(watcher)
            outcome.code = "CANCELLED"  # if the client leaves, this generator is closed
            for pod in self._guarded(self._source.pods):
                yield _event(EventType.ADDED, pod)
            yield _event(EventType.INITIAL_SYNC_COMPLETE, b"")
            for kind, pod in watcher:
                yield _event(kind, pod)
            if not is_cancelled():
                raise Rejection("RESOURCE_EXHAUSTED", DROPPED_TEXT)

    def _answer(
        self, path: str, kind: type[Message], request: bytes, answer: Callable[[], bytes]
    ) -> bytes:
        check_request(path, kind, request)
        # Outside ``_counting``: like the kubelet, do not count calls that the limit rejects.
        self._limit.check()
        with self._counting(path):
            self._begin(path)
            return answer()

    def _begin(self, path: str) -> None:
        self._intercept(_method(path))
        if not self._source.is_ready:
            raise Rejection("FAILED_PRECONDITION", NOT_READY_TEXT)

    @contextlib.contextmanager
    def _counting(self, path: str) -> Iterator[_Outcome]:
        """Count a call at its end, with its status code."""
        outcome = _Outcome()
        try:
            yield outcome
        except Rejection as rejection:
            outcome.code = rejection.code
            raise
        finally:
            self._counters.ended(_method(path), outcome.code)

    def _guarded(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except Exception as error:
            self._on_error(error)
            raise Rejection("INTERNAL", f"cannot read the node's pods: {error!r}") from error


class _Outcome:
    """Status code of a call that does not raise a Rejection."""

    code = "OK"


def _method(path: str) -> str:
    return path.rpartition("/")[2]


def _event(kind: EventType, pod: bytes) -> bytes:
    number = v1alpha1.EventType.Value(kind)
    return v1alpha1.WatchPodsEvent(type=number, pod=pod).SerializeToString()
