"""Convert times to and from the format of the Kubernetes API: RFC 3339 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

__all__ = ["micro_timestamp", "seconds_of", "timestamp"]


def timestamp(seconds: float) -> str:
    """Format seconds since the epoch as a ``metav1.Time``: ``2026-01-02T03:04:05Z``."""
    # Go drops the fraction of a second, too, when it writes a ``metav1.Time``.
    return _timestamp(int(seconds))


# Cached, because the status of a pod repeats a few times in many fields.
@lru_cache(maxsize=1024)
def _timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(seconds: float) -> str:
    """Format seconds since the epoch as a ``metav1.MicroTime``, which Leases use.

    Example: ``2026-01-02T03:04:05.000006Z``.
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: object) -> float | None:
    """Parse a ``metav1.Time`` or ``MicroTime`` into seconds since the epoch.

    Return None if ``text`` is not a string with an ISO 8601 time.
    """
    if not isinstance(text, str):
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    # RFC 3339 requires a zone.
    return None if parsed.tzinfo is None else parsed.timestamp()
