"""Times and counts that the checks of clients use. The option ``--limit NAME=NUMBER`` changes one
of them."""

from __future__ import annotations

import attrs

from devicemanager.conformance.limit_values import limit

__all__ = ["ClientLimits"]


@attrs.frozen(kw_only=True)
class ClientLimits:
    """Limits and counts for the client checks. Names that end in ``_seconds`` are in seconds. Names
    such as C01 are the IDs of checks.

    Raises CheckError for a value that is not a valid number.
    """

    start_seconds: float = limit(30.0)
    """Maximum time from the client's start to its first call (check C01)."""
    # Many clients query once a minute.
    call_seconds: float = limit(70.0)
    """Maximum time between two equal calls (check C01), and maximum time that a check waits for a
    call. Also the maximum time until the metrics page shows changed pods (checks C22 and C23)."""
    least_wait_seconds: float = limit(15.0)
    """Time after which a check stops waiting for a call, if the client has made calls at short
    intervals. For a client that calls rarely, the check waits longer, up to ``call_seconds``."""
    calls: int = limit(2)
    """Number of calls that a client must make after an unusual response."""
    away_seconds: float = limit(3.0)
    """Time during which the kubelet's socket does not exist (checks C02 and C03)."""
    restarts: int = limit(5, least=2)
    """Number of kubelet restarts in a row (check C04)."""
    huge_bytes: int = limit(5 << 20)
    """Size of a huge response (check C06). gRPC receives up to 4 MiB by default, and Kubernetes'
    own clients set 16 MiB."""
    # The kubelet accepts 100 calls per second of all clients together.
    failed_calls_per_second: float = limit(10.0)
    """Maximum rate of calls while calls fail (checks C13, C14 and C16)."""
    calls_per_second: float = limit(2.0)
    """Maximum rate of calls in normal operation (check C18). For each read of the metrics page, the
    client may make ``calls_per_scrape`` additional calls."""
    calls_per_scrape: int = limit(5)
    """Number of calls that a client may make each time its metrics page is read (checks C13, C14,
    C16 and C18)."""
    rate_seconds: float = limit(5.0)
    """Time in which calls are counted (checks C13, C14, C16 and C18)."""
    deadline_seconds: float = limit(30.0)
    """Maximum time until a client cancels a call that gets no response (check C15)."""
    leak_calls: int = limit(4)
    """Number of calls between two measurements of the client's resource use (check C19)."""
    extra_descriptors: int = limit(2)
    """Maximum increase in the number of file descriptors from one measurement to the next (checks
    C04 and C19)."""
    extra_threads: int = limit(4)
    """Maximum increase in the number of threads from one measurement to the next (checks C04 and
    C19)."""
    stop_seconds: float = limit(10.0)
    """Maximum time from SIGTERM to the exit of the process (check C20)."""
    scrape_seconds: float = limit(1.0)
    """Time between two reads of the metrics page."""
    page_seconds: float = limit(10.0)
    """Maximum duration of one read of the metrics page."""
