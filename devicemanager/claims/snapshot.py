"""Search for the devices of claims, in a snapshot of the objects and the allocations.

In:  the claims, pools, classes, configs and allocations at one moment (``Snapshot``).
Out: devices with the status of each claim (``Found``), an ``Explanation``, or ClaimsError.
"""

# A search can take a second. It reads only this snapshot, so objects and allocations can change
# meanwhile, and no lock need be held. ``Allocator.is_current``: whether the result still counts.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import attrs

from devicemanager.claims.core.inventory import Inventory
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import Allocation, Error, Infeasible, Limits, Undecided
from devicemanager.claims.core.solve import budget_of, solve
from devicemanager.claims.core.step_budget import StepBudget
from devicemanager.claims.errors import ClaimsError, DoesNotFit, TryAgain
from devicemanager.claims.explanation import (
    Explanation,
    cut_off_constraints,
    cut_off_search,
    explain,
    rejection_line,
)
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.convert import Converter, allocations_of
from devicemanager.claims.v1alpha1.resolve import (
    Classes,
    Constraints,
    ConstraintsCutOff,
    ResolvedAlternative,
    ResolvedClaim,
    Resolver,
)

Configs = Mapping[api.ConfigReference, api.ConfigObject]


class Offer:
    """Pools of a store at one moment, for searches on one node. The pools that the node can use are
    converted into an inventory at first use."""

    def __init__(
        self, pools: Mapping[str, api.DevicePool], node: str, converter: Converter
    ) -> None:
        """Store the arguments; convert nothing yet, because the caller may hold a lock."""
        # A copy: the store can change while a search reads the pools without a lock.
        self.pools = dict(pools)
        self._node = node
        self._converter = converter

    @cached_property
    def constraints(self) -> Constraints:
        """Evaluator of constraints on the inventory of the node; it caches results."""
        # Only one search runs at a time (``Turns``), so no two threads compute this at the same
        # time.
        return Constraints(self._converter.inventory_of(self.pools.values(), self._node))


@attrs.frozen(eq=False)
class Found:
    """Result of a search: devices for claims. The devices are not recorded as allocated yet."""

    claims: tuple[api.DeviceClaim, ...]
    """The claims with their status."""
    inventory: Inventory
    allocations: tuple[Allocation, ...]


@attrs.frozen(eq=False)
class Snapshot:
    """Claims and everything that a search for their devices reads."""

    claims: tuple[api.DeviceClaim, ...]
    offer: Offer
    classes: Classes
    configs: Configs
    ledger: Ledger
    limits: Limits
    admin_namespaces: frozenset[str] | None
    """Namespaces that can use classes with admin access; None means all."""
    version: tuple[int, int]
    """Versions of the ``ObjectStore`` and of the ``Ledger`` when the snapshot was taken."""

    def search(self, may_continue: Callable[[], bool] | None = None) -> Found:
        """Return devices for the claims. None of the claims may be allocated already.

        The search calls ``may_continue`` every few steps, and ends early if this function returns
        False. Raises DoesNotFit if the claims do not fit now, TryAgain if the search ended early,
        and another ClaimsError for a claim that cannot be allocated as written.
        """
        steps = budget_of(self.limits, may_continue)
        inventory, resolved = self._resolve(steps)
        allocations = self._solve(inventory, resolved, steps)
        claims = [
            attrs.evolve(claim, status=self._status(claim, each, allocation, inventory))
            for claim, each, allocation in zip(self.claims, resolved, allocations, strict=True)
        ]
        return Found(tuple(claims), inventory, allocations)

    def explain(self, may_continue: Callable[[], bool] | None = None) -> Explanation:
        """Return which devices the claims have or would get, or why they do not fit together.

        The search calls ``may_continue`` every few steps, and ends early if this function returns
        False. ``unexamined`` of the result then says what is missing. Raises ClaimsError if a claim
        cannot use the classes that it names.
        """
        steps = budget_of(self.limits, may_continue)
        try:
            inventory, resolved = self._resolve(steps)
        except TryAgain as error:
            names = tuple([claim.id for claim in self.claims])
            return Explanation(names, None, str(error), unexamined=error.unexamined)
        return explain(inventory, resolved, self.ledger, self.limits, steps)

    def _resolve(self, steps: StepBudget) -> tuple[Inventory, list[ResolvedClaim]]:
        constraints = self.offer.constraints
        resolver = Resolver(constraints, self.classes, self.admin_namespaces, steps)
        resolved: list[ResolvedClaim] = []
        for claim in self.claims:
            try:
                resolved.append(resolver.resolve(claim))
            except ConstraintsCutOff as cut:
                raise cut_off_constraints(claim.id, cut, steps) from None
        return constraints.inventory, resolved

    def _solve(
        self, inventory: Inventory, resolved: Sequence[ResolvedClaim], steps: StepBudget
    ) -> tuple[Allocation, ...]:
        claims = [each.claim for each in resolved]
        outcome = solve(inventory, self.ledger, claims, self.limits, steps)
        if isinstance(outcome, Error):
            raise ClaimsError(f'DeviceClaim "{outcome.claim}": {outcome.message}')
        if isinstance(outcome, Infeasible):
            reasons = [rejection_line(each, resolved) for each in outcome.reasons]
            raise DoesNotFit("; ".join(reasons))
        if isinstance(outcome, Undecided):
            raise cut_off_search(outcome)
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
                    class_configs[reference] = config_of(self.configs, reference)
                for reference in _in_namespace(choice, claim.metadata.namespace):
                    claim_configs[reference] = config_of(self.configs, reference)
        except ClaimsError as error:
            raise ClaimsError(f'DeviceClaim "{claim.id}": {error}') from None
        return api.ClaimStatus(
            allocations_of(allocation, self.offer.pools),
            tuple(class_configs.values()),
            tuple(claim_configs.values()),
        )


def config_of(configs: Configs, reference: api.ConfigReference) -> api.ConfigObject:
    """Return the config object of a reference. Raises ClaimsError if it does not exist."""
    found = configs.get(reference)
    if found is None:
        raise ClaimsError(
            f'the config {reference.kind} "{reference.namespace}/{reference.name}"'
            f" ({reference.api_version}) does not exist: create it first"
        )
    return found


def _in_namespace(choice: ResolvedAlternative, namespace: str) -> list[api.ConfigReference]:
    return [attrs.evolve(each, namespace=namespace) for each in choice.detail.configs]
