"""How long the kubelet waits before it starts a container again."""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs

__all__ = ["INITIAL", "LONGEST", "BackOff", "go_seconds"]

INITIAL, LONGEST = 10.0, 300.0
"""Seconds of the first wait and of the longest (``backOffPeriod``, ``MaxCrashLoopBackOff``,
pkg/kubelet/kubelet.go, v1.32)."""
_STABLE = 2 * LONGEST
"""Seconds after which a container that runs counts as well again."""

Key = TypeVar("Key")


@attrs.define(eq=False, repr=False)
class _Entry:
    seconds: float
    updated_at: float


class BackOff(Generic[Key]):
    """The kubelet's back-off by container: the first restart comes at once, then waits double
    (``flowcontrol.Backoff``, client-go v1.32, as ``doBackOff`` uses it). A container that has
    run for more than 10 minutes since its last start begins anew.

    Times are seconds on any clock that does not go back.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}

    def wait(self, key: Key, finished_at: float) -> float:
        """Seconds from the end of a container until it may be started; 0 for at once."""
        entry = self._entries.get(key)
        if entry is None or finished_at - entry.updated_at > _STABLE:
            return 0.0
        return entry.seconds

    def starts(self, key: Key, finished_at: float, now: float) -> None:
        """A container that ended at ``finished_at`` is started again now."""
        entry = self._entries.get(key)
        if entry is None or finished_at - entry.updated_at > _STABLE:
            self._entries[key] = _Entry(INITIAL, now)
        else:
            self._entries[key] = _Entry(min(2 * entry.seconds, LONGEST), now)

    def forget(self, key: Key) -> None:
        """The container is no more."""
        self._entries.pop(key, None)


def go_seconds(seconds: float) -> str:
    """A whole number of seconds as Go prints a duration: ``10s``, ``1m20s``, ``5m0s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
