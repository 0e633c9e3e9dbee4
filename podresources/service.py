"""Handle PodResources requests as bytes: rate limit, counters and responses. No transport is
used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
from google.protobuf.message import DecodeError, Message

from podresources.counters import Counters, Kind
from podresources.profile import ALL, Profile
from podresources.view import View
from protos import podresources_v1 as v1
from protos import podresources_v1alpha1 as v1alpha1

if TYPE_CHECKING:
    from podresources.source import Source

NANOSECONDS = 1_000_000_000

RATE_LIMIT_TEXT = "rejected by rate limit"
"""Error of the kubelet for calls over the rate limit (``ErrorLimitExceeded``,
pkg/kubelet/apis/grpc, v1.32)."""

DISABLED_TEXT = "PodResources API Get method disabled"
"""Error of the kubelet's Get method if feature gate ``KubeletPodResourcesGet`` is off."""


def unknown_method_text(method: str, service: str) -> str:
    """Return the error text of grpc-go for a method that a service does not have."""
    return f"unknown method {method} for service {service}"


def not_found_text(name: str, namespace: str) -> str:
    """Return the error text of the kubelet for an unknown pod (``Get``, server_v1.go, v1.32)."""
    return f"pod {name} in namespace {namespace} not found"


class Rejection(Exception):
    """Error of a call, which the server returns to the client.

    ``code`` is the name of the gRPC status code, ``text`` the message.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@attrs.frozen(eq=False, repr=False)
class Method:
    """Method of the API. ``path`` is its gRPC path; ``api_version`` and ``kind`` select its
    metrics. ``answer`` takes the bytes of a request and returns the bytes of the response."""

    path: str
    api_version: str
    kind: Kind
    request: type[Message]
    answer: Callable[[bytes], bytes]
    exists: bool = True
    """True if the kubelet version has the method; otherwise calls fail with UNIMPLEMENTED."""


class TokenBucket:
    """Rate limit that allows ``burst`` calls without delay and ``qps`` calls per second on average.

    It decides like ``rate.Limiter.Allow`` of golang.org/x/time, which the kubelet uses
    (``LimiterUnaryServerInterceptor``, pkg/kubelet/apis/grpc, v1.32). Not thread-safe.
    """

    def __init__(self, qps: float, burst: int) -> None:
        if not qps > 0:
            raise ValueError(f"invalid qps {qps}: use a number above 0, or None for no limit")
        if burst < 1:
            raise ValueError(f"invalid burst {burst}: use 1 or more")
        self._qps = qps
        self._burst = burst
        self._tokens = float(burst)
        self._last: float | None = None

    def allow(self, now: float) -> bool:
        """Use up a token for a call at the time ``now``, and return True. If no token is left,
        return False. ``now`` is in seconds of any clock."""
        left = self._tokens_at(now) - 1
        # Go computes the wait for a missing token in whole nanoseconds. A wait of less than a
        # nanosecond is 0, so the call is accepted. This also absorbs rounding errors.
        if left < 0 and int(-left / self._qps * NANOSECONDS) > 0:
            return False
        self._tokens = left
        self._last = now
        return True

    def _tokens_at(self, now: float) -> float:
        if self._last is None:
            return self._tokens
        # If the clock was set back, the bucket must not lose tokens.
        elapsed = max(0.0, now - self._last)
        return min(float(self._burst), self._tokens + elapsed * self._qps)


class RateLimit:
    """Rate limit of a server. Thread-safe."""

    def __init__(self, bucket: TokenBucket | None, clock: Callable[[], float]) -> None:
        """``bucket``: None for no limit. ``clock`` returns the time in seconds."""
        self._bucket = bucket
        self._clock = clock
        self._lock = threading.Lock()

    def check(self) -> None:
        """Use up a token for a call. Raises Rejection if the call exceeds the rate limit."""
        if self._bucket is None:
            return
        with self._lock:
            is_accepted = self._bucket.allow(self._clock())
        if not is_accepted:
            raise Rejection("RESOURCE_EXHAUSTED", RATE_LIMIT_TEXT)


Answer = Callable[[Method, bytes], bytes]
"""Function that takes a method and the bytes of a request, and returns the bytes of the response.
It may raise :class:`Rejection`."""


def _answer(method: Method, request: bytes) -> bytes:
    return method.answer(request)


class Service:
    """Handler of PodResources requests. Requests and responses are bytes. Thread-safe.

    One rate limit applies to all methods and both API versions together. In the kubelet, the limit
    is an interceptor of the gRPC server (``ListenAndServePodResources``,
    pkg/kubelet/server/server.go, v1.32).
    """

    def __init__(
        self,
        source: Source,
        *,
        limiter: TokenBucket | None,
        clock: Callable[[], float] = time.monotonic,
        profile: Profile = ALL,
        counters: Counters,
        on_error: Callable[[Exception], object],
        answer: Answer | None = None,
    ) -> None:
        """``answer`` returns the responses to accepted calls; the default is ``Method.answer``.
        ``on_error`` is called with each unexpected exception."""
        self._view = View(source, profile)
        self._limit = RateLimit(limiter, clock)
        self._profile = profile
        self._counters = counters
        self._on_error = on_error
        self._answer = answer or _answer

    def methods(self) -> tuple[Method, ...]:
        """Return all methods of both API versions, including those that the kubelet version
        lacks."""
        view, lister = self._view, "PodResourcesLister"
        return (
            Method(
                f"/v1.{lister}/List",
                "v1",
                "list",
                v1.ListPodResourcesRequest,
                lambda _: view.list_v1(),
            ),
            Method(
                f"/v1.{lister}/GetAllocatableResources",
                "v1",
                "get_allocatable",
                v1.AllocatableResourcesRequest,
                lambda _: self._allocatable(),
                self._profile.has_get_allocatable,
            ),
            Method(
                f"/v1.{lister}/Get",
                "v1",
                "get",
                v1.GetPodResourcesRequest,
                self._get,
                self._profile.has_get,
            ),
            Method(
                f"/v1alpha1.{lister}/List",
                "v1alpha1",
                "list",
                v1alpha1.ListPodResourcesRequest,
                lambda _: view.list_v1alpha1(),
            ),
        )

    def answer(self, method: Method, request: bytes) -> bytes:
        """Return the response bytes for a request. Raises :class:`Rejection` and no other
        exception."""
        if not method.exists:
            service, name = method.path[1:].split("/")
            raise Rejection("UNIMPLEMENTED", unknown_method_text(name, service))
        check_request(method.path, method.request, request)
        # First the limit: like the kubelet, do not count calls that it rejects.
        self._limit.check()
        self._counters.requested(method.api_version, method.kind)
        try:
            return self._answer(method, request)
        except Rejection:
            self._counters.failed(method.api_version, method.kind)
            raise
        except Exception as error:
            self._counters.failed(method.api_version, method.kind)
            self._on_error(error)
            text = f"{method.path}: cannot read the node's resources: {error!r}"
            raise Rejection("INTERNAL", text) from error

    def _allocatable(self) -> bytes:
        if text := self._profile.get_allocatable_disabled:
            raise Rejection("UNKNOWN", text)
        return self._view.allocatable_v1()

    def _get(self, request: bytes) -> bytes:
        # In the kubelet, both errors below are plain Go errors, which gRPC sends as UNKNOWN.
        if not self._profile.get_enabled:
            raise Rejection("UNKNOWN", DISABLED_TEXT)
        message = v1.GetPodResourcesRequest.FromString(request)
        found = self._view.get_v1(message.pod_name, message.pod_namespace)
        if found is None:
            raise Rejection("UNKNOWN", not_found_text(message.pod_name, message.pod_namespace))
        return found


def check_request(path: str, kind: type[Message], request: bytes) -> None:
    """Raise Rejection if ``request`` is not an encoded message of the type ``kind``."""
    # Go decodes a request before the interceptors run, so an invalid request uses up no token.
    if not request:
        return
    try:
        kind.FromString(request)
    except DecodeError as error:
        name = kind.DESCRIPTOR.full_name
        raise Rejection("INTERNAL", f"{path}: invalid {name}: {error}") from error
