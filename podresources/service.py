"""The methods of the service: rate limit, counters and answers, without a transport."""

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
"""What the kubelet answers (``ErrorLimitExceeded``, pkg/kubelet/apis/grpc, v1.32)."""

DISABLED_TEXT = "PodResources API Get method disabled"
"""What the kubelet answers with feature gate ``KubeletPodResourcesGet`` off."""


def unknown_method_text(method: str, service: str) -> str:
    """What grpc-go answers for a method that a service does not have."""
    return f"unknown method {method} for service {service}"


def not_found_text(name: str, namespace: str) -> str:
    """What the kubelet answers for an unknown pod (``Get``, server_v1.go, v1.32)."""
    return f"pod {name} in namespace {namespace} not found"


class Rejection(Exception):
    """An error to answer with: gRPC's name of the code, and the text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@attrs.frozen(eq=False, repr=False)
class Method:
    """One method: its full path, what it counts as, and how it is answered from the
    request's bytes."""

    path: str
    api_version: str
    kind: Kind
    request: type[Message]
    answer: Callable[[bytes], bytes]
    exists: bool = True
    """Whether the profile's version has it; else it is UNIMPLEMENTED."""


class TokenBucket:
    """At most ``burst`` calls at once and ``qps`` calls per second in the long run.

    Decides as ``rate.Limiter.Allow`` of golang.org/x/time does, which the kubelet uses
    (``LimiterUnaryServerInterceptor``, pkg/kubelet/apis/grpc, v1.32). Not thread-safe.
    """

    def __init__(self, qps: float, burst: int) -> None:
        if not qps > 0:
            raise ValueError(f"qps must be above 0, is {qps}; None switches the limit off")
        if burst < 1:
            raise ValueError(f"burst must be at least 1, is {burst}")
        self._qps = qps
        self._burst = burst
        self._tokens = float(burst)
        self._last: float | None = None

    def allow(self, now: float) -> bool:
        """Whether a call at ``now`` (seconds, any origin) may pass; it then costs a token."""
        left = self._tokens_at(now) - 1
        # Go counts the wait for a missing token in whole nanoseconds: less is no wait,
        # which also forgives the rounding of floats.
        if left < 0 and int(-left / self._qps * NANOSECONDS) > 0:
            return False
        self._tokens = left
        self._last = now
        return True

    def _tokens_at(self, now: float) -> float:
        if self._last is None:
            return self._tokens
        # A clock that went back brings no tokens and takes none.
        elapsed = max(0.0, now - self._last)
        return min(float(self._burst), self._tokens + elapsed * self._qps)


Answer = Callable[[Method, bytes], bytes]
"""From the method and the request's bytes to the response's. May raise :class:`Rejection`."""


def _answer(method: Method, request: bytes) -> bytes:
    return method.answer(request)


class Service:
    """Answers requests given as bytes. Thread-safe.

    One limit holds for all methods and both versions together, as in the kubelet, where
    it is an interceptor of the one gRPC server (``ListenAndServePodResources``,
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
        """``answer`` answers in place of ``Method.answer``, each call that was let in."""
        self._view = View(source, profile)
        self._limiter = limiter
        self._limiter_lock = threading.Lock()
        self._clock = clock
        self._profile = profile
        self._counters = counters
        self._on_error = on_error
        self._answer = answer or _answer

    def methods(self) -> tuple[Method, ...]:
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
        """The response's bytes, or :class:`Rejection`. Never another exception."""
        if not method.exists:
            service, name = method.path[1:].split("/")
            raise Rejection("UNIMPLEMENTED", unknown_method_text(name, service))
        _check_request(method, request)
        if not self._let_in():
            raise Rejection("RESOURCE_EXHAUSTED", RATE_LIMIT_TEXT)
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

    def _let_in(self) -> bool:
        if self._limiter is None:
            return True
        with self._limiter_lock:
            return self._limiter.allow(self._clock())

    def _allocatable(self) -> bytes:
        if text := self._profile.get_allocatable_disabled:
            raise Rejection("UNKNOWN", text)
        return self._view.allocatable_v1()

    def _get(self, request: bytes) -> bytes:
        # In the kubelet these two are plain Go errors, which gRPC sends as UNKNOWN.
        if not self._profile.get_enabled:
            raise Rejection("UNKNOWN", DISABLED_TEXT)
        asked = v1.GetPodResourcesRequest.FromString(request)
        found = self._view.get_v1(asked.pod_name, asked.pod_namespace)
        if found is None:
            raise Rejection("UNKNOWN", not_found_text(asked.pod_name, asked.pod_namespace))
        return found


def _check_request(method: Method, request: bytes) -> None:
    # Go decodes a request before its interceptors run: a broken one costs no token.
    if not request:
        return
    try:
        method.request.FromString(request)
    except DecodeError as error:
        name = method.request.DESCRIPTOR.full_name
        raise Rejection("INTERNAL", f"{method.path}: the request is no {name}: {error}") from error
