"""Decide what a resource must do next: a pure function of an observation.

A registration is lost in three ways: the kubelet's socket was replaced, the plugin's socket was
removed, or the last ListAndWatch stream ended. File events only trigger an observation, and the
observation decides. So a missed event costs time, and nothing else.
"""

from __future__ import annotations

from enum import Enum, auto

import attrs

from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.streams import StreamCounts
from podresources.sockets import FileIdentity

__all__ = ["Action", "Decision", "Observation", "decide"]


class Action(Enum):
    """The next step."""

    IDLE = auto()  # no kubelet: serve nothing
    SERVE = auto()  # stop the server, if there is one, and start a new one
    REGISTER = auto()
    WATCH = auto()  # registered: wait for the next change


@attrs.frozen(kw_only=True)
class Observation:
    """The state at ``now``, in seconds of the monotonic clock.

    ``kubelet`` identifies the kubelet's socket now, ``served_kubelet`` when the plugin's server
    started (None: no server). ``short_streams`` counts consecutive registrations whose list
    stream ended early.
    """

    now: float
    kubelet: FileIdentity | None
    served_kubelet: FileIdentity | None = None
    own_socket: bool = True
    registered_at: float | None = None
    streams: StreamCounts = attrs.field(factory=StreamCounts)
    short_streams: int = 0


@attrs.frozen
class Decision:
    """The action, its reason, and for WATCH and IDLE the seconds until the next observation."""

    step: Action
    reason: str = ""
    timeout: float = 0.0


def decide(observation: Observation, settings: PluginSettings) -> Decision:
    """Return the first step that the observation requires."""
    # The order matters. Without a kubelet there is nothing to register with. A server for a former
    # kubelet is useless, even if its socket still exists. Only a served plugin can register.
    if observation.kubelet is None:
        return Decision(Action.IDLE, "there is no kubelet", settings.recheck)
    if observation.served_kubelet is None:
        return Decision(Action.SERVE, "the kubelet has started")
    if observation.served_kubelet != observation.kubelet:
        return Decision(Action.SERVE, "the kubelet was restarted")
    if not observation.own_socket:
        return Decision(Action.SERVE, "the plugin's socket was removed")
    if observation.registered_at is None:
        return Decision(Action.REGISTER)
    return _watch(observation, observation.registered_at, settings)


def _watch(observation: Observation, registered_at: float, settings: PluginSettings) -> Decision:
    """Decide for a registered plugin: watch while there is a stream or one can still open."""
    streams = observation.streams
    # An open stream is the proof of a registration: everything else can look fine without one.
    if streams.open:
        return Decision(Action.WATCH, timeout=settings.recheck)
    if streams.opened:
        # The stream was open before: the kubelet knows the plugin, and has restarted or closed it.
        # Bounded only against overflow: stream_delay_limit applies far earlier.
        delay = settings.stream_delay * 2 ** min(observation.short_streams, 30)
        due = streams.last_ended + min(delay, settings.stream_delay_limit)
        reason = "the kubelet ended the list stream"
    elif settings.stream_wait is not None:
        # The kubelet opens the stream right after its response to Register, or never.
        due = registered_at + settings.stream_wait
        reason = "the kubelet never opened the list stream"
    else:
        return Decision(Action.WATCH, timeout=settings.recheck)
    if observation.now >= due:
        return Decision(Action.SERVE, reason)
    return Decision(Action.WATCH, timeout=min(settings.recheck, due - observation.now))
