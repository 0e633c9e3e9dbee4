"""The leases of many nodes, each renewed in time (component-helpers ``lease/controller.go``).

A queue by deadline and a few threads with connections of their own: whose deadline has passed
longest is next, and no burst of pods comes before it. One thread waits for the next deadline;
when it comes another takes the watch, and the first renews.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from typing import Any, Final, Protocol

import attrs

from devicemanager.cluster.client.errors import (
    ApiError,
    ClientClosing,
    Conflict,
    NotFound,
    Unavailable,
)
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.cluster.client.work_queue import start_another
from devicemanager.objects.status.node import lease_object, node_reference

__all__ = ["Lag", "LeaseApi", "LeaseController"]

PATH: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
THREADS: Final = 16
JITTER: Final = 0.04
FIRST_WAIT: Final = 0.2
LONGEST_WAIT: Final = 7.0
SOON: Final = 0.05
"""Seconds by which a renewal may be early, so that threads wake less often."""
LATE: Final = 10.0
"""Seconds after which the lag is said."""


class LeaseApi(Protocol):
    """What is asked of the API client; it should have connections of its own."""

    def attempt(
        self, method: str, path: str, body: JsonObject | None = None, *, user: str | None = None
    ) -> JsonObject:
        """One request."""


@attrs.define(eq=False)
class _Lease:
    """One node's. Only the thread that renews it changes it."""

    node: str
    uid: str
    due: float
    version: str | None = None
    """None: not created yet, or to be read again."""
    extra: dict[str, Any] = attrs.Factory(dict)
    """Labels and annotations that somebody put on it."""
    failures: int = 0
    silent: bool = False
    removed: bool = False


@attrs.frozen
class Lag:
    """How late renewals are, in seconds."""

    renewals: int
    worst: float
    """Of the last minute."""
    mean: float
    """Of all."""


class LeaseController:
    """Renews leases until closed. May be used from any thread."""

    def __init__(
        self,
        api: LeaseApi,
        *,
        duration: int = 40,
        threads: int = THREADS,
        as_nodes: bool = False,
        warn: Warn = lambda text: None,
    ) -> None:
        """``duration``: seconds that a lease holds; it is renewed after a quarter of that."""
        self._api = api
        self._duration = duration
        self._most = threads
        self._as_nodes = as_nodes
        self._warn = warn
        self._late = RateLimitedWarning(warn)
        # Guards the fields below; no request is made under it.
        self._changed = threading.Condition(threading.Lock())
        self._leases: dict[str, _Lease] = {}
        self._queue: list[tuple[float, int, _Lease]] = []
        self._number = 0
        self._threads: list[threading.Thread] = []
        self._is_watched = False
        self._closed = False
        self._renewals, self._lag, self._worst, self._worst_at = 0, 0.0, 0.0, 0.0

    # -- nodes -----------------------------------------------------------------------

    def add(self, node: str, uid: str) -> None:
        """As in ``protocol.Heartbeats``. A node that is there already gets the new UID."""
        with self._changed:
            if (known := self._leases.pop(node, None)) is not None:
                known.removed = True
            lease = self._leases[node] = _Lease(node, uid, time.monotonic())
            self._put(lease)

    def remove(self, node: str) -> None:
        """As in ``protocol.Heartbeats``; a renewal under way may still come through."""
        with self._changed:
            if (known := self._leases.pop(node, None)) is not None:
                known.removed = True

    def silence(self, node: str, silent: bool) -> None:
        """As in ``protocol.Heartbeats``."""
        with self._changed:
            if (known := self._leases.get(node)) is not None:
                known.silent = silent

    def _put(self, lease: _Lease) -> None:
        self._number += 1
        heapq.heappush(self._queue, (lease.due, self._number, lease))
        if len(self._threads) < min(self._most, len(self._leases)) and not self._closed:
            start_another(self._threads, self._run, "leases")
        if self._is_watched and self._queue[0][2] is lease:
            self._changed.notify_all()  # who watches waits for a later one

    # -- threads ---------------------------------------------------------------------

    def _run(self) -> None:
        while (lease := self._next()) is not None:
            due = lease.due
            try:
                wait = 0.0 if lease.silent else self._beat(lease)
            except ClientClosing:
                return
            except Exception as error:  # an answer that is none, such as a proxy's
                self._late(
                    f"lease of node {lease.node}: unexpected {type(error).__name__}: {error}"
                )
                wait = LONGEST_WAIT
            self._again(lease, due, wait)

    def _next(self) -> _Lease | None:
        """The lease that is due longest, once it is; None at the end."""
        with self._changed:
            while not self._closed:
                if self._is_watched:
                    self._changed.wait()
                    continue
                self._drop_removed()
                rest = self._queue[0][0] - time.monotonic() if self._queue else None
                if rest is not None and rest <= SOON:
                    lease = heapq.heappop(self._queue)[2]
                    self._changed.notify()  # somebody else takes the watch
                    return lease
                self._is_watched = True
                self._changed.wait(rest)
                self._is_watched = False
            return None

    def _drop_removed(self) -> None:
        while self._queue and self._queue[0][2].removed:
            heapq.heappop(self._queue)

    def _again(self, lease: _Lease, due: float, wait: float) -> None:
        """Line up for the next renewal: after ``wait`` seconds, or 0 for the usual time."""
        now = time.monotonic()
        usual = self._duration / 4 * (1 + random.uniform(0, JITTER))
        with self._changed:
            if not wait and not lease.silent:
                self._note(now, max(0.0, now - due))
            lease.due = now + wait if wait else max(due + usual, now)
            if not lease.removed and not self._closed:
                self._put(lease)

    def _note(self, now: float, lag: float) -> None:
        self._renewals += 1
        self._lag += lag
        if lag >= self._worst or now - self._worst_at > 60:
            self._worst, self._worst_at = lag, now
        if lag > LATE:
            self._late(
                f"API server is slow: leases late by {lag:.0f} s; fewer nodes, --lease-duration "
                "120 with the controllers' --node-monitor-grace-period raised, or a bigger "
                "control plane"
            )

    # -- one renewal -----------------------------------------------------------------

    def _beat(self, lease: _Lease) -> float:
        """Renew or create; returns the seconds until the next try, or 0 if it is done."""
        try:
            self._renew(lease)
        except (NotFound, Conflict):
            # Somebody else wrote it, or deleted it: see what there is.
            lease.version = None
            return self._failed(lease)
        except Unavailable as error:
            return max(error.wait, self._failed(lease))
        except ApiError as error:
            self._late(f"lease of node {lease.node}: {error}")
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
                _keep(lease, self._api.attempt("POST", PATH, self._body(lease), user=user))
                return
            except Conflict:
                # A lease of a life before this one, or of this one if its answer was lost.
                _keep(lease, self._api.attempt("GET", path, user=user))
        _keep(lease, self._api.attempt("PUT", path, self._body(lease), user=user))

    def _body(self, lease: _Lease) -> JsonObject:
        metadata: JsonObject = {
            "name": lease.node,
            "namespace": "kube-node-lease",
            "ownerReferences": [node_reference(lease.node, lease.uid)],
            **lease.extra,
        }
        if lease.version is not None:
            metadata["resourceVersion"] = lease.version
        return lease_object(metadata, lease.node, duration=self._duration, now=time.time())

    # -- measures and end ------------------------------------------------------------

    @property
    def lag(self) -> Lag:
        """How late renewals came through."""
        with self._changed:
            return Lag(self._renewals, self._worst, self._lag / max(1, self._renewals))

    def close(self, seconds: float = 5.0) -> None:
        """Renew nothing any more, and wait so long for what is under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = list(self._threads)
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _keep(lease: _Lease, answer: JsonObject) -> None:
    metadata = answer["metadata"]
    lease.version = metadata["resourceVersion"]
    lease.extra = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
