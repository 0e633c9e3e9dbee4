"""Times in the form of the Kubernetes API: RFC 3339, UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

__all__ = ["micro_timestamp", "seconds_of", "timestamp"]


def timestamp(seconds: float) -> str:
    """Return seconds since the epoch as a ``metav1.Time``: ``2026-01-02T03:04:05Z``."""
    return _timestamp(int(seconds))


# Cached: one pod has the same few times in many places of its status.
@lru_cache(maxsize=1024)
def _timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(seconds: float) -> str:
    """Return the ``metav1.MicroTime`` that leases have: ``2026-01-02T03:04:05.000006Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: object) -> float | None:
    """Return the seconds since the epoch of either form; None if it is not a time."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
