"""Times as the Kubernetes API writes them: RFC 3339 in whole seconds, UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

__all__ = ["micro_timestamp", "seconds_of", "timestamp"]


def timestamp(seconds: float) -> str:
    """``metav1.Time`` of seconds since the epoch: ``2026-01-02T03:04:05Z``."""
    return _timestamp(int(seconds))


@lru_cache(maxsize=1024)
def _timestamp(seconds: int) -> str:
    # One pod has the same few times in many places.
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(seconds: float) -> str:
    """``metav1.MicroTime``, as leases have it: ``2026-01-02T03:04:05.000006Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: object) -> float | None:
    """Seconds since the epoch of either; None for what is none."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
