"""Allocate devices to DeviceClaims (``devmgmtproto.k8s.io``), and release them.

In:  an ``ObjectStore``, a ledger (the record of all allocated devices), and names of claims.
Out: claims with their devices in ``status.allocations``. An error changes nothing.
"""

# The steps of ``allocate``: ``snapshot`` copies what a search reads, ``Snapshot.search`` finds
# devices, and only then ``commit`` records them. The steps are separate because ``ClaimManager``
# holds its lock for the first and the last one only. The module uses no locks, files or clocks,
# because ``AllocatedClaims``, the CLI and replays all use it.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from devicemanager.claims.core.ledger import Ledger, LedgerError
from devicemanager.claims.core.model import Limits
from devicemanager.claims.core.solve import DEFAULT_LIMITS
from devicemanager.claims.errors import ClaimsError, TryAgain
from devicemanager.claims.explanation import Explanation
from devicemanager.claims.snapshot import Found, Snapshot
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1 import objects as api


class Allocator:
    """Allocator of devices for the claims in an ``ObjectStore``. Not thread-safe.

    ``ledger`` records the allocated devices.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        ledger: Ledger | None = None,
        allocated: Iterable[api.DeviceClaim] = (),
        limits: Limits = DEFAULT_LIMITS,
        admin_namespaces: frozenset[str] | None = None,
    ) -> None:
        """Create an allocator.

        ``allocated``: the claims that are allocated in ``ledger``, with their status.
        ``admin_namespaces``: the namespaces that can use classes with admin access; None means all.
        """
        self.store = store
        self.ledger = Ledger() if ledger is None else ledger
        self._allocated = {claim.id: claim for claim in allocated}
        self._limits = limits
        self._admin_namespaces = admin_namespaces

    @property
    def claims(self) -> Mapping[str, api.DeviceClaim]:
        """All claims, by ``namespace/name``. Pending claims have no status.

        An allocated claim has a status, and the spec for which the devices were allocated.
        """
        return {**self.store.claims, **self._allocated}

    def claim(self, claim: str) -> api.DeviceClaim:
        """Return a claim by ``namespace/name``. If it is allocated, it has a status.

        Raises ClaimsError if the claim does not exist.
        """
        found = self._allocated.get(claim) or self.store.claims.get(claim)
        if found is None:
            raise ClaimsError(f'DeviceClaim "{claim}" does not exist: create it first')
        return found

    def is_allocated(self, claim: str) -> bool:
        """True if the ledger has an allocation of the claim (``namespace/name``)."""
        return self.ledger.allocation(claim) is not None

    def submit(self, claim: api.DeviceClaim, *, checked: bool = False) -> None:
        """Create or replace a claim; ignore its status.

        ``checked``: True if the caller has already validated the claim. Raises InvalidObject for an
        invalid claim, and ClaimsError if the claim is allocated and its spec would change.
        """
        old = self._allocated.get(claim.id)
        if old is not None and not old.same_spec(claim):
            raise ClaimsError(
                f'DeviceClaim "{claim.id}": spec: Forbidden: the claim is allocated and cannot'
                " be changed until it is released"
            )
        self.store.submit(claim, checked=checked)

    def allocate(self, ids: Sequence[str], node: str) -> tuple[str, ...]:
        """Allocate claims together on a node; return the claims that were not allocated before.

        Raises DoesNotFit if the claims do not fit now, and TryAgain if the search reached its
        limits. Raises another ClaimsError for a claim that can never be allocated. An error leaves
        everything unchanged.
        """
        new = self.pending(ids)
        return self.commit(self.snapshot(new, node).search()) if new else ()

    def pending(self, ids: Iterable[str]) -> tuple[api.DeviceClaim, ...]:
        """Return the claims in ``ids`` that are not allocated.

        Raises ClaimsError if a claim does not exist.
        """
        new = [claim for claim in dict.fromkeys(ids) if not self.is_allocated(claim)]
        return tuple(map(self.claim, new))

    def snapshot(self, claims: Iterable[api.DeviceClaim], node: str) -> Snapshot:
        """Return a snapshot in which ``Snapshot.search`` finds devices for ``claims`` on ``node``.

        It contains the objects, allocations and limits on which the result of the search depends.
        """
        return Snapshot(
            tuple(claims),
            self.store.offer(node),
            dict(self.store.classes),
            dict(self.store.configs),
            self.ledger.copy(),
            self._limits,
            self._admin_namespaces,
            (self.store.version, self.ledger.version),
        )

    def is_current(self, snapshot: Snapshot) -> bool:
        """True if ``snapshot`` still has the current objects and allocations."""
        return snapshot.version == (self.store.version, self.ledger.version) and all(
            self.store.claims.get(claim.id) == claim for claim in snapshot.claims
        )

    def commit(self, found: Found) -> tuple[str, ...]:
        """Allocate the devices in ``found``, the result of ``Snapshot.search``. Return the claims
        that got devices (``namespace/name``).

        Raises TryAgain, and changes nothing, if the devices are not available any more or if a
        claim was changed during the search.
        """
        for claim in found.claims:
            now = self.store.claims.get(claim.id)
            if now is None or not now.same_spec(claim):
                raise TryAgain(f'DeviceClaim "{claim.id}" changed during the search: try again')
        try:
            self.ledger.commit(found.inventory, found.allocations)
        except LedgerError as error:
            raise TryAgain(f"allocations changed during the search: {error}: try again") from error
        for claim in found.claims:
            self._allocated[claim.id] = claim
        return tuple([claim.id for claim in found.claims])

    def explain(self, ids: Sequence[str], node: str) -> Explanation:
        """Return an explanation for claims on a node: which devices the claims have or would get,
        or why the claims do not fit.

        Raises ClaimsError for a claim that can never be allocated.
        """
        claims = [self.claim(claim) for claim in dict.fromkeys(ids)]
        return self.snapshot(claims, node).explain()

    def release(self, *claims: str) -> tuple[str, ...]:
        """Release claims; ignore claims that are not allocated. Return the released claims."""
        released = self.ledger.release(*claims)
        for claim in released:
            del self._allocated[claim]
        return released

    def set_status(
        self,
        claim: str,
        *,
        pod_names: tuple[str, ...] | None = None,
        device_statuses: tuple[api.DeviceStatus, ...] | None = None,
    ) -> None:
        """Replace the pod names, the device statuses or both in the status of an allocated claim.

        An argument that is None changes nothing.
        """
        old = self._allocated[claim]
        status = old.status
        if pod_names is not None:
            status = attrs.evolve(status, pod_names=pod_names)
        if device_statuses is not None:
            status = attrs.evolve(status, device_statuses=device_statuses)
        self._allocated[claim] = attrs.evolve(old, status=status)
