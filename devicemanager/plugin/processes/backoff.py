"""When a process that ended starts again: the kubelet's crash loop back-off."""

from __future__ import annotations

__all__ = ["CrashLoopBackOff"]

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 300.0
"""``backOffPeriod`` and ``MaxContainerBackOff``, pkg/kubelet/kubelet.go, v1.32."""

_RESET_SECONDS = 2 * LONGEST_SECONDS
"""Who has run for longer than this has no back-off to serve."""


class CrashLoopBackOff:
    """The pauses before the starts of one process (``doBackOff``,
    pkg/kubelet/kuberuntime/kuberuntime_manager.go, v1.32). Not safe for threads."""

    def __init__(self) -> None:
        self._pause = 0.0

    def next_pause(self, ran: float) -> float:
        """Seconds until the next start of a process that has run for ``ran`` seconds: none
        at first, then 10 s, and twice as long each time, up to 5 minutes."""
        if ran > _RESET_SECONDS:
            self._pause = 0.0
        pause = self._pause
        self._pause = min(2 * pause or FIRST_SECONDS, LONGEST_SECONDS)
        return pause
