"""The numbers in the checks, each with a name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Self

import attrs

from devicemanager.conformance.outcomes import CheckError

__all__ = ["Limits"]


def _positive(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise CheckError(f"limit {field.name} is a number of at least 0: not {value!r}")
    if isinstance(field.default, int) and not isinstance(value, int):
        raise CheckError(f"limit {field.name} is a whole number: not {value!r}")


def _limit(default: float) -> Any:
    return attrs.field(default=default, validator=_positive)


@attrs.frozen(kw_only=True)
class Limits:
    """How long, how many, how much. Times are in seconds. Raises CheckError."""

    start_seconds: float = _limit(30.0)
    """From the plugin's start to its registration and first list (R01, W01)."""
    recover_warn_seconds: float = _limit(10.0)
    recover_seconds: float = _limit(60.0)
    """From a kubelet's restart, or what the plugin has to notice, to its registration."""
    first_list_warn_seconds: float = _limit(5.0)
    refresh_seconds: float = _limit(10.0)
    """From a change of a device to the list that tells of it."""
    idle_seconds: float = _limit(15.0)
    """How long a plugin is left alone for the checks that watch it idle; 60 if thorough."""
    away_seconds: float = _limit(5.0)
    """How long the kubelet is away (K04, R08); 60 if thorough."""
    settle_seconds: float = _limit(1.5)
    """How long to look on that something does not happen; 5 if thorough."""
    restarts: int = _limit(20)
    """How many kubelet restarts in a row (K02, L04)."""
    warm_restarts: int = _limit(3)
    """How many before what a plugin uses is first looked at (L04)."""
    allocations: int = _limit(1000)
    """How many allocations in a row (A07, L06)."""
    parallel_allocations: int = _limit(8)
    parallel_rounds: int = _limit(20)
    """How often so many at a time (A08)."""
    single_devices: int = _limit(64)
    """How many devices are looked at one by one."""
    streams: int = _limit(10)
    """How many list streams are opened and ended (W15)."""
    changes: int = _limit(50)
    """How often a device changes (W13, L06)."""
    repeats: int = _limit(3)
    """How often a call is made again that must have the same answer (O01, S02)."""
    options_seconds: float = _limit(1.0)
    allocate_warn_seconds: float = _limit(1.0)
    allocate_seconds: float = _limit(10.0)
    preferred_seconds: float = _limit(1.0)
    pre_start_seconds: float = _limit(30.0)
    stop_seconds: float = _limit(10.0)
    """From SIGTERM to the process's end."""
    stream_end_seconds: float = _limit(10.0)
    """From the end of a list stream to the end of its handler."""
    register_attempts: int = _limit(30)
    """The most attempts to register in ``register_window_seconds`` (R06)."""
    register_window_seconds: float = _limit(5.0)
    """30 if thorough; the number of attempts is taken in proportion to 30 s."""
    register_delay_seconds: float = _limit(9.0)
    """How long the answer to Register is held up (R07)."""
    list_warn_bytes: int = _limit(1 << 20)
    list_bytes: int = _limit(4 << 20)
    messages_per_minute: float = _limit(1.0)
    extra_descriptors: int = _limit(2)
    extra_threads: int = _limit(4)
    extra_memory_share: float = _limit(0.2)
    extra_memory_bytes: int = _limit(8 << 20)
    """What memory may grow by: the larger of both. A garbage collector moves a small program's
    by more than its share."""
    idle_cpu_share: float = _limit(0.01)
    away_cpu_share: float = _limit(0.05)
    inotify_instances: int = _limit(1)
    random_preferences: int = _limit(30)
    """How many random inputs of GetPreferredAllocation (P01)."""
    same_preferences: int = _limit(10)
    """How often one input of it: that answers are the same by chance must be unlikely (P05)."""

    @classmethod
    def thorough(cls) -> Self:
        """For a run that may take many minutes."""
        return cls(
            idle_seconds=60.0, away_seconds=60.0, settle_seconds=5.0, register_window_seconds=30.0
        )

    def overridden(self, settings: Iterable[str]) -> Self:
        """With ``NAME=NUMBER`` each. Raises CheckError for a name that there is not."""
        names = [field.name for field in attrs.fields(type(self))]
        changes: dict[str, Any] = {}
        for setting in settings:
            name, equals, value = setting.partition("=")
            if name not in names:
                raise CheckError(f"there is no limit {name!r}: choose from {', '.join(names)}")
            try:
                changes[name] = int(value) if value.isdigit() else float(value)
            except ValueError:
                raise CheckError(
                    f"limit {name} is set by {name}=NUMBER: not {setting!r}"
                    if equals
                    else f"limit {name} needs a number: write {name}=NUMBER"
                ) from None
        return attrs.evolve(self, **changes)
