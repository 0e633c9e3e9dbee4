"""Which process runs which nodes: node I is in shard I modulo n, and a shard is one process's.

By hand, or by claim: a Lease for each shard, and whoever writes it first with the version it
read has it. The API server is all that the processes share.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

import attrs

from devicemanager.cluster.client.errors import ApiError, Conflict, NotFound, Unavailable
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.objects.status.node import lease_object

__all__ = ["Shard", "ShardClaims", "shard_option"]

DURATION: Final = 15
"""Seconds that a claim holds."""
RENEWAL: Final = 5.0
"""Seconds between renewals."""
LOOK: Final = 1.0
"""Seconds between two looks at others' shards."""
GIVE_UP: Final = 10.0
"""Seconds without a renewal after which a shard's writes stop: before anybody may take it."""


@attrs.frozen
class Shard:
    """One of several parts of all nodes."""

    number: int
    of: int

    def has(self, index: int) -> bool:
        """Whether node ``index`` is in it."""
        return index % self.of == self.number


def shard_option(text: str) -> Shard:
    """Read ``K/N``, from 0 to N - 1. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise ValueError(f"{text!r} is not like 0/3, 1/3 or 2/3")
    return Shard(int(match[1]), int(match[2]))


class LeaseApi(Protocol):
    """What is asked of the API client."""

    def attempt(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        """One request."""


@attrs.define
class _Claim:
    """What this process knows of one shard's Lease."""

    holder: str = ""
    version: str | None = None
    changed: float = float("-inf")
    """When the Lease was seen to be different, by our clock; nobody compares clocks."""
    spec: str = ""
    duration: float = DURATION
    renewed: float = float("-inf")
    """When we last wrote it."""


class ShardClaims:
    """Claims shards and keeps them. One thread calls ``step`` and another ``expire``, which
    ``start`` sees to: a request that hangs must not keep a shard."""

    def __init__(
        self,
        api: LeaseApi,
        namespace: str,
        shards: int,
        identity: str,
        *,
        taken: Callable[[int], None],
        lost: Callable[[int], None],
        warn: Warn = lambda text: None,
        monotonic: Callable[[], float] = time.monotonic,
        prefix: str = "devicemanager-shard",
    ) -> None:
        """``taken`` is called with a shard's number once it is ours, ``lost`` as soon as it may
        not be; after that nothing may be written for it. Neither may take long. A shard for
        which ``taken`` raises is given back."""
        self._api = api
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._claims = [_Claim() for _ in range(shards)]
        self._identity = identity
        self._taken = taken
        self._lost = lost
        self._warn = RateLimitedWarning(warn)
        self._monotonic = monotonic
        self._prefix = prefix
        # Guards _ours and the claims' ``renewed``; no request is made under it.
        self._lock = threading.Lock()
        self._ours: set[int] = set()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def ours(self) -> frozenset[int]:
        """The shards that are ours."""
        with self._lock:
            return frozenset(self._ours)

    def start(self) -> None:
        """Claim and renew on threads until ``stop``."""
        for name, work in (("shards", self.step), ("shards expire", self.expire)):
            thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Give all shards back."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(GIVE_UP)
        for number in sorted(self.ours):
            self._release(number)

    def _run(self, work: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                work()
            except Exception as error:  # an answer that is none, such as a proxy's
                self._warn(f"shards: unexpected {type(error).__name__}: {error}")
            self._stopping.wait(LOOK)

    def step(self) -> None:
        """Renew what is ours and due, and take what is free."""
        for number in sorted(self.ours):
            if self._monotonic() - self._claims[number].renewed >= RENEWAL:
                self._renew(number)
        if len(self.ours) < len(self._claims):
            self._look()

    def expire(self) -> None:
        """Give up what could not be renewed in time."""
        for number in sorted(self.ours):
            if self._monotonic() - self._claims[number].renewed >= GIVE_UP:
                self._lose(number)

    # -- ours ------------------------------------------------------------------------

    def _renew(self, number: int) -> None:
        try:
            self._write(number)
        except (Conflict, NotFound):
            self._claims[number].version = None
            self._lose(number)  # somebody else wrote it, or took it away
        except (Unavailable, ApiError) as error:
            self._warn(f"shard {number} cannot be renewed: {error}")

    def _lose(self, number: int) -> None:
        if not self._drop(number):
            return
        self._warn(f"shard {number} is no longer ours: its nodes are left to another process")
        self._lost(number)

    def _drop(self, number: int) -> bool:
        with self._lock:
            was_ours = number in self._ours
            self._ours.discard(number)
        self._claims[number].changed = self._monotonic()
        return was_ours

    def _release(self, number: int) -> None:
        if not self._drop(number):
            return
        self._lost(number)
        try:
            self._write(number, holder="")
        except (Unavailable, ApiError):
            return  # it runs out

    # -- others ----------------------------------------------------------------------

    def _look(self) -> None:
        """Take free shards, at most our part of all."""
        ours = self.ours
        for number in range(len(self._claims)):
            if number not in ours:
                try:
                    self._read(number)
                except (Unavailable, ApiError) as error:
                    self._warn(f"shard {number} cannot be looked at: {error}")
                    return
        now = self._monotonic()
        holders = {
            claim.holder
            for number, claim in enumerate(self._claims)
            if number not in ours and not self._is_free(claim, now)
        }
        most = -(-len(self._claims) // (len(holders) + 1))
        for number, claim in enumerate(self._claims):
            if len(self.ours) >= most:
                return
            if number not in ours and self._is_free(claim, now):
                self._take(number)

    def _is_free(self, claim: _Claim, now: float) -> bool:
        return not claim.holder or now - claim.changed >= claim.duration

    def _read(self, number: int) -> None:
        claim = self._claims[number]
        try:
            found = self._api.attempt("GET", f"{self._path}/{self._prefix}-{number}")
        except NotFound:
            claim.holder, claim.version = "", None
            return
        spec = found.get("spec") or {}
        claim.version = found["metadata"]["resourceVersion"]
        if str(spec) != claim.spec:
            claim.spec, claim.changed = str(spec), self._monotonic()
            claim.holder = spec.get("holderIdentity") or ""
            claim.duration = float(spec.get("leaseDurationSeconds") or DURATION)

    def _take(self, number: int) -> None:
        try:
            self._write(number)
        except (Conflict, NotFound):
            return  # another one was quicker
        except (Unavailable, ApiError) as error:
            self._warn(f"shard {number} cannot be taken: {error}")
            return
        with self._lock:
            self._ours.add(number)
        try:
            self._taken(number)
        except Exception as error:  # no thread is left, or no line can be printed
            self._warn(f"shard {number} is given back: {error}")
            self._release(number)

    # -- the Lease -------------------------------------------------------------------

    def _write(self, number: int, holder: str | None = None) -> None:
        """Raises ApiError or Unavailable."""
        claim = self._claims[number]
        # Before the request: what the server stores is at least as new.
        began = self._monotonic()
        name = f"{self._prefix}-{number}"
        metadata: JsonObject = {"name": name}
        if claim.version is not None:
            metadata["resourceVersion"] = claim.version
        held_by = self._identity if holder is None else holder
        body = lease_object(metadata, held_by, duration=DURATION, now=time.time())
        if claim.version is None:
            answer = self._api.attempt("POST", self._path, body)
        else:
            answer = self._api.attempt("PUT", f"{self._path}/{name}", body)
        claim.version = answer["metadata"]["resourceVersion"]
        with self._lock:
            claim.holder, claim.renewed, claim.spec = self._identity, began, ""
