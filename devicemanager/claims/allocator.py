"""Allocate and release claims of the API: search for devices and write them into the status.

In:  the objects of a store, a ledger, and names of claims.
Out: claims with ``status.allocations``, or an error that leaves everything unchanged.
"""

# The steps of ``allocate``: ``Resolver`` turns claims into requests, ``solve`` finds devices,
# ``_status`` makes the status with its configs, and only then ``Ledger.commit`` records the
# devices. Steps that can fail come first. The module uses no locks, files or clocks, because
# ``AllocatedClaims``, the CLI and replays all use it.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from devicemanager.claims.core.inventory import Inventory
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import Allocation, Error, Infeasible, Limits, Undecided
from devicemanager.claims.core.solve import DEFAULT_LIMITS, solve
from devicemanager.claims.errors import ClaimsError, DoesNotFit, TryAgain
from devicemanager.claims.explanation import Explanation, explain, rejection_line, undecided_message
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.convert import allocations_of
from devicemanager.claims.v1alpha1.resolve import ResolvedAlternative, ResolvedClaim, Resolver


class Allocator:
    """Allocator of the claims in a store; a ledger records the devices. Not thread-safe."""

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
        ``admin_namespaces``: the namespaces that can use classes with admin access; None is all.
        """
        self.store = store
        self.ledger = Ledger() if ledger is None else ledger
        self._allocated = {claim.id: claim for claim in allocated}
        self._limits = limits
        self._admin_namespaces = admin_namespaces

    @property
    def claims(self) -> Mapping[str, api.DeviceClaim]:
        """Claims with status, by ``namespace/name``.

        An allocated claim has the spec that it had when it was allocated.
        """
        return {**self.store.claims, **self._allocated}

    def claim(self, claim: str) -> api.DeviceClaim:
        """Return a claim by ``namespace/name``, with status.

        Raises ClaimsError if the claim does not exist.
        """
        found = self._allocated.get(claim) or self.store.claims.get(claim)
        if found is None:
            raise ClaimsError(f'DeviceClaim "{claim}" does not exist')
        return found

    def is_allocated(self, claim: str) -> bool:
        """True if the ledger has an allocation of the claim (``namespace/name``)."""
        return self.ledger.allocation(claim) is not None

    def submit(self, claim: api.DeviceClaim) -> None:
        """Create or replace a claim; ignore its status.

        Raises InvalidObject for an invalid claim, and ClaimsError if the claim is allocated and
        its spec would change.
        """
        old = self._allocated.get(claim.id)
        if old is not None and not old.same_spec(claim):
            raise ClaimsError(
                f'DeviceClaim "{claim.id}": spec: Forbidden: the claim is allocated and cannot'
                " be changed until it is released"
            )
        self.store.submit(claim)

    def allocate(self, ids: Sequence[str], node: str) -> tuple[str, ...]:
        """Allocate claims together on a node; return the claims that were not allocated before.

        Raises DoesNotFit, TryAgain, or ClaimsError for a claim that can never be allocated.
        An error leaves everything unchanged.
        """
        new = [self.claim(claim) for claim in dict.fromkeys(ids) if not self.is_allocated(claim)]
        if not new:
            return ()
        inventory, resolved = self._resolve(new, node)
        found = self._solve(inventory, resolved)
        statuses = [
            self._status(claim, each, allocation, inventory)
            for claim, each, allocation in zip(new, resolved, found, strict=True)
        ]
        self.ledger.commit(inventory, found)
        for claim, status in zip(new, statuses, strict=True):
            self._allocated[claim.id] = attrs.evolve(claim, status=status)
        return tuple([claim.id for claim in new])

    def explain(self, ids: Sequence[str], node: str) -> Explanation:
        """Explain claims on a node: why they have or would get their devices, or do not fit.

        Raises ClaimsError for a claim that can never be allocated.
        """
        claims = [self.claim(claim) for claim in dict.fromkeys(ids)]
        return explain(*self._resolve(claims, node), self.ledger, self._limits)

    def release(self, *claims: str) -> tuple[str, ...]:
        """Release claims and return the claims that were allocated. Idempotent."""
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
        """Replace pod names, device statuses or both in the status of an allocated claim.

        A field that is None stays unchanged.
        """
        old = self._allocated[claim]
        status = old.status
        if pod_names is not None:
            status = attrs.evolve(status, pod_names=pod_names)
        if device_statuses is not None:
            status = attrs.evolve(status, device_statuses=device_statuses)
        self._allocated[claim] = attrs.evolve(old, status=status)

    def _resolve(
        self, claims: Iterable[api.DeviceClaim], node: str
    ) -> tuple[Inventory, list[ResolvedClaim]]:
        constraints = self.store.constraints(node)
        resolver = Resolver(constraints, self.store.classes, self._admin_namespaces)
        return constraints.inventory, [resolver.resolve(claim) for claim in claims]

    def _solve(
        self, inventory: Inventory, resolved: Sequence[ResolvedClaim]
    ) -> tuple[Allocation, ...]:
        claims = [each.claim for each in resolved]
        outcome = solve(inventory, self.ledger, claims, self._limits)
        if isinstance(outcome, Error):
            raise ClaimsError(f'DeviceClaim "{outcome.claim}": {outcome.message}')
        if isinstance(outcome, Infeasible):
            reasons = [rejection_line(each, resolved) for each in outcome.reasons]
            raise DoesNotFit("; ".join(reasons))
        if isinstance(outcome, Undecided):
            raise TryAgain(undecided_message(outcome))
        return outcome.allocations

    def _status(
        self,
        claim: api.DeviceClaim,
        resolved: ResolvedClaim,
        allocation: Allocation,
        inventory: Inventory,
    ) -> api.ClaimStatus:
        # Configs are copied, so that later changes do not affect a prepared device. Only configs
        # of the alternative and the class that a device was allocated through are copied.
        class_configs: dict[api.ConfigReference, api.ConfigObject] = {}
        claim_configs: dict[api.ConfigReference, api.ConfigObject] = {}
        try:
            for grant in allocation.grants:
                choice = resolved.choices[grant.request][grant.alternative]
                device_class = choice.class_of(inventory.index[grant.device])
                for reference in device_class.configs:
                    class_configs[reference] = self.store.config(reference)
                for reference in _in_namespace(choice, claim.metadata.namespace):
                    claim_configs[reference] = self.store.config(reference)
        except ClaimsError as error:
            raise ClaimsError(f'DeviceClaim "{claim.id}": {error}') from None
        return api.ClaimStatus(
            allocations_of(allocation, self.store.pools),
            tuple(class_configs.values()),
            tuple(claim_configs.values()),
        )


def _in_namespace(choice: ResolvedAlternative, namespace: str) -> list[api.ConfigReference]:
    return [attrs.evolve(each, namespace=namespace) for each in choice.detail.configs]
