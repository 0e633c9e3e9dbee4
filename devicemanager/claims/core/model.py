"""Inputs and outputs of the search for devices, independent of API types.

The docstring of the package ``claims.core`` defines budget, charge and all other terms.
"""

# ``devmgmtproto.k8s.io`` and ``resource.k8s.io`` both reduce to these values. The front end
# resolves classes, evaluates constraints and rounds amounts; ``solve`` decides.

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from devicemanager.claims.core.inventory import Amounts, DeviceKey


class AccessMode(enum.Enum):
    """Mode in which a request uses its devices: exclusive, shared or with admin access."""

    EXCLUSIVE = "exclusive"
    """Use of the whole device: no other claim can use any share of it."""
    SHARED = "shared"
    """Use of some of the device's capacity: other claims can use the remaining capacity."""
    ADMIN = "admin"
    """Administrative access to devices, even to those in use. It consumes no capacity or budget.
    Other claims can still use the devices."""


@attrs.frozen
class Exclusion:
    """Rule, and the devices that it excludes.

    If several rules exclude a device, only the first of them lists it.
    """

    rule: str
    """Text for users, such as ``device.memory >= '40Gi' is false``."""
    devices: int
    """The set of devices that this rule excludes, without devices that earlier rules exclude."""


@attrs.frozen
class Alternative:
    """One way to satisfy a request. A request without ``oneOf`` has exactly one alternative."""

    label: str
    """Position in the claim, such as ``claims[0]`` or ``claims[0].oneOf[1]``."""
    eligible: int
    """The set of devices that match the driver, device class and CEL expressions of the request."""
    mode: AccessMode = AccessMode.EXCLUSIVE
    count: int = 1
    """Minimum number of devices, 1 or more."""
    limit: int | None = None
    """For the mode SHARED: maximum number of devices; None means no limit.

    Requests in the other modes get exactly ``count`` devices, unless ``every`` is True.
    """
    amounts: Amounts = attrs.field(factory=dict)
    """For the mode SHARED: amounts that the devices must provide together, each more than 0."""
    match: tuple[str, ...] = ()
    """Attributes whose value must be the same for all devices of this request.

    Devices without such an attribute cannot be used.
    """
    every: bool = False
    """For the mode ADMIN: True if the request gets all eligible devices, except those that earlier
    requests of the claim got."""
    exclusions: tuple[Exclusion, ...] = ()
    """Rules that exclude devices. Each device outside ``eligible`` is listed once: with the first
    rule that excludes it."""

    def is_like(self, other: Alternative) -> bool:
        """True if this alternative equals ``other``, except for labels and exclusions."""
        return (
            self.eligible == other.eligible
            and self.mode is other.mode
            and self.count == other.count
            and self.limit == other.limit
            and self.amounts == other.amounts
            and self.match == other.match
            and self.every == other.every
        )


@attrs.frozen
class Request:
    """Request of a claim with its alternatives."""

    alternatives: tuple[Alternative, ...]
    """One or more alternatives, in order of preference."""

    def is_like(self, other: Request) -> bool:
        """True if this request equals ``other``, except for labels and exclusions."""
        return len(self.alternatives) == len(other.alternatives) and all(
            one.is_like(another)
            for one, another in zip(self.alternatives, other.alternatives, strict=True)
        )


@attrs.frozen
class Match:
    """Attribute whose value must be the same for the devices of several requests."""

    attribute: str
    requests: frozenset[int] | None = None
    """Indexes of the requests; None means all requests of the claim."""


@attrs.frozen
class Claim:
    """Claim as input of the search: its requests and matched attributes."""

    id: str
    """The claim's key in the ledger, such as ``default/train``."""
    requests: tuple[Request, ...]
    match: tuple[Match, ...] = ()


@attrs.frozen
class Grant:
    """One device that is allocated to a request."""

    device: DeviceKey
    request: int
    """Index of the request in its claim."""
    alternative: int
    """Index of the alternative in its request."""
    label: str
    mode: AccessMode
    amounts: Amounts = attrs.field(factory=dict)
    """For a shared request: the allocated amount of each resource, in nano-units."""


@attrs.frozen
class Allocation:
    """Devices allocated to one claim, sorted by request and then by device number."""

    claim: str
    grants: tuple[Grant, ...]


@attrs.frozen
class Limits:
    """Limits of one search for devices (one call of ``solve``)."""

    devices: int = 32
    """Maximum number of devices per claim (AllocationResultsMaxSize of resource.k8s.io)."""
    first_fit: int = 2_000
    """Maximum number of picks of first fit, after which ``decide`` takes over. For requests that
    ``decide`` does not support, the number of picks is not limited."""
    total: int = 100_000
    """Maximum number of steps for evaluating CEL expressions and searching. If a search needs more
    steps, its outcome is ``Undecided``."""
    explanation: int = 10_000
    """Number of steps that are reserved for explaining a rejection. The explanation can also use
    the steps that the search did not need."""


@attrs.frozen
class Solution:
    """Outcome of a search if all claims fit: their allocations."""

    allocations: tuple[Allocation, ...]
    """One allocation per claim, in the order of the claims."""
    steps: int = 0


class Cause(enum.Enum):
    """Reason why an alternative of a request was rejected."""

    DEVICES = "devices"
    """Too few devices are usable."""
    AMOUNTS = "amounts"
    """The usable devices have too little capacity left."""
    BUDGET = "budget"
    """Enough devices are usable, but the budgets of their pools are too small."""
    MATCH = "match"
    """The alternative requests all devices, but the devices differ in a matched attribute."""
    TOGETHER = "together"
    """The alternative fits alone, but not together with the other requests of the search."""
    UNEXAMINED = "unexamined"
    """The steps ran out before the reason was found. The claims certainly do not fit."""


@attrs.frozen
class Rejection:
    """Rejection of one alternative of a request, with the reasons."""

    claim: str
    label: str
    cause: Cause
    count: int
    """Minimum number of devices that the alternative needs."""
    usable: int
    """The set of devices that no rule excludes."""
    exclusions: tuple[Exclusion, ...]
    """Rules that exclude devices. Each device outside ``usable`` is listed once: with the first
    rule that excludes it.

    Empty if the steps ran out before the rules were applied.
    """
    short: tuple[tuple[str, str], ...] = ()
    """Budgets or resources that are too small, as pairs of pool and name.

    For the cause BUDGET: the budgets that are too small for all usable devices together. For the
    cause AMOUNTS: the resources of which too little is free. Empty for other causes.
    """
    collides: tuple[tuple[str, str], ...] = ()
    """For the cause TOGETHER: the requests that conflict with the rejected request, as pairs of
    claim and position in the claim.

    These requests and the rejected one do not fit together. They fit if any one of them is removed.
    If the steps ran out, the list can be longer than necessary.
    """
    reachable: Amounts = attrs.field(factory=dict)
    """For a shared request: the largest amount of each resource that the alternative could get."""


@attrs.frozen
class Leftover:
    """Explanation of a satisfied request: its devices, and the rules that exclude the others."""

    claim: str
    label: str
    taken: int
    """The set of devices that the request got."""
    exclusions: tuple[Exclusion, ...]
    """Rules that exclude devices. Each device outside ``taken`` is listed once: with the first
    rule that excludes it."""


@attrs.frozen
class Infeasible:
    """Outcome of a search if the claims do not fit now.

    The claims may fit after releases or changes of pools.
    """

    reasons: tuple[Rejection, ...]
    """Rejections, in the order of the requests.

    If some requests do not fit even alone, the rejections are for these requests, and for requests
    that were not examined because the steps ran out. Otherwise, they are for requests that do not
    fit together.
    """
    steps: int = 0


@attrs.frozen
class Undecided:
    """Outcome of a search that reached its limits without a result.

    Callers can retry after a change of the ledger or of the pools. They must not report this
    outcome as "does not fit".
    """

    steps: int
    unexamined: tuple[tuple[str, str], ...] = ()
    """Alternatives that the search has not tried completely, as pairs of claim and label.

    If no alternatives were chosen yet, the first alternative of each remaining request is listed.
    """
    is_out_of_time: bool = False
    """True if the caller's time limit ended the search; False if the step limit did."""


@attrs.frozen
class Error:
    """Outcome of a search for a claim that can never be allocated, even with other pools."""

    claim: str
    message: str


Outcome = Solution | Infeasible | Undecided | Error


@attrs.frozen
class LedgerState:
    """State of a ledger, from which the ledger can be restored."""

    allocations: tuple[Allocation, ...]
    """Allocations sorted by claim."""
    charges: Mapping[DeviceKey, Amounts]
    """Charge of each device in use, recorded when the device was allocated to its first claim."""
