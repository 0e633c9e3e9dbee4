"""Shards: which process runs which nodes. Node I is in shard I modulo N.

Shards are assigned by hand (``--shard K/N``), or with one Lease per shard (``--shards N``): the
process that first writes the Lease with the version it has read gets the shard. The API server
is all that the processes share.

No clocks are compared. A process takes a shard when it has seen no change of the Lease for as
long as the Lease is valid, by its own clock. The holder gives up earlier (``GIVE_UP``), after
its last successful renewal, and stops all writes for that shard before it can be taken.

Two threads work on the Leases: a request that hangs in ``step`` must not delay ``expire``.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Final

import attrs

from devicemanager.cluster.client.api import ApiClient
from devicemanager.cluster.client.errors import ApiError, Conflict, NotFound, Unavailable
from devicemanager.cluster.client.protocol import JsonObject
from devicemanager.cluster.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.objects.status.node import lease_object

__all__ = ["Shard", "ShardLeases", "ShardRunner", "shard_option"]

DURATION: Final = 15
"""Validity of a Lease in seconds."""
RENEWAL: Final = 5.0
"""Seconds between renewals."""
INTERVAL: Final = 1.0
"""Seconds between checks of other processes' Leases."""
GIVE_UP: Final = 10.0
"""Seconds without a renewal after which a process gives a shard up."""


@attrs.frozen
class Shard:
    """One of several parts of all nodes."""

    number: int
    of: int

    def has(self, index: int) -> bool:
        """True if node ``index`` is in this shard."""
        return index % self.of == self.number


def shard_option(text: str) -> Shard:
    """Parse ``K/N``, with K from 0 to N - 1. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise ValueError(f"invalid shard {text!r}: expected K/N, such as 0/3, 1/3 or 2/3")
    return Shard(int(match[1]), int(match[2]))


@attrs.define
class _Lease:
    """What this process knows of one shard's Lease."""

    holder: str = ""
    version: str | None = None
    changed: float = float("-inf")
    """When a change was last seen, by our clock."""
    spec: str = ""
    duration: float = DURATION
    renewed: float = float("-inf")
    """When we last wrote it."""


class ShardLeases:
    """The Leases of shards, acquired and renewed. ``start`` runs ``step`` and ``expire``, each
    on a thread."""

    def __init__(
        self,
        api: ApiClient,
        namespace: str,
        shards: int,
        identity: str,
        *,
        on_acquired: Callable[[int], None],
        on_lost: Callable[[int], None],
        warn: Warn = lambda text: None,
        monotonic: Callable[[], float] = time.monotonic,
        prefix: str = "devicemanager-shard",
    ) -> None:
        """Callbacks get the shard's number and must return quickly. After ``on_lost`` starts,
        nothing may be written for the shard. If ``on_acquired`` raises, the shard is released."""
        self._api = api
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._leases = [_Lease() for _ in range(shards)]
        self._identity = identity
        self._on_acquired = on_acquired
        self._on_lost = on_lost
        self._warn = RateLimitedWarning(warn)
        self._monotonic = monotonic
        self._prefix = prefix
        # Guards _held and the leases' ``renewed``; no request is sent under it.
        self._lock = threading.Lock()
        self._held: set[int] = set()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def held(self) -> frozenset[int]:
        """Numbers of the shards that this process holds."""
        with self._lock:
            return frozenset(self._held)

    def start(self) -> None:
        """Acquire and renew on threads until ``stop``."""
        for name, work in (("shards", self.step), ("shards expire", self.expire)):
            thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Release all shards."""
        self._stopping.set()
        # A renewal in flight would otherwise take the shard back after the release.
        for thread in self._threads:
            thread.join(GIVE_UP)
        for number in sorted(self.held):
            self._release(number)

    def _run(self, work: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                work()
            except Exception as error:  # a malformed response, such as from a proxy
                self._warn(f"shards: unexpected {type(error).__name__}: {error}")
            self._stopping.wait(INTERVAL)

    def step(self) -> None:
        """Renew the Leases that are due, and acquire free ones."""
        for number in sorted(self.held):
            if self._monotonic() - self._leases[number].renewed >= RENEWAL:
                self._renew(number)
        if len(self.held) < len(self._leases):
            self._acquire_free()

    def expire(self) -> None:
        """Give up the shards that were not renewed in time."""
        for number in sorted(self.held):
            if self._monotonic() - self._leases[number].renewed >= GIVE_UP:
                self._lose(number)

    # -- shards that we hold ---------------------------------------------------------

    def _renew(self, number: int) -> None:
        try:
            self._write(number)
        except (Conflict, NotFound):
            # Another process took it, or a user deleted it.
            self._leases[number].version = None
            self._lose(number)
        except (Unavailable, ApiError) as error:
            self._warn(f"cannot renew shard {number}: {error}")

    def _lose(self, number: int) -> None:
        if not self._drop(number):
            return
        self._warn(f"shard {number} lost: its nodes are left to another process")
        self._on_lost(number)

    def _drop(self, number: int) -> bool:
        with self._lock:
            was_held = number in self._held
            self._held.discard(number)
        return was_held

    def _release(self, number: int) -> None:
        if not self._drop(number):
            return
        self._on_lost(number)
        try:
            self._write(number, holder="")
        except (Unavailable, ApiError):
            return  # the Lease expires

    # -- shards of other processes ---------------------------------------------------

    def _acquire_free(self) -> None:
        """Acquire free shards, up to an equal part for each holder."""
        held = self.held
        for number in range(len(self._leases)):
            if number not in held:
                try:
                    self._read(number)
                except (Unavailable, ApiError) as error:
                    self._warn(f"cannot read the lease of shard {number}: {error}")
                    return
        now = self._monotonic()
        holders = {
            lease.holder
            for number, lease in enumerate(self._leases)
            if number not in held and not self._is_free(lease, now)
        }
        # Rounded up, or with 3 shards and 2 processes one shard would stay free.
        most = -(-len(self._leases) // (len(holders) + 1))
        for number, lease in enumerate(self._leases):
            if len(self.held) >= most:
                return
            # Other processes may take it first; the resource version decides.
            if number not in held and self._is_free(lease, now):
                self._acquire(number)

    def _is_free(self, lease: _Lease, now: float) -> bool:
        return not lease.holder or now - lease.changed >= lease.duration

    def _read(self, number: int) -> None:
        lease = self._leases[number]
        try:
            found = self._api.attempt("GET", f"{self._path}/{self._prefix}-{number}")
        except NotFound:
            lease.holder, lease.version = "", None
            return
        spec = found.get("spec") or {}
        lease.version = found["metadata"]["resourceVersion"]
        if str(spec) != lease.spec:
            lease.spec, lease.changed = str(spec), self._monotonic()
            lease.holder = spec.get("holderIdentity") or ""
            lease.duration = float(spec.get("leaseDurationSeconds") or DURATION)

    def _acquire(self, number: int) -> None:
        try:
            self._write(number)
        except (Conflict, NotFound):
            return  # another process was faster
        except (Unavailable, ApiError) as error:
            self._warn(f"cannot acquire shard {number}: {error}")
            return
        with self._lock:
            self._held.add(number)
        try:
            self._on_acquired(number)
        except Exception as error:  # no thread can be started, or standard output is closed
            self._warn(f"shard {number} released: {error}")
            self._release(number)

    # -- requests --------------------------------------------------------------------

    def _write(self, number: int, holder: str | None = None) -> None:
        """Write the Lease of a shard. Raises ApiError or Unavailable."""
        lease = self._leases[number]
        # Before the request: other processes see the change later than that.
        began = self._monotonic()
        name = f"{self._prefix}-{number}"
        metadata: JsonObject = {"name": name}
        if lease.version is not None:
            metadata["resourceVersion"] = lease.version
        holder = self._identity if holder is None else holder
        body = lease_object(metadata, holder, duration=DURATION, now=time.time())
        if lease.version is None:
            response = self._api.attempt("POST", self._path, body)
        else:
            response = self._api.attempt("PUT", f"{self._path}/{name}", body)
        lease.version = response["metadata"]["resourceVersion"]
        with self._lock:
            # The next ``_read`` sees a changed spec. So a process that loses a shard counts from
            # then on, as the others do, and does not take the shard again at once.
            lease.holder, lease.renewed, lease.spec = self._identity, began, ""


class _Tenure:
    """The time from the acquisition of a shard until it is lost."""

    def __init__(self, is_held: Callable[[], bool]) -> None:
        self._is_held = is_held
        self.lost = threading.Event()
        self.joined = threading.Event()
        """Set once no more of its nodes join. If the tenure is over, its nodes are gone then."""

    def is_over(self) -> bool:
        """True if nothing may be written for the shard.

        Both conditions are needed: ``is_held`` becomes False before ``lost`` is set, and True
        again if the shard is acquired again.
        """
        return self.lost.is_set() or not self._is_held()


class ShardRunner:
    """Runner of the nodes of acquired shards; abandons those of lost shards."""

    def __init__(
        self,
        api: ApiClient,
        namespace: str,
        shards: int,
        identity: str,
        *,
        join: Callable[[Shard, Callable[[], bool]], None],
        abandon: Callable[[Shard], None],
        warn: Warn,
    ) -> None:
        """``join`` blocks until the nodes of a shard have joined; it must stop, and abandon
        them, once the function that it gets returns True."""
        self._shards = shards
        self._join = join
        self._abandon = abandon
        self._warn = warn
        self._tenures: dict[int, _Tenure] = {}
        self._leases = ShardLeases(
            api,
            namespace,
            shards,
            identity,
            on_acquired=self._on_acquired,
            on_lost=self._on_lost,
            warn=warn,
        )
        self.start = self._leases.start
        self.stop = self._leases.stop

    def _on_acquired(self, number: int) -> None:
        self._warn(f"shard {number} of {self._shards} acquired: its nodes join")
        before = self._tenures.get(number)
        tenure = _Tenure(lambda: number in self._leases.held)
        shard = Shard(number, self._shards)
        thread = threading.Thread(target=self._run, args=(shard, tenure, before), daemon=True)
        self._tenures[number] = tenure
        try:
            thread.start()
        except RuntimeError:
            # The next tenure waits for ``joined`` of the one before it, which only the thread
            # sets.
            self._tenures.pop(number)
            if before is not None:
                self._tenures[number] = before
            raise

    def _on_lost(self, number: int) -> None:
        # If the warning in ``_on_acquired`` raised, it did not store a tenure.
        if tenure := self._tenures.get(number):
            tenure.lost.set()
        self._abandon(Shard(number, self._shards))

    def _run(self, shard: Shard, tenure: _Tenure, before: _Tenure | None) -> None:
        if before is not None:
            # Its nodes have the same names, and some may still be joining.
            before.joined.wait()
        try:
            self._join(shard, tenure.is_over)
        except Exception as error:  # such as a kubelet that cannot start
            self._warn(f"shard {shard.number}: {error}")
        finally:
            tenure.joined.set()
