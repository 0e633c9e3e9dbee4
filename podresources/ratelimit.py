"""The limit on calls: a token bucket, with time passed in."""

from __future__ import annotations

NANOSECONDS = 1_000_000_000


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
