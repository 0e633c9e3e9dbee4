"""Numbers used by the checks, each with a name that ``--limit`` accepts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Self

import attrs

from devicemanager.conformance.outcomes import CheckError

__all__ = ["Limits"]


def _check_number(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise CheckError(f"invalid limit {field.name} {value!r}: expected a number of at least 0")
    if isinstance(field.default, int) and not isinstance(value, int):
        raise CheckError(f"invalid limit {field.name} {value!r}: expected a whole number")


def _limit(default: float) -> Any:
    return attrs.field(default=default, validator=_check_number)


@attrs.frozen(kw_only=True)
class Limits:
    """Limits and counts of the checks. Times are in seconds. Raises CheckError."""

    # Where the kubelet has a deadline or limit, it is the one here. The other numbers are defaults
    # of the suite, and a matter of what an operator tolerates.
    start_seconds: float = _limit(30.0)
    """From the plugin's start to its registration and first device list (R01, W01)."""
    recover_warn_seconds: float = _limit(10.0)
    recover_seconds: float = _limit(60.0)
    """From a kubelet restart, or another event that the plugin must notice, to its registration."""
    first_list_warn_seconds: float = _limit(5.0)
    refresh_seconds: float = _limit(10.0)
    """From a device change to the device list that reports it."""
    # These are short, because a run must fit into a CI job; `thorough` has the real durations.
    idle_seconds: float = _limit(15.0)
    """Idle time before the checks of an idle plugin; 60 if thorough."""
    away_seconds: float = _limit(5.0)
    """Time without a kubelet (K04, R08); 60 if thorough."""
    settle_seconds: float = _limit(1.5)
    """Time to wait before checking that something did not happen; 5 if thorough."""
    restarts: int = _limit(20)
    """Number of kubelet restarts in a row (K02, L04)."""
    warm_restarts: int = _limit(3)
    """Number of restarts before the first measurement (L04)."""
    # There is no Deallocate. A plugin that reserves something per call runs out only after many.
    allocations: int = _limit(1000)
    """Number of allocations in a row (A07, L06)."""
    parallel_allocations: int = _limit(8)
    parallel_rounds: int = _limit(20)
    """Number of rounds of parallel allocations (A08)."""
    single_devices: int = _limit(64)
    """Number of devices that are checked one by one."""
    streams: int = _limit(10)
    """Number of ListAndWatch streams to open and close (W15)."""
    changes: int = _limit(50)
    """Number of device changes (W13, L06)."""
    repeats: int = _limit(3)
    """Number of calls that must have the same response (O01, S02)."""
    # The kubelet sets no deadlines for these calls, but admission of all pods waits for them.
    options_seconds: float = _limit(1.0)
    allocate_warn_seconds: float = _limit(1.0)
    allocate_seconds: float = _limit(10.0)
    preferred_seconds: float = _limit(1.0)
    # KubeletPreStartContainerRPCTimeoutInSecs (deviceplugin/v1beta1/constants.go).
    pre_start_seconds: float = _limit(30.0)
    stop_seconds: float = _limit(10.0)
    """From SIGTERM to the exit of the process."""
    stream_end_seconds: float = _limit(10.0)
    """From the end of a ListAndWatch stream to the end of its handler."""
    register_attempts: int = _limit(30)
    """Maximum number of attempts to register in 30 s (R06)."""
    register_window_seconds: float = _limit(5.0)
    """Time in which attempts are counted, 30 if thorough; the maximum is scaled to it."""
    # Just below the 10 s after which a kubelet gives up dialing the plugin.
    register_delay_seconds: float = _limit(9.0)
    """Delay of the response to Register (R07)."""
    # 4 MiB is the limit of gRPC for received messages, and the kubelet does not change it.
    list_warn_bytes: int = _limit(1 << 20)
    list_bytes: int = _limit(4 << 20)
    messages_per_minute: float = _limit(1.0)
    # Some growth is normal: connections that are still closing, threads of a pool.
    extra_descriptors: int = _limit(2)
    extra_threads: int = _limit(4)
    extra_memory_share: float = _limit(0.2)
    extra_memory_bytes: int = _limit(8 << 20)
    """Memory may grow by this or by ``extra_memory_share``, whichever is more: garbage collection
    alone changes the memory of a small program by more than that share."""
    idle_cpu_share: float = _limit(0.01)
    away_cpu_share: float = _limit(0.05)
    inotify_instances: int = _limit(1)
    random_preferences: int = _limit(30)
    """Number of random inputs of GetPreferredAllocation (P01)."""
    same_preferences: int = _limit(10)
    """Number of calls with the same input (P05); with few, random responses could be equal."""

    @classmethod
    def thorough(cls) -> Self:
        """Return limits for a run that may take several minutes."""
        return cls(
            idle_seconds=60.0, away_seconds=60.0, settle_seconds=5.0, register_window_seconds=30.0
        )

    def allow_memory(self, before: int, now: int) -> bool:
        """True if memory, in bytes, has not grown by more than the limits."""
        return now - before <= max(before * self.extra_memory_share, self.extra_memory_bytes)

    def overridden(self, settings: Iterable[str]) -> Self:
        """Return a copy changed by texts of the form ``NAME=NUMBER``. Raises CheckError."""
        names = [field.name for field in attrs.fields(type(self))]
        changes: dict[str, Any] = {}
        for setting in settings:
            name, _, value = setting.partition("=")
            if name not in names:
                raise CheckError(f"unknown limit {name!r}: use one of {', '.join(names)}")
            try:
                changes[name] = int(value) if value.isdigit() else float(value)
            except ValueError:
                raise CheckError(f"invalid limit {setting!r}: expected {name}=NUMBER") from None
        return attrs.evolve(self, **changes)
