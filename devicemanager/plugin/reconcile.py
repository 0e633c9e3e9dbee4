"""Decide what the plugin of a resource must do next: for example, serve or register.

The decision has no side effects. It depends only on the settings and on an observation of sockets
and streams.

A registration can be lost in three ways: the kubelet's socket was replaced, the plugin's socket
was removed, or the last ListAndWatch stream ended. File events only trigger an observation. So a
missed event only causes a delay.
"""

from __future__ import annotations

from enum import Enum, auto

import attrs

from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.streams import StreamCounts
from podresources.sockets import FileIdentity

__all__ = ["Action", "Decision", "Observation", "decide"]


class Action(Enum):
    """What the plugin of a resource does next."""

    IDLE = auto()  # no kubelet: serve nothing
    SERVE = auto()  # stop the server, if there is one, and start a new one
    REGISTER = auto()
    WATCH = auto()  # registered: wait for the next change


@attrs.frozen(kw_only=True)
class Observation:
    """State of a resource's sockets and streams at ``now``, in seconds of the monotonic clock.

    ``kubelet`` identifies the kubelet's current socket; None: no kubelet runs. ``served_kubelet``
    identifies the socket that the kubelet had when the plugin's server started; None: the plugin
    has no server. ``own_socket`` is True if the plugin's socket exists. ``registered_at`` is the
    time of the registration; None: the plugin is not registered. ``short_streams`` counts
    consecutive registrations whose ListAndWatch stream ended early.
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
    """What the plugin of a resource does next, and why.

    ``timeout``: seconds until the next observation, if the plugin only waits (WATCH or IDLE).
    """

    step: Action
    reason: str = ""
    timeout: float = 0.0


def decide(observation: Observation, settings: PluginSettings) -> Decision:
    """Return what the plugin must do next, given this observation."""
    # The order matters. Without a kubelet, the plugin cannot register. A server for an earlier
    # kubelet instance is useless, even if its socket exists. Only a served plugin can register.
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
    """Return the next action of a registered plugin.

    The action is WATCH while a stream is open, and until the pause before the next registration is
    over. After this pause, the action is SERVE, which leads to a new registration.
    """
    streams = observation.streams
    # Only an open stream proves that the plugin is registered.
    if streams.open:
        return Decision(Action.WATCH, timeout=settings.recheck)
    if streams.opened:
        # The kubelet had opened a stream, and has restarted or closed the stream since then.
        # The bound of 30 only prevents an overflow: stream_delay_limit applies far earlier.
        delay = settings.stream_delay * 2 ** min(observation.short_streams, 30)
        due = streams.last_ended + min(delay, settings.stream_delay_limit)
        reason = "the kubelet ended the ListAndWatch stream"
    elif settings.stream_wait is not None:
        # The kubelet opens the stream right after its response to Register, or never.
        due = registered_at + settings.stream_wait
        reason = "the kubelet never opened the ListAndWatch stream"
    else:
        return Decision(Action.WATCH, timeout=settings.recheck)
    if observation.now >= due:
        return Decision(Action.SERVE, reason)
    return Decision(Action.WATCH, timeout=min(settings.recheck, due - observation.now))
