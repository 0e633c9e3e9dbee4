"""Leases for which several processes compete: one per shard, and one per process.

Several processes can try to take a Lease at the same time. Each write contains the resource version
that the process has read, so the API server accepts only the first write. A Lease is free if it has
no holder, or if it has not changed for ``leaseDurationSeconds``. Each process measures this time
with its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from devicemanager.client.api import ApiClient
from devicemanager.client.errors import ApiError, Conflict, NotFound, Unavailable
from devicemanager.client.protocol import JsonObject
from devicemanager.objects.status.node import lease_object

__all__ = ["DURATION", "INTERVAL", "RENEWAL", "Membership", "SharedLease"]

DURATION: Final = 15
"""A Lease expires this many seconds after its last renewal (``leaseDurationSeconds``)."""
RENEWAL: Final = 5.0
"""Seconds between renewals."""
INTERVAL: Final = 1.0
"""Seconds between checks of other processes' Leases."""
SETTLED: Final = 2.0
"""Seconds that a new member of the group (``Membership``) waits before it takes shards. So
processes that start together know each other before they take shards."""


class SharedLease:
    """State of one Lease, as this process has last read or written it. Not thread-safe."""

    def __init__(
        self,
        api: ApiClient,
        path: str,
        name: str,
        identity: str,
        monotonic: Callable[[], float],
    ) -> None:
        """Create the object; no request is sent yet.

        ``path``: API path of all Leases in the namespace. ``name``: name of the Lease.
        ``identity``: identity of this process.
        """
        self._api = api
        self._path = path
        self._name = name
        self._identity = identity
        self._monotonic = monotonic
        self._version: str | None = None
        self._changed = float("-inf")
        """Time at which this process last saw a change of the Lease, by this process's clock."""
        self._spec = ""
        self._duration = float(DURATION)
        self.holder = ""
        """Identity of the process that holds the Lease; empty if none does."""
        self.renewed = float("-inf")
        """Time at which this process began its last successful write of the Lease, by its own
        clock."""

    def is_free(self) -> bool:
        """True if no process holds the Lease, or if it has expired."""
        return not self.holder or self._monotonic() - self._changed >= self._duration

    def is_due(self) -> bool:
        """True if this process must renew the Lease."""
        return self._monotonic() - self.renewed >= RENEWAL

    def read(self) -> None:
        """Read the Lease from the API server, and store its state in this object.

        Raises ApiError or Unavailable if the request fails.
        """
        try:
            found = self._api.attempt("GET", f"{self._path}/{self._name}")
        except NotFound:
            # A missing Lease is free immediately. Without a version, ``write`` creates the Lease,
            # and the API server accepts only the first of several creations.
            self.holder, self._version = "", None
            return
        spec = found.get("spec") or {}
        self._version = found["metadata"]["resourceVersion"]
        # As in client-go's leader election, a change of the spec counts, not the time in it:
        # the clocks of two machines can differ by more than the duration of the Lease.
        if str(spec) != self._spec:
            self._spec, self._changed = str(spec), self._monotonic()
            self.holder = spec.get("holderIdentity") or ""
            self._duration = float(spec.get("leaseDurationSeconds") or DURATION)

    def write(self, holder: str | None = None) -> None:
        """Write the Lease, with this process as holder unless ``holder`` is given.

        Raises Conflict or NotFound if another client has changed the Lease, and ApiError or
        Unavailable if the request fails for another reason.
        """
        # Read before the request, so it is earlier than the time at which others see the change.
        began = self._monotonic()
        metadata: JsonObject = {"name": self._name}
        if self._version is not None:
            metadata["resourceVersion"] = self._version
        holder = self._identity if holder is None else holder
        body = lease_object(metadata, holder, duration=DURATION, now=time.time())
        # Not ``request``, which retries until the server responds: that could be after this process
        # has given up the Lease. The caller tries again in its next step.
        if self._version is None:
            response = self._api.attempt("POST", self._path, body)
        else:
            response = self._api.attempt("PUT", f"{self._path}/{self._name}", body)
        self._version = response["metadata"]["resourceVersion"]
        # The empty spec makes the next ``read`` see a change. Therefore a process that has lost a
        # Lease waits from then on, like the others, and does not take it again immediately.
        self.holder, self.renewed, self._spec = holder, began, ""

    def forget(self) -> None:
        """Forget the resource version of the Lease, because another client has deleted or taken the
        Lease.

        If ``write`` is called without another ``read``, it tries to create the Lease.
        """
        self._version = None


class Membership:
    """Membership of this process in the group of processes that divide the shards among themselves.
    Not thread-safe.

    There are as many membership Leases as shards, and each member holds one. A process that finds
    no free Lease takes no shards, because the group already has as many members as shards.
    """

    def __init__(self, leases: Sequence[SharedLease], monotonic: Callable[[], float]) -> None:
        self._leases = leases
        self._monotonic = monotonic
        self._own: SharedLease | None = None
        self._since = 0.0

    @property
    def is_settled(self) -> bool:
        """True if this process has been a member of the group for long enough to take shards."""
        return self._own is not None and self._monotonic() - self._since >= SETTLED

    def step(self) -> int:
        """Renew the Lease of this process if the renewal is due. Without a Lease, take a free one.
        Return the number of members.

        Raises ApiError or Unavailable if a request fails.
        """
        for lease in self._leases:
            # This process does not read its own Lease again: with a newer version of it, a renewal
            # would overwrite another holder.
            if lease is not self._own:
                lease.read()
        if self._own is None:
            self._take()
        elif self._own.is_due():
            self._renew(self._own)
        return sum(each is self._own or not each.is_free() for each in self._leases)

    def _take(self) -> None:
        for lease in self._leases:
            if lease.is_free():
                try:
                    lease.write()
                except (Conflict, NotFound):
                    continue  # another process was faster
                self._own, self._since = lease, self._monotonic()
                return

    def _renew(self, lease: SharedLease) -> None:
        try:
            lease.write()
        except (Conflict, NotFound):
            self._own = None  # the next step reads it again

    def leave(self) -> None:
        """Release the Lease of this process."""
        own, self._own = self._own, None
        if own is not None:
            try:
                own.write(holder="")
            except (Unavailable, ApiError):
                return  # the Lease expires
