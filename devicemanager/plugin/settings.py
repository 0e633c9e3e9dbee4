"""Settings of the author framework, field by field."""

from __future__ import annotations

import math
from typing import Any

import attrs

__all__ = ["DIRECTORY_VARIABLE", "PluginSettings"]

DIRECTORY_VARIABLE = "DEVICE_PLUGIN_DIRECTORY"
"""Environment variable that names another directory than the default one."""


def _number(attribute: attrs.Attribute[Any], value: float) -> None:
    """Raise ValueError unless the value is a number that a wait can take, or a count."""
    kinds = int if attribute.type in (int, "int") else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        wanted = "a whole number" if kinds is int else "a number"
        raise ValueError(f"{attribute.name} must be {wanted}, not {value!r}")


def _positive(_settings: object, attribute: attrs.Attribute[Any], value: float) -> None:
    _number(attribute, value)
    if value <= 0:
        raise ValueError(f"{attribute.name} must be above 0, not {value}")


def _not_negative(_settings: object, attribute: attrs.Attribute[Any], value: float) -> None:
    _number(attribute, value)
    if value < 0:
        raise ValueError(f"{attribute.name} must not be below 0: {value}")


def _not_negative_or_none(
    settings: object, attribute: attrs.Attribute[Any], value: float | None
) -> None:
    if value is not None:
        _not_negative(settings, attribute, value)


@attrs.frozen(kw_only=True)
class PluginSettings:
    """Times and limits of the framework. All times are in seconds."""

    register_timeout: float = attrs.field(default=30.0, validator=_positive)
    """For one Register call. The kubelet dials back for up to 10 s before it answers."""

    register_backoff: float = attrs.field(default=1.0, validator=_positive)
    """Before the second attempt at registering; doubles from attempt to attempt."""

    register_backoff_limit: float = attrs.field(default=15.0, validator=_positive)
    """Longest time between two attempts."""

    start_attempts: int = attrs.field(default=3, validator=_positive)
    """How often a raising ``start`` hook is called before its resource is given up."""

    start_delay: float = attrs.field(default=3.0, validator=_not_negative)
    """Between two calls of the ``start`` hook."""

    first_list_wait: float = attrs.field(default=2.0, validator=_not_negative)
    """How long serving waits for the first device list; after that an empty one goes out."""

    list_interval: float = attrs.field(default=0.05, validator=_not_negative)
    """Shortest time between two lists on one stream: a burst becomes its last state.
    0 sends every state that the reader is quick enough for."""

    list_backoff: float = attrs.field(default=1.0, validator=_positive)
    """Before a ``devices`` method that raised is called again; doubles, up to 30 s."""

    stream_delay: float = attrs.field(default=1.0, validator=_not_negative)
    """From the end of the last list stream to registering again. A kubelet that restarts
    also ends the stream, so a little patience saves a registration."""

    stream_wait: float | None = attrs.field(default=20.0, validator=_not_negative_or_none)
    """From a registration to the next one if no list stream was ever opened: a kubelet asks
    for the list at once or, if its connection broke just then, never. None: wait for ever."""

    stream_settled: float = attrs.field(default=10.0, validator=_not_negative)
    """A stream that lived shorter than this doubles ``stream_delay``, up to
    ``stream_delay_limit``, so that a kubelet that always hangs up is not hammered."""

    stream_delay_limit: float = attrs.field(default=30.0, validator=_positive)
    """Longest wait between the end of a stream and registering again."""

    recheck: float = attrs.field(default=2.0, validator=_positive)
    """Between two looks at the sockets when no file event comes. The look is what
    decides; events only make it happen at once."""

    stop_grace: float = attrs.field(default=2.0, validator=_not_negative)
    """What calls that are still running get at the end."""

    workers: int = attrs.field(default=16, validator=_positive)
    """Most threads that serve one resource's calls and streams."""

    max_streams: int = attrs.field(default=8, validator=_positive)
    """Most list streams of one resource; beyond it the oldest is ended."""

    reject_unhealthy: bool = True
    """Allocating a device that is unhealthy now fails with FAILED_PRECONDITION."""

    announce: bool = False
    """Instead of calling Register, leave the socket where the kubelet's plugin watcher
    finds it and asks: the directory is then ``/var/lib/kubelet/plugins_registry``."""

    unique_socket: bool = False
    """Give every socket a random ending. Without it only a socket whose plain name is in
    use by another living plugin gets one, so instances never share a path either way."""

    @max_streams.validator
    def _room_for_calls(self, _attribute: object, streams: int) -> None:
        if streams >= self.workers:
            raise ValueError("max_streams must be less than workers: calls need threads too")
