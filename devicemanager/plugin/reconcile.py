"""What a resource has to do next: one pure decision over an observation.

A registration can be lost in three ways: the kubelet's socket is another one, our own is
gone, or no list stream is left. Events only trigger an observation, and the observation
decides, so a missed event costs time and nothing else.
"""

from __future__ import annotations

from enum import Enum, auto

import attrs

from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.streams import StreamCounts
from podresources.sockets import FileIdentity

__all__ = ["Action", "Decision", "Observation", "decide"]


class Action(Enum):
    """What to do."""

    IDLE = auto()  # no kubelet: serve nothing
    SERVE = auto()  # end the server, if there is one, and start a fresh one
    REGISTER = auto()
    WATCH = auto()


@attrs.frozen(kw_only=True)
class Observation:
    """The state at ``now``, in seconds of the monotonic clock.

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
    """The action, its reason, and for WATCH and IDLE the seconds until the next observation."""

    step: Action
    reason: str = ""
    timeout: float = 0.0


def decide(observation: Observation, settings: PluginSettings) -> Decision:
    if observation.kubelet is None:
        return Decision(Action.IDLE, "there is no kubelet", settings.recheck)
    if observation.served_kubelet is None:
        return Decision(Action.SERVE, "the kubelet is there")
    if observation.served_kubelet != observation.kubelet:
        return Decision(Action.SERVE, "the kubelet was restarted")
    if not observation.own_socket:
        return Decision(Action.SERVE, "our socket was removed")
    if observation.registered_at is None:
        return Decision(Action.REGISTER)
    return _watch(observation, observation.registered_at, settings)


def _watch(observation: Observation, registered_at: float, settings: PluginSettings) -> Decision:
    """Decide for a registered plugin: whether there is a stream, or may still be one."""
    streams = observation.streams
    if streams.open:
        return Decision(Action.WATCH, timeout=settings.recheck)
    if streams.opened:
        # The exponent is bounded so that it cannot overflow; the limit holds far earlier.
        delay = settings.stream_delay * 2 ** min(observation.short_lives, 30)
        due = streams.last_ended + min(delay, settings.stream_delay_limit)
        reason = "the kubelet ended the list stream"
    elif settings.stream_wait is not None:
        due = registered_at + settings.stream_wait
        reason = "the kubelet never asked for the list"
    else:
        return Decision(Action.WATCH, timeout=settings.recheck)
    if observation.now >= due:
        return Decision(Action.SERVE, reason)
    return Decision(Action.WATCH, timeout=min(settings.recheck, due - observation.now))
