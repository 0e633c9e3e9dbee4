"""Settings of the author framework, with default and meaning of each field."""

from __future__ import annotations

import math
from typing import Any

import attrs

__all__ = ["DIRECTORY_VARIABLE", "PluginSettings"]

DIRECTORY_VARIABLE = "DEVICE_PLUGIN_DIRECTORY"
"""Environment variable that overrides the default plugin directory."""


def _number(attribute: attrs.Attribute[Any], value: float) -> None:
    """Raise ValueError unless the value is a finite number, and an integer where required."""
    # Annotations are strings here, because of `from __future__ import annotations`.
    kinds = int if attribute.type in (int, "int") else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        expected = "a whole number" if kinds is int else "a number"
        raise ValueError(f"{attribute.name} must be {expected}, not {value!r}")


def _positive(_settings: object, attribute: attrs.Attribute[Any], value: float) -> None:
    _number(attribute, value)
    if value <= 0:
        raise ValueError(f"{attribute.name} must be above 0, not {value}")


def _not_negative(_settings: object, attribute: attrs.Attribute[Any], value: float) -> None:
    _number(attribute, value)
    if value < 0:
        raise ValueError(f"{attribute.name} must be at least 0, not {value}")


def _not_negative_or_none(
    settings: object, attribute: attrs.Attribute[Any], value: float | None
) -> None:
    if value is not None:
        _not_negative(settings, attribute, value)


@attrs.frozen(kw_only=True)
class PluginSettings:
    """Times and limits of the framework. Times are in seconds."""

    register_timeout: float = attrs.field(default=30.0, validator=_positive)
    """Timeout of a Register call. The kubelet dials back for up to 10 s before it responds."""

    register_backoff: float = attrs.field(default=1.0, validator=_positive)
    """Pause before the second attempt to register; doubles with each attempt."""

    register_backoff_limit: float = attrs.field(default=15.0, validator=_positive)
    """Longest pause between two attempts."""

    start_attempts: int = attrs.field(default=3, validator=_positive)
    """How often a failing ``start`` hook is called before its resource is marked as failed."""

    start_delay: float = attrs.field(default=3.0, validator=_not_negative)
    """Pause between two calls of the ``start`` hook."""

    first_list_wait: float = attrs.field(default=2.0, validator=_not_negative)
    """How long to wait for the first device list before serving an empty one."""

    list_interval: float = attrs.field(default=0.05, validator=_not_negative)
    """Shortest time between two lists on one stream: of a burst, only the last state is sent.
    With 0, every state is sent that the reader is fast enough for."""

    list_backoff: float = attrs.field(default=1.0, validator=_positive)
    """Pause before a failing ``devices`` method is called again; doubles, up to 30 s."""

    stream_delay: float = attrs.field(default=1.0, validator=_not_negative)
    """Pause between the end of the last ListAndWatch stream and the next registration. A restarting
    kubelet also ends the stream; the pause avoids a useless registration with the old one."""

    stream_wait: float | None = attrs.field(default=20.0, validator=_not_negative_or_none)
    """Pause before the next registration if the kubelet opened no ListAndWatch stream: it does so
    at once or, if its connection broke at that moment, never. None: wait forever."""

    stream_settled: float = attrs.field(default=10.0, validator=_not_negative)
    """A stream shorter than this doubles ``stream_delay``, up to ``stream_delay_limit``. So a
    kubelet that always closes the stream does not get constant registrations."""

    stream_delay_limit: float = attrs.field(default=30.0, validator=_positive)
    """Longest pause between the end of a stream and the next registration."""

    recheck: float = attrs.field(default=2.0, validator=_positive)
    """Interval at which the sockets are read without a file event. Reading decides; events only
    make it happen at once."""

    stop_grace: float = attrs.field(default=2.0, validator=_not_negative)
    """Time that running calls get to finish when the plugin stops."""

    workers: int = attrs.field(default=16, validator=_positive)
    """Maximum number of threads that serve the calls and streams of one resource."""

    max_streams: int = attrs.field(default=8, validator=_positive)
    """Maximum number of ListAndWatch streams of one resource; beyond it, the oldest is ended."""

    reject_unhealthy: bool = True
    """True if allocating an unhealthy device fails with FAILED_PRECONDITION."""

    announce: bool = False
    """True if the kubelet's plugin watcher registers the plugin, instead of a Register call. The
    default directory is then ``/var/lib/kubelet/plugins_registry``."""

    unique_socket: bool = False
    """True if every socket gets a random suffix. Otherwise a socket gets one only if another
    running plugin uses its plain name, so instances never share a path."""

    @max_streams.validator
    def _room_for_calls(self, _attribute: object, streams: int) -> None:
        if streams >= self.workers:
            raise ValueError("max_streams must be less than workers: calls need threads too")
