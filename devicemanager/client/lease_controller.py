"""Leases of many nodes, each renewed on time (component-helpers ``lease/controller.go``).

Leases are ordered by deadline. A few threads renew them, on connections that only they use, so
that a burst of pods cannot delay a heartbeat.

One thread at a time is the watcher: it waits for the next deadline. When a lease is due, another
thread becomes the watcher, and the previous watcher renews the lease. The previous watcher also
renews the leases that are due soon, so that most deadlines wake no thread at all.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import deque
from itertools import count
from typing import Any, Final

import attrs

from devicemanager.client.api import ApiClient
from devicemanager.client.errors import (
    ApiError,
    ClientClosing,
    Conflict,
    NotFound,
    Unavailable,
)
from devicemanager.client.protocol import JsonObject
from devicemanager.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.client.work_queue import join_threads, start_another
from devicemanager.objects.status.node import lease_object, node_reference

__all__ = ["LeaseController", "LeaseLag"]

HOLDER: Final = "devicemanager.io/holder"
"""Annotation of a Lease with the name of the process that renews the Lease. The field
``holderIdentity`` cannot name the process, because its value must be the name of the node."""
PATH: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
THREADS: Final = 16
JITTER: Final = 0.04
FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 7.0
SOON: Final = 0.05
"""Seconds by which a renewal may be early, so that one thread can renew several leases."""
LATE: Final = 10.0
"""Seconds of delay above which a renewal causes a warning."""


@attrs.define(eq=False)
class _Lease:
    """State of one node's Lease.

    Only the thread that renews the Lease changes it, except ``paused`` and ``removed``.
    """

    node: str
    uid: str
    due: float
    """Time of the next attempt to renew the Lease (monotonic, in seconds)."""
    wanted: float
    """Deadline of the renewal (monotonic, in seconds). A failed attempt does not change it."""
    version: str | None = None
    """``resourceVersion`` of the Lease; None if it must be created or read again."""
    extra: dict[str, Any] = attrs.Factory(dict)
    """Labels and annotations that other clients set."""
    failures: int = 0
    paused: bool = False
    removed: bool = False


@attrs.frozen
class LeaseLag:
    """Statistics on how late Leases were renewed, in seconds.

    ``renewals`` is the number of renewals.
    """

    renewals: int
    worst: float
    """Largest delay in the minute before the last renewal, in seconds."""
    mean: float
    """Mean delay of all renewals, in seconds."""


class LeaseController:
    """Controller that renews the Leases of many nodes until ``close``. Thread-safe."""

    def __init__(
        self,
        api: ApiClient,
        *,
        duration: int = 40,
        threads: int = THREADS,
        as_nodes: bool = False,
        holder: str = "",
        warn: Warn = lambda text: None,
    ) -> None:
        """Create a controller without Leases.

        ``holder``: value of the annotation ``HOLDER`` of each Lease; empty for no annotation.

        ``duration``: validity of a Lease in seconds; a Lease is renewed after a quarter of this
        time. ``as_nodes``: True to impersonate the node in requests. ``api`` should be a client
        that is used only for Leases.
        """
        self._api = api
        self._duration = duration
        self._max_threads = threads
        self._as_nodes = as_nodes
        self._holder = holder
        self._warn = RateLimitedWarning(warn)
        # Guards the fields below; no request is sent under it.
        self._changed = threading.Condition(threading.Lock())
        self._leases: dict[str, _Lease] = {}
        self._queue: list[tuple[float, int, _Lease]] = []
        # Breaks ties in the heap, because leases cannot be compared.
        self._numbers = count()
        self._threads: list[threading.Thread] = []
        self._is_watched = False
        self._closed = False
        self._renewals, self._lag = 0, 0.0
        # Times and delays of the last minute, without those that a larger one followed.
        self._worst: deque[tuple[float, float]] = deque()

    # -- nodes -----------------------------------------------------------------------

    def add(self, node: str, uid: str) -> None:
        """Queue the creation of a node's Lease, and renew the Lease until ``remove``.

        ``uid`` is the UID of the Node. An existing Lease is updated.
        """
        now = time.monotonic()
        with self._changed:
            if (known := self._leases.pop(node, None)) is not None:
                known.removed = True
            lease = self._leases[node] = _Lease(node, uid, now, now)
            self._put(lease)

    def remove(self, node: str) -> None:
        """Stop renewing the Lease of a node. A request in flight can still succeed."""
        with self._changed:
            if (known := self._leases.pop(node, None)) is not None:
                known.removed = True

    def pause(self, node: str, paused: bool) -> None:
        """Pause the renewal of a node's Lease, or resume it if ``paused`` is False."""
        with self._changed:
            if (known := self._leases.get(node)) is not None:
                known.paused = paused

    def _put(self, lease: _Lease) -> None:
        heapq.heappush(self._queue, (lease.due, next(self._numbers), lease))
        # There are never more threads than leases: a process with one node needs one.
        if len(self._threads) < min(self._max_threads, len(self._leases)) and not self._closed:
            start_another(self._threads, self._run, "leases")
        if self._is_watched and self._queue[0][2] is lease:
            self._changed.notify_all()  # the watcher waits for a later deadline

    # -- threads ---------------------------------------------------------------------

    def _run(self) -> None:
        while (lease := self._next()) is not None:
            due = lease.due
            try:
                # A paused lease stays in the queue, so that nothing has to wake up when it
                # resumes.
                wait = 0.0 if lease.paused else self._attempt(lease)
            except ClientClosing:
                return
            except Exception as error:  # a malformed response, such as from a proxy
                self._warn(
                    f"lease of node {lease.node}: unexpected {type(error).__name__}: {error}"
                )
                wait = LONGEST_WAIT
            self._again(lease, due, wait)

    def _next(self) -> _Lease | None:
        """Wait until a lease is due and return it, the most overdue first; return None after
        ``close``."""
        with self._changed:
            while not self._closed:
                self._drop_removed()
                remaining = self._queue[0][0] - time.monotonic() if self._queue else None
                if remaining is not None and remaining <= SOON:
                    lease = heapq.heappop(self._queue)[2]
                    if not self._is_watched:
                        self._changed.notify()  # another thread becomes the watcher
                    return lease
                if self._is_watched:
                    self._changed.wait()
                    continue
                self._is_watched = True
                self._changed.wait(remaining)
                self._is_watched = False
            return None

    def _drop_removed(self) -> None:
        while self._queue and self._queue[0][2].removed:
            heapq.heappop(self._queue)

    def _again(self, lease: _Lease, due: float, wait: float) -> None:
        """Queue the next attempt after ``wait`` seconds.

        If ``wait`` is 0, the next attempt is one renewal interval after ``due``, the deadline of
        the last attempt.
        """
        now = time.monotonic()
        # As in the kubelet. Without jitter, nodes that joined together would always renew their
        # leases at the same time.
        interval = self._duration / 4 * (1 + random.uniform(0, JITTER))
        with self._changed:
            if not wait and not lease.paused:
                self._note(now, max(0.0, now - lease.wanted))
            # Counted from the last deadline, because otherwise each delay would shift all later
            # renewals. Renewals that were missed during an outage are skipped.
            if wait:
                lease.due = now + wait
            else:
                lease.due = lease.wanted = max(due + interval, now)
            if not lease.removed and not self._closed:
                self._put(lease)

    def _note(self, now: float, lag: float) -> None:
        self._renewals += 1
        self._lag += lag
        while self._worst and self._worst[-1][1] <= lag:
            self._worst.pop()
        self._worst.append((now, lag))
        while now - self._worst[0][0] > 60:
            self._worst.popleft()
        if lag > LATE:
            self._warn(
                f"API server is slow or was unavailable: leases are {lag:.0f} s late; use fewer "
                "nodes, a larger control plane, or --lease-duration 120 with a longer "
                "--node-monitor-grace-period of the controllers"
            )

    # -- one renewal -----------------------------------------------------------------

    def _attempt(self, lease: _Lease) -> float:
        """Renew or create a lease; return 0 on success, else the seconds until the next
        attempt."""
        try:
            self._renew(lease)
        except (NotFound, Conflict):
            # Another client deleted or changed the lease: create it or read it again.
            lease.version = None
            return self._failed(lease)
        except Unavailable as error:
            return max(error.wait, self._failed(lease))
        except ApiError as error:
            self._warn(f"lease of node {lease.node}: {error}")
            # Probably a permission is missing. A quick retry would not help. The next status
            # update makes the node leave.
            return max(LONGEST_WAIT, self._failed(lease))
        lease.failures = 0
        return 0.0

    def _failed(self, lease: _Lease) -> float:
        most = min(LONGEST_WAIT, FIRST_WAIT * 2**lease.failures)
        lease.failures = min(lease.failures + 1, 10)
        return random.uniform(most / 2, most)

    def _renew(self, lease: _Lease) -> None:
        user = lease.node if self._as_nodes else None
        path = f"{PATH}/{lease.node}"
        if lease.version is None:
            try:
                _note_response(lease, self._api.attempt("POST", PATH, self._body(lease), user=user))
                return
            except Conflict:
                # The lease was created before this process started, or by a POST whose response
                # was lost.
                _note_response(lease, self._api.attempt("GET", path, user=user))
        _note_response(lease, self._api.attempt("PUT", path, self._body(lease), user=user))

    def _body(self, lease: _Lease) -> JsonObject:
        metadata: JsonObject = {
            "name": lease.node,
            "namespace": "kube-node-lease",
            "ownerReferences": [node_reference(lease.node, lease.uid)],
            **lease.extra,
        }
        if self._holder:
            metadata["annotations"] = {**metadata.get("annotations", {}), HOLDER: self._holder}
        if lease.version is not None:
            metadata["resourceVersion"] = lease.version
        return lease_object(metadata, lease.node, duration=self._duration, now=time.time())

    # -- measurements and end --------------------------------------------------------

    @property
    def lag(self) -> LeaseLag:
        """Statistics on how late the Leases were renewed."""
        with self._changed:
            worst = self._worst[0][1] if self._worst else 0.0
            return LeaseLag(self._renewals, worst, self._lag / max(1, self._renewals))

    def close(self, seconds: float = 5.0) -> None:
        """Stop all renewals, and wait up to ``seconds`` for requests in flight."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = list(self._threads)
        join_threads(threads, seconds)


def _note_response(lease: _Lease, response: JsonObject) -> None:
    """Store the version, labels and annotations from a response, so that the next PUT needs no GET
    before it."""
    metadata = response["metadata"]
    lease.version = metadata["resourceVersion"]
    lease.extra = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
