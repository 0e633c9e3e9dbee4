"""What a resource has to do next: one pure decision over what is seen.

Every way in which a registration is lost ends here: the kubelet's socket is another one,
our own is gone, or no list stream is left. Events only make us look; the look decides, so
an event that is missed costs time and nothing else.
"""

from __future__ import annotations

from enum import Enum, auto

import attrs

from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.sockets import FileIdentity
from devicemanager.plugin.streams import StreamCounts

__all__ = ["Decision", "Sight", "Step", "decide"]


class Step(Enum):
    """What to do."""

    IDLE = auto()  # no kubelet: serve nothing
    SERVE = auto()  # end the server, if there is one, and start a fresh one
    REGISTER = auto()
    WATCH = auto()


@attrs.frozen(kw_only=True)
class Sight:
    """What is seen at ``now``, in seconds of the monotonic clock.

    ``kubelet`` is the kubelet's socket, ``served_kubelet`` the one that was there when our
    server started (None: there is no server). ``short_lives`` counts the registrations in a
    row whose stream ended early.
    """

    now: float
    kubelet: FileIdentity | None
    served_kubelet: FileIdentity | None = None
    own_socket: bool = True
    registered_at: float | None = None
    streams: StreamCounts = attrs.field(factory=StreamCounts)
    short_lives: int = 0


@attrs.frozen
class Decision:
    """The step, why, and for WATCH and IDLE the seconds until the next look."""

    step: Step
    reason: str = ""
    timeout: float = 0.0


def decide(sight: Sight, settings: PluginSettings) -> Decision:
    if sight.kubelet is None:
        return Decision(Step.IDLE, "there is no kubelet", settings.recheck)
    if sight.served_kubelet is None:
        return Decision(Step.SERVE, "the kubelet is there")
    if sight.served_kubelet != sight.kubelet:
        return Decision(Step.SERVE, "the kubelet was restarted")
    if not sight.own_socket:
        return Decision(Step.SERVE, "our socket was removed")
    if sight.registered_at is None:
        return Decision(Step.REGISTER)
    return _watch(sight, sight.registered_at, settings)


def _watch(sight: Sight, registered_at: float, settings: PluginSettings) -> Decision:
    """Registered: is there a stream, or will there be one?"""
    streams = sight.streams
    if streams.open:
        return Decision(Step.WATCH, timeout=settings.recheck)
    if streams.opened:
        # The exponent is bounded so that it cannot overflow; the limit holds far earlier.
        delay = settings.stream_delay * 2 ** min(sight.short_lives, 30)
        due = streams.last_ended + min(delay, settings.stream_delay_limit)
        reason = "the kubelet ended the list stream"
    elif settings.stream_wait is not None:
        due = registered_at + settings.stream_wait
        reason = "the kubelet never asked for the list"
    else:
        return Decision(Step.WATCH, timeout=settings.recheck)
    if sight.now >= due:
        return Decision(Step.SERVE, reason)
    return Decision(Step.WATCH, timeout=min(settings.recheck, due - sight.now))
