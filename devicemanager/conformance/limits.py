"""Times and counts that the checks use. The option ``--limit NAME=NUMBER`` changes one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import attrs

from devicemanager.conformance.limit_values import limit, overridden

__all__ = ["Limits"]


@attrs.frozen(kw_only=True)
class Limits:
    """Limits and counts of the checks. Names that end in ``_seconds`` are times in seconds. Names
    such as W01 are the IDs of checks.

    Raises CheckError for a value that is not a valid number.
    """

    # If the kubelet has a deadline or limit, it is used here. The other numbers are estimates of
    # what an operator tolerates.
    start_seconds: float = limit(30.0)
    """Maximum time from the start of a plugin or driver until it is registered. A plugin must also
    have sent its first device list in this time (R01, W01)."""
    recover_warn_seconds: float = limit(10.0)
    """Limit for a warning: a plugin or driver gets one if it takes longer to register again, for
    example after a kubelet restart. A time above ``recover_seconds`` is a failure."""
    recover_seconds: float = limit(60.0)
    """Maximum time until a plugin or driver registers again after a kubelet restart, or after
    another event that it must notice."""
    first_list_warn_seconds: float = limit(5.0)
    """Time from ListAndWatch to the first device list; a longer time is only a warning (W01)."""
    refresh_seconds: float = limit(10.0)
    """Maximum time from a device change until a device list or a ResourceSlice shows it."""
    # The next times are short, because a run must fit into a CI job. ``thorough`` returns realistic
    # ones.
    idle_seconds: float = limit(15.0)
    """Time for which the checks L05, L10, R09, W02 and W12 leave the plugin idle; 60 s in a
    thorough run."""
    away_seconds: float = limit(5.0)
    """Time without a kubelet (K04, K15, R08), without an API server and a kubelet (DR06), or
    without a Node object (DS08); 60 s in a thorough run."""
    settle_seconds: float = limit(1.5)
    """Waiting time before a check verifies that something has not happened; 5 s in a thorough
    run."""
    restarts: int = limit(20, least=1)
    """Number of kubelet restarts in a row (K02, L04)."""
    warm_restarts: int = limit(3)
    """Number of kubelet restarts before the plugin's resource use is first measured (L04)."""
    # The API has no Deallocate. A plugin that reserves something in each call fails only after many
    # calls.
    allocations: int = limit(1000, least=1)
    """Number of consecutive Allocate calls (A07, L06)."""
    parallel_allocations: int = limit(8, least=1)
    """Number of Allocate calls at the same time (A08)."""
    parallel_rounds: int = limit(20)
    """Number of times that ``parallel_allocations`` calls are made at the same time (A08)."""
    single_devices: int = limit(64)
    """Maximum number of devices per resource in some checks. Checks of single responses, such as
    A05 and A18, allocate each of these devices in its own call. P05 offers all of them in one
    request."""
    streams: int = limit(10)
    """Number of ListAndWatch streams to open and close in a batch (W15)."""
    stream_batches: int = limit(5)
    """Maximum number of batches of ListAndWatch streams (W15); ``streams`` is the size of a batch.
    Threads and descriptors are a leak only if every batch adds to them. A thread pool that grows in
    the first batches is not a leak."""
    changes: int = limit(50, least=1)
    """Number of device changes in a row (W13, L06)."""
    series_seconds: float = limit(15.0)
    """Longest time for a series of calls or changes (A07, W13, L06). After this time, the check
    makes no further calls or changes of the series."""
    repeats: int = limit(3, least=1)
    """Number of identical calls that must all succeed (O01, S02)."""
    # The kubelet sets no deadlines for these calls, but the admission of all pods waits for them.
    options_seconds: float = limit(1.0)
    """Maximum duration of GetDevicePluginOptions (O01)."""
    allocate_warn_seconds: float = limit(1.0)
    """Duration of Allocate; a longer duration is only a warning (A09)."""
    allocate_seconds: float = limit(10.0)
    """Maximum duration of Allocate (A09)."""
    preferred_seconds: float = limit(1.0)
    """Maximum duration of GetPreferredAllocation (P05)."""
    # The kubelet's deadline: KubeletPreStartContainerRPCTimeoutInSecs
    # (deviceplugin/v1beta1/constants.go).
    pre_start_seconds: float = limit(30.0)
    """Maximum duration of PreStartContainer (S01)."""
    stop_seconds: float = limit(10.0)
    """Maximum time from SIGTERM to the exit of the process (L01). If a check stops the plugin and
    does not judge its exit, the plugin is killed after this time."""
    stream_end_seconds: float = limit(10.0)
    """Maximum time from the end of a ListAndWatch stream until the plugin has freed the descriptors
    and threads of this stream (W15, L04)."""
    resend_seconds: float = limit(35.0)
    """Maximum time that the check waits for another device list (W15). Some plugins send lists at
    intervals, and notice only when they send a list that the stream has ended."""
    register_attempts: int = limit(30)
    """Maximum number of Register calls per resource in 30 s (R06)."""
    register_window_seconds: float = limit(5.0)
    """Time in which the check counts Register calls (R06); 30 s in a thorough run. The check allows
    ``1 + register_attempts * register_window_seconds / 30`` calls per resource."""
    # Just below the 10 s after which a kubelet stops dialing the plugin.
    register_delay_seconds: float = limit(9.0)
    """Delay of the response to Register (R07)."""
    # gRPC receives messages of up to 4 MiB by default, and the kubelet does not change this limit.
    list_warn_bytes: int = limit(1 << 20)
    """Smallest size of a device list that leads to a warning (W10)."""
    list_bytes: int = limit(4 << 20)
    """Smallest size of a device list that is too large (W10)."""
    messages_per_minute: float = limit(1.0)
    """Maximum number of device lists per minute while no device changes (W12)."""
    # Some growth is normal: connections that are still closing, threads in a pool.
    extra_descriptors: int = limit(2)
    """Maximum increase in the number of file descriptors between two measurements (L04, W15)."""
    extra_threads: int = limit(4)
    """Maximum increase in the number of threads between two measurements (L04, W15)."""
    extra_memory_share: float = limit(0.2)
    """Maximum growth of a process's memory between two measurements, as a part of the first: 0.2 is
    20 %. If ``extra_memory_bytes`` is larger, it applies instead (L04, L06, W13)."""
    extra_memory_bytes: int = limit(8 << 20)
    """Maximum growth of a process's memory in bytes, if this is more than ``extra_memory_share``
    (L04, L06, W13).

    In a small program, garbage collection alone changes the memory by more than
    ``extra_memory_share``.
    """
    idle_cpu_share: float = limit(0.01)
    """Part of a CPU core that an idle plugin may use (L05)."""
    away_cpu_share: float = limit(0.05)
    """Part of a CPU core that a plugin may use without a kubelet (K04)."""
    inotify_instances: int = limit(1)
    """Maximum number of inotify instances per resource (L07)."""
    random_preferences: int = limit(30)
    """Number of random GetPreferredAllocation requests (P01)."""
    same_preferences: int = limit(10, least=1)
    """Number of identical GetPreferredAllocation requests (P05). With only a few requests, random
    responses could be equal by chance."""

    @classmethod
    def thorough(cls) -> Self:
        """Return limits for a thorough run, which may take several minutes."""
        return cls(
            idle_seconds=60.0, away_seconds=60.0, settle_seconds=5.0, register_window_seconds=30.0
        )

    def allow_memory(self, before: int, now: int) -> bool:
        """True if memory has not grown by more than the limits. ``before`` and ``now`` are in
        bytes."""
        return now - before <= max(before * self.extra_memory_share, self.extra_memory_bytes)

    def overridden(self, settings: Iterable[str]) -> Self:
        """Return a copy of these limits with changed values. Each setting has the form
        ``NAME=NUMBER``. Raises CheckError for any other text."""
        return overridden(self, settings)
