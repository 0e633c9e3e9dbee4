"""Allocate claims of ``resource.k8s.io`` on one node, as the scheduler does.

In:  ResourceSlices, DeviceClasses and ResourceClaims as JSON; a node; the devices in use.
Out: an AllocationResult for each claim; None if the claims do not fit on the node together.

``allocate`` is a pure function. ``Allocator`` is for many calls with the same slices: it caches the
slices and the results of selectors.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.claims.core.compatibility import Groups
from devicemanager.claims.core.device_order import EveryError, OrderedProblem
from devicemanager.claims.core.inventory import Amounts, DeviceKey
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.ledger_view import LedgerView
from devicemanager.claims.core.model import (
    AccessMode,
    Allocation,
    Grant,
    LedgerState,
)
from devicemanager.claims.core.solve import DEFAULT_LIMITS
from devicemanager.claims.core.step_budget import OutOfStepsError, StepBudget
from devicemanager.claims.dra import explanation
from devicemanager.claims.dra.errors import AllocationError, InvalidPools
from devicemanager.claims.dra.nodes import Node
from devicemanager.claims.dra.pools import Offer, offer
from devicemanager.claims.dra.profile import Feature, Profile, Quirk
from devicemanager.claims.dra.requests import (
    MAX_DEVICES,
    Call,
    ClaimRequests,
    key_of,
)
from devicemanager.claims.dra.results import AllocationResult, Writer
from devicemanager.claims.dra.selectors import Selectors
from devicemanager.claims.dra.slices import Interning, Object, Slice, shared_amounts
from devicemanager.claims.errors import TryAgain
from devicemanager.core import bitset


@attrs.frozen
class Share:
    """Share of a device: the part of its capacity that one claim uses."""

    device: DeviceKey
    consumed: Amounts = attrs.field(factory=dict)
    """Consumed amounts in nano-units, by capacity name."""


@attrs.frozen
class InUse:
    """Devices and shares that are allocated to claims."""

    devices: frozenset[DeviceKey] = frozenset()
    """Devices that are allocated to one claim exclusively."""
    shares: tuple[Share, ...] = ()

    @classmethod
    def of(cls, claims: Iterable[Object]) -> InUse:
        """Return the devices and shares in the statuses of claims. Leave out devices with admin
        access."""
        devices, shares = set[DeviceKey](), list[Share]()
        for claim in claims:
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                key = DeviceKey(result["driver"], result["pool"], result["device"])
                # Admin access reserves nothing: other claims can get the same device.
                if result.get("adminAccess"):
                    continue
                # A result without a share ID takes the device whole, even if the device is
                # shareable: the feature gate DRAConsumableCapacity was disabled at its allocation.
                if result.get("shareID") is None:
                    devices.add(key)
                else:
                    shares.append(Share(key, shared_amounts(result.get("consumedCapacity") or {})))
        return cls(frozenset(devices), tuple(shares))


MAX_STEPS = DEFAULT_LIMITS.total
"""Default step limit of one call. A step takes about 8 µs."""
_PICKS = DEFAULT_LIMITS.first_fit
"""Number of picked devices after which the search begins to prune."""
NOTHING = InUse()
"""Value of ``InUse`` without devices and shares."""


def allocate(
    claims: Sequence[Object],
    slices: Iterable[Object],
    classes: Iterable[Object],
    node: Node,
    in_use: InUse = NOTHING,
    *,
    profile: Profile | None = None,
    max_steps: int = MAX_STEPS,
    new_share_id: Callable[[], str] = lambda: str(uuid.uuid4()),
) -> list[AllocationResult] | None:
    """Allocate claims together on a node. Choose the same devices as the scheduler.

    The objects are of resource.k8s.io/v1, with the defaults that the API server sets
    (``with_defaults``). Return a result for each claim, or None if the claims do not fit. Raises
    AllocationError, with the scheduler's message, for an error in an object. Raises InvalidPools if
    the claims do not fit and a pool is invalid, and TryAgain if the search needs more than
    ``max_steps`` steps.
    """
    allocator = Allocator(slices, classes, profile=profile, max_steps=max_steps)
    return allocator.allocate(claims, node, in_use, new_share_id=new_share_id)


class Allocator:
    """Allocator of claims, for many calls with the same slices and classes."""

    def __init__(
        self,
        slices: Iterable[Object],
        classes: Iterable[Object],
        *,
        profile: Profile | None = None,
        max_steps: int = MAX_STEPS,
    ) -> None:
        """Read the slices. Raises AllocationError for a slice without a required field."""
        self._profile = profile or Profile.of()
        self._max_steps = max_steps
        self._slices = [Slice.of(each) for each in slices]
        self._classes = {each["metadata"]["name"]: each for each in classes}
        self._selectors = Selectors(self._profile)
        self._interning = Interning()
        self._offers: dict[tuple[str, tuple[tuple[str, str], ...]], Offer] = {}
        self._views: dict[int, tuple[InUse, LedgerView]] = {}
        """The devices in use at the last call for an ``Offer``, and the ``LedgerView`` of that
        call. The key is the ``id`` of the ``Offer``."""

    def _offer(self, node: Node) -> Offer:
        """Return the pools that a node can use. Raises AllocationError for an invalid node
        selector."""
        # Node selectors read only the name and the labels of a node.
        key = node.name, tuple(sorted(node.labels.items()))
        if key not in self._offers:
            self._offers[key] = offer(self._slices, node, self._profile, self._interning)
        return self._offers[key]

    def allocate(
        self,
        claims: Sequence[Object],
        node: Node,
        in_use: InUse = NOTHING,
        *,
        new_share_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> list[AllocationResult] | None:
        """Allocate claims like the function ``allocate``, with the same results (None if the claims
        do not fit) and errors."""
        call = self._call(node, in_use)
        offered = call.offer
        try:
            read = call.claims(claims)
            # In 1.34, an invalid pool is an error even if other pools have enough devices.
            if self._profile.pools_of_node_only:
                _reject_invalid_pools(offered, read)
            picks = self._problem(call, read).answer(_PICKS)
        except OutOfStepsError:
            # Not None: "does not fit" could be wrong, because the search is not complete.
            raise TryAgain(
                f"{self._stopped(node)}, so these claims are undecided: "
                f"{', '.join(map(key_of, claims))}"
            ) from None
        except EveryError as error:
            option = read[error.claim].requests[error.request][error.option]
            device = "/".join(offered.inventory.devices[error.number].key)
            # Errors have the name of a subrequest only; results have ``request/subrequest``.
            raise AllocationError(
                f"claim {key_of(claims[error.claim])}, request {option.name.rpartition('/')[2]}:"
                f" cannot add device {device} because a claim constraint would not be satisfied"
            ) from None
        if picks is None:
            # An error only now, because the devices of valid pools could have been enough.
            if offered.has_invalid_pool and not self._profile.pools_of_node_only:
                raise InvalidPools("invalid resource pools were encountered")
            return None
        writer = Writer(self._profile, node, offered, new_share_id)
        return [writer.result(*each) for each in zip(read, picks, strict=True)]

    def explain(
        self, claims: Sequence[Object], node: Node, in_use: InUse = NOTHING
    ) -> tuple[str, ...]:
        """Return lines of text that explain why claims do not fit on a node.

        For each request, the lines name the rules and the devices that each rule excludes. A device
        that several rules exclude is named only at the first of them. Raises AllocationError for
        an error in an object, and TryAgain if the selectors need too many steps.
        """
        call = self._call(node, in_use)
        try:
            return tuple(explanation.lines(call, call.claims(claims)))
        except OutOfStepsError:
            raise TryAgain(f"{self._stopped(node)}, without a result") from None

    def _stopped(self, node: Node) -> str:
        return f"node {node.name}: the search for devices stopped after {self._max_steps} steps"

    def _call(self, node: Node, in_use: InUse) -> Call:
        offered = self._offer(node)
        view, steps = self._view(offered, in_use), StepBudget(self._max_steps)
        return Call(
            self._profile,
            node,
            offered,
            view,
            self._classes,
            self._selectors,
            steps,
            _groups(offered, in_use),
        )

    def _view(self, offered: Offer, in_use: InUse) -> LedgerView:
        """Return the ledger view of the devices in use.

        The view is derived from the view of the last call. This is faster than reading the ledger.
        """
        # ``self._offers`` keeps every offer, so an ``id`` is never reused.
        before, view = self._views.get(id(offered), (None, None))
        # ``LedgerView.changed`` handles exclusive allocations only, so other shares need a new
        # view.
        if before is None or view is None or before.shares != in_use.shares:
            view = LedgerView.of(offered.inventory, self._ledger(offered, in_use))
        elif before is not in_use:
            taken, released = in_use.devices - before.devices, before.devices - in_use.devices
            view = view.changed(taken, released, offered.charges)
        self._views[id(offered)] = in_use, view
        return view

    def _ledger(self, offered: Offer, in_use: InUse) -> Ledger:
        """Return a ledger of the devices in use, with the charges of the current slices."""
        allocations, charges = list[Allocation](), dict[DeviceKey, Amounts]()
        # The status of a claim has no counters, so the current slices decide what its devices
        # consume. A device that no slice offers any more consumes nothing.
        for key in in_use.devices:
            _record(allocations, [Grant(key, 0, 0, "", AccessMode.EXCLUSIVE)])
            charges[key] = offered.charges.get(key, {})
        uncharged = Quirk.SHARES_WITHOUT_COUNTERS in self._profile.quirks
        for share in in_use.shares:
            # A device has either one exclusive claim or shares. If a status contradicts this,
            # ignore the shares.
            if self._profile.is_stable or share.device in in_use.devices:
                continue
            _record(
                allocations,
                [Grant(share.device, 0, 0, "", AccessMode.SHARED, share.consumed)],
            )
            charge = {} if uncharged else offered.charges.get(share.device, {})
            charges[share.device] = charge
        return Ledger.restore(LedgerState(tuple(allocations), charges))

    def _problem(self, call: Call, read: Sequence[ClaimRequests]) -> OrderedProblem:
        quirks, view = self._profile.quirks, call.view
        pools = call.offer.inventory.pools
        by_name = Quirk.COUNTERS_BY_POOL_NAME in quirks
        # Counters of these devices are charged already. With the quirk, a device whose shares
        # consume no capacity is missing here, so its next share charges the counters again.
        shared = bitset.of(
            number
            for number, amounts in view.allocated.items()
            if amounts or Quirk.SHARES_CHARGED_AGAIN not in quirks
        )
        return OrderedProblem(
            view,
            tuple([each.ordered for each in read]),
            call.steps,
            MAX_DEVICES,
            # Without the gate, a claim takes a shareable device whole.
            call.offer.shareable if self._profile.has(Feature.CONSUMABLE_CAPACITY) else 0,
            shared,
            lambda number: call.offer.sources[number].facts.totals,
            (lambda pool: pools[pool].key.name) if by_name else (lambda pool: pool),
            Quirk.KEPT_RESERVATIONS in quirks,
            call.groups,
        )


def _reject_invalid_pools(offered: Offer, read: Sequence[ClaimRequests]) -> None:
    """Raise the error of 1.34 for an invalid pool.

    In 1.34, the error does not occur if every request asks for all devices (``allocationMode:
    All``).
    """
    options = [option for each in read for found in each.requests for option in found]
    for pool in offered.pools:
        if pool.invalid and any(each.option.every is None for each in options):
            raise AllocationError(f"pool {pool.key.name} is invalid: {pool.invalid}")


def _groups(offered: Offer, in_use: InUse) -> Groups:
    """Return the compatibility groups of the node's devices and of the devices in use."""
    if not offered.groups:
        return Groups()
    declared = {
        number: offered.groups[device.key]
        for number, device in enumerate(offered.inventory.devices)
        if device.key in offered.groups
    }
    used = in_use.devices.union(share.device for share in in_use.shares)
    return Groups.of(declared, [each for key, each in offered.groups.items() if key in used])


def _record(allocations: list[Allocation], grants: Sequence[Grant]) -> None:
    allocations.append(Allocation(str(len(allocations)), tuple(grants)))


def with_defaults(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ResourceClaim with the defaults that the API server sets.

    These are the mode and count of each request, and the operator of each toleration.
    """
    devices = (claim.get("spec") or {}).get("devices") or {}
    requests = []
    for request in devices.get("requests") or ():
        changed = dict(request)
        if request.get("exactly") is not None:
            changed["exactly"] = _option_with_defaults(request["exactly"])
        if request.get("firstAvailable"):
            changed["firstAvailable"] = [
                _option_with_defaults(each) for each in request["firstAvailable"]
            ]
        requests.append(changed)
    spec = {**(claim.get("spec") or {}), "devices": {**devices, "requests": requests}}
    return {**claim, "spec": spec}


def _option_with_defaults(option: Mapping[str, Any]) -> dict[str, Any]:
    found = {**option, "allocationMode": option.get("allocationMode") or "ExactCount"}
    # With ``All``, the API server sets no count. It replaces a count of 0.
    if found["allocationMode"] == "ExactCount":
        found["count"] = found.get("count") or 1
    if option.get("tolerations"):
        found["tolerations"] = [{"operator": "Equal", **each} for each in option["tolerations"]]
    return found
