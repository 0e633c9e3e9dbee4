"""Shards: the distribution of nodes among processes. Node I is in shard I modulo N.

Shards are assigned by the user (``--shard K/N``), or with one Lease per shard (``--shards N``).
With Leases, several processes can try to take a free shard at the same time. Each write contains
the resource version that the process has read, so the API server accepts only the first write. The
processes communicate only through the API server.

Each process also holds a Lease that makes it a member of the group of processes (``Membership``).
The part of each process is the number of shards divided by the number of members, rounded up. A
process with more shards than its part gives shards back, one at a time. So shards are spread
evenly, regardless of which process started first.

A process takes a shard if the shard's Lease is free (``SharedLease``). The holder gives up the
shard ``GIVE_UP`` seconds after its last renewal, which is before the Lease expires. So it stops all
writes for the shard before another process can take it.

``ShardLeases.step`` and ``ShardLeases.expire`` run on separate threads, because a request in
``step`` that hangs must not delay ``expire``.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Final

import attrs

from devicemanager.client.api import ApiClient
from devicemanager.client.errors import ApiError, Conflict, NotFound, Unavailable
from devicemanager.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.cluster.shared_lease import INTERVAL, Membership, SharedLease

__all__ = ["Shard", "ShardLeases", "ShardRunner", "shard_option"]

GIVE_UP: Final = 10.0
"""A process gives up a shard this many seconds after the last renewal of the shard's Lease."""


@attrs.frozen
class Shard:
    """One of the shards into which nodes are divided.

    ``of`` is the number of shards. ``number`` is the number of this shard, from 0 to ``of`` - 1.
    """

    number: int
    of: int

    def has(self, index: int) -> bool:
        """True if the node with the number ``index`` is in this shard."""
        return index % self.of == self.number


def shard_option(text: str) -> Shard:
    """Parse a shard such as ``0/3``: ``K/N`` with K from 0 to N - 1. Raises ValueError for any
    other text."""
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise ValueError(f"invalid shard {text!r}: expected K/N, such as 0/3, 1/3 or 2/3")
    return Shard(int(match[1]), int(match[2]))


class ShardLeases:
    """Controller that acquires and renews the Leases of shards.

    ``start`` runs ``step`` and ``expire`` repeatedly, each on a thread.
    """

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
        """Create a controller for ``shards`` Leases in ``namespace``; ``start`` starts it.

        ``on_acquired`` and ``on_lost`` are called with the number of a shard and must return
        quickly. ``on_lost`` must stop all writes for the shard. If ``on_acquired`` raises an
        error, the shard is released.
        """
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

        def lease(name: str) -> SharedLease:
            return SharedLease(api, path, name, identity, monotonic)

        self._leases = [lease(f"{prefix}-{number}") for number in range(shards)]
        self._members = Membership(
            [lease(f"{prefix}-member-{number}") for number in range(shards)], monotonic
        )
        self._on_acquired = on_acquired
        self._on_lost = on_lost
        self._warn = RateLimitedWarning(warn)
        self._monotonic = monotonic
        # Guards _held; no request is sent with the lock held.
        self._lock = threading.Lock()
        self._held: set[int] = set()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def held(self) -> frozenset[int]:
        """The numbers of the shards that this process holds."""
        with self._lock:
            return frozenset(self._held)

    def start(self) -> None:
        """Start to acquire and renew Leases, on two threads, until ``stop``."""
        for name, work in (("shards", self.step), ("shards expire", self.expire)):
            thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop the threads, release all shards that this process holds, and end its membership."""
        self._stopping.set()
        # The threads must end first, because a renewal in flight would take a released shard
        # again.
        for thread in self._threads:
            thread.join(GIVE_UP)
        for number in sorted(self.held):
            self._release(number)
        self._members.leave()

    def _run(self, work: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                work()
            except Exception as error:  # a malformed response, such as from a proxy
                self._warn(f"shards: unexpected {type(error).__name__}: {error}")
            self._stopping.wait(INTERVAL)

    def step(self) -> None:
        """Renew the Leases that are due. Then take free shards until this process has its part of
        the shards, or give back one shard if it has more."""
        for number in sorted(self.held):
            if self._leases[number].is_due():
                self._renew(number)
        try:
            members = self._members.step()
            # Read in every step: the time of the last change must be known when a holder dies.
            # Leases of held shards are not read: with the version of another holder, the next
            # renewal would overwrite that holder instead of failing with a conflict.
            for number, lease in enumerate(self._leases):
                if number not in self.held:
                    lease.read()
        except (Unavailable, ApiError) as error:
            self._warn(f"cannot read the leases of shards and processes: {error}")
            return
        if not self._members.is_settled:
            return
        # Rounded up, because with 3 shards and 2 processes one shard would otherwise stay free.
        part = -(-len(self._leases) // members)
        held = self.held
        if len(held) > part:
            # One at a time: the others take it before the next one is given back.
            self._give_back(max(held))
        elif len(held) < part:
            self._acquire_free(part)

    def expire(self) -> None:
        """Give up each shard whose Lease was not renewed for ``GIVE_UP`` seconds: call ``on_lost``
        for the shard."""
        for number in sorted(self.held):
            if self._monotonic() - self._leases[number].renewed >= GIVE_UP:
                self._lose(number)

    # -- shards that we hold ---------------------------------------------------------

    def _renew(self, number: int) -> None:
        try:
            self._leases[number].write()
        except (Conflict, NotFound):
            # Another process took the Lease, or a user deleted it.
            self._leases[number].forget()
            self._lose(number)
        except (Unavailable, ApiError) as error:
            self._warn(f"cannot renew shard {number}: {error}")

    def _lose(self, number: int) -> None:
        if not self._drop(number):
            return
        self._warn(f"shard {number} lost: another process can run its nodes")
        self._on_lost(number)

    def _drop(self, number: int) -> bool:
        # ``step`` and ``expire`` can drop the same shard at the same time, and only one of them may
        # call ``on_lost``.
        with self._lock:
            was_held = number in self._held
            self._held.discard(number)
        return was_held

    def _give_back(self, number: int) -> None:
        self._warn(f"shard {number} given back: another process has fewer shards")
        self._release(number)

    def _release(self, number: int) -> None:
        if not self._drop(number):
            return
        # The nodes must stop first: once the Lease is free, another process may run them.
        self._on_lost(number)
        try:
            self._leases[number].write(holder="")
        except (Unavailable, ApiError):
            return  # the Lease expires

    # -- shards of other processes ---------------------------------------------------

    def _acquire_free(self, part: int) -> None:
        """Acquire free shards, until this process has ``part`` shards."""
        for number, lease in enumerate(self._leases):
            if len(self.held) >= part:
                return
            # Another process can take the shard first; the resource version decides.
            if number not in self.held and lease.is_free():
                self._acquire(number)

    def _acquire(self, number: int) -> None:
        try:
            self._leases[number].write()
        except (Conflict, NotFound):
            return  # another process was faster
        except (Unavailable, ApiError) as error:
            self._warn(f"cannot acquire shard {number}: {error}")
            return
        # Before the callback: the nodes that it lets join ask whether the shard is still held.
        with self._lock:
            self._held.add(number)
        try:
            self._on_acquired(number)
        except Exception as error:  # no thread can be started, or standard output is closed
            self._warn(f"shard {number} released: {error}")
            self._release(number)


class _Tenure:
    """Period for which this process holds a shard, from its acquisition until its loss."""

    def __init__(self, is_held: Callable[[], bool]) -> None:
        self._is_held = is_held
        self.lost = threading.Event()
        self.joined = threading.Event()
        """Set when the function ``join``, an argument of ``ShardRunner``, has returned. After that,
        no more nodes of the shard join, until the process acquires the shard again."""

    def is_over(self) -> bool:
        """True if nothing may be written for the shard any more.

        True if ``lost`` is set, or if ``is_held`` returns False. Both are checked, because
        ``is_held`` returns False even before ``lost`` is set. If the process acquires the shard
        again, ``is_held`` returns True, but ``lost`` stays set.
        """
        return self.lost.is_set() or not self._is_held()


class ShardRunner:
    """Runner of the nodes of all shards that this process holds.

    It lets the nodes of an acquired shard join. When the process loses a shard, it stops running
    the nodes and leaves their objects on the API server unchanged (``abandon``).
    """

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
        """Create a runner; ``start`` starts to acquire shards.

        ``join`` is called with a shard and a function ``is_over``. ``join`` must block until the
        nodes of the shard have joined. Once ``is_over`` returns True, ``join`` must stop and
        abandon the nodes.
        """
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
            # The next tenure would wait for ``joined`` of this one, which only the thread sets.
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
            # The nodes of the earlier tenure have the same names, and some can still be joining.
            before.joined.wait()
        try:
            self._join(shard, tenure.is_over)
        except Exception as error:  # such as a kubelet that cannot start
            self._warn(f"shard {shard.number}: {error}")
        finally:
            tenure.joined.set()
