"""Settings of the plugin framework, with default and meaning of each field."""

from __future__ import annotations

import math
from typing import Any

import attrs

__all__ = ["DIRECTORY_VARIABLE", "PluginSettings"]

DIRECTORY_VARIABLE = "DEVICE_PLUGIN_DIRECTORY"
"""Environment variable that overrides the default plugin directory."""


def _number(attribute: attrs.Attribute[Any], value: float) -> None:
    """Raise ValueError if a value is not a finite number, or not an integer where required."""
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
    """Settings of the plugin framework: times and limits. All times are in seconds."""

    register_timeout: float = attrs.field(default=30.0, validator=_positive)
    """Timeout of a Register call; a kubelet dials the plugin for up to 10 s before it responds."""

    register_backoff: float = attrs.field(default=1.0, validator=_positive)
    """Pause before the second attempt to register; it doubles with each further attempt."""

    register_backoff_limit: float = attrs.field(default=15.0, validator=_positive)
    """Maximum pause between two attempts to register."""

    start_attempts: int = attrs.field(default=3, validator=_positive)
    """Maximum number of calls of a failing ``start`` method. Then the resource counts as failed."""

    start_delay: float = attrs.field(default=3.0, validator=_not_negative)
    """Pause between two calls of a failing ``start`` method."""

    first_list_wait: float = attrs.field(default=2.0, validator=_not_negative)
    """Maximum wait for the first device list. Then the plugin is served with an empty list."""

    list_interval: float = attrs.field(default=0.05, validator=_not_negative)
    """Minimum time between two lists on one ListAndWatch stream; lists in between are skipped.

    With 0, a list is skipped only if the kubelet reads too slowly.
    """

    list_backoff: float = attrs.field(default=1.0, validator=_positive)
    """Pause before the framework calls a failing ``devices`` method again.

    The pause doubles with each further failure, up to 30 s.
    """

    stream_delay: float = attrs.field(default=1.0, validator=_not_negative)
    """Pause between the end of the last ListAndWatch stream and the next registration.

    A restarting kubelet also ends the stream. The pause avoids a useless registration with the
    old kubelet instance.
    """

    stream_wait: float | None = attrs.field(default=20.0, validator=_not_negative_or_none)
    """Pause before the next registration if the kubelet opened no ListAndWatch stream.

    A kubelet opens the stream right after the registration. If the plugin cannot be reached at
    that moment, the kubelet never opens the stream. None: wait forever for the stream.
    """

    stream_settled: float = attrs.field(default=10.0, validator=_not_negative)
    """Minimum duration of a normal ListAndWatch stream. A stream that ends earlier is called
    *short*.

    Each consecutive short stream doubles ``stream_delay``, up to ``stream_delay_limit``. This
    limits the registrations with a kubelet that always closes the stream.
    """

    stream_delay_limit: float = attrs.field(default=30.0, validator=_positive)
    """Maximum pause between the end of a ListAndWatch stream and the next registration."""

    recheck: float = attrs.field(default=2.0, validator=_positive)
    """Maximum interval between checks of the kubelet's socket and the plugin's sockets.

    A file event triggers a check immediately.
    """

    stop_grace: float = attrs.field(default=2.0, validator=_not_negative)
    """Grace period for calls in progress when the plugin stops."""

    workers: int = attrs.field(default=16, validator=_positive)
    """Maximum number of threads that serve the calls and streams of one resource."""

    max_streams: int = attrs.field(default=8, validator=_positive)
    """Maximum number of ListAndWatch streams of one resource. A further stream ends the oldest."""

    reject_unhealthy: bool = True
    """True if allocating an unhealthy device fails with FAILED_PRECONDITION."""

    announce: bool = False
    """True if the plugin waits for the kubelet's plugin watcher instead of calling Register.

    If True, the default directory is ``/var/lib/kubelet/plugins_registry``.
    """

    unique_socket: bool = False
    """True if the name of every socket gets a random suffix.

    If False, a socket's name gets a suffix only if another running plugin uses the plain name.
    """

    @max_streams.validator
    def _room_for_calls(self, _attribute: object, streams: int) -> None:
        if streams >= self.workers:
            raise ValueError(
                "max_streams must be less than workers: each stream uses a worker, and calls need "
                "workers, too"
            )
