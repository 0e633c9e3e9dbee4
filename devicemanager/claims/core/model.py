"""Values of the search: what claims request and what they get, free of any API's types."""

# ``devmgmtproto.k8s.io`` and ``resource.k8s.io`` both reduce to these values. The front end
# resolves classes, evaluates constraints and rounds amounts; ``solve`` decides.

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from devicemanager.claims.core.inventory import Amounts, DeviceKey


class AccessMode(enum.Enum):
    """How a request uses its devices."""

    EXCLUSIVE = "exclusive"
    """The whole device: no other claim can use any part of it."""
    SHARED = "shared"
    """Some of the device's capacity: other claims can use the rest."""
    ADMIN = "admin"
    """Access to devices in any state. It consumes no device, capacity or budget."""


@attrs.frozen
class Exclusion:
    """A rule and the devices that it excludes."""

    rule: str
    """For users, such as ``device.memory >= '40Gi' is false``."""
    devices: int
    """The set of devices for which this is the first rule that excludes them."""


@attrs.frozen
class Alternative:
    """One way to satisfy a request. A request without ``oneOf`` has exactly one."""

    label: str
    """Position in the claim, such as ``claims[0]`` or ``claims[0].oneOf[1]``."""
    eligible: int
    """The set of devices that driver, class and constraints admit."""
    mode: AccessMode = AccessMode.EXCLUSIVE
    count: int = 1
    """The least number of devices, 1 or more."""
    limit: int | None = None
    """The largest number of devices of a shared request; None is unlimited. Other requests
    get exactly ``count``: fewer do not satisfy them, and more are never needed."""
    amounts: Amounts = attrs.field(factory=dict)
    """SHARED: the amounts that all its devices provide together, each more than 0."""
    match: tuple[str, ...] = ()
    """Attributes that all devices of this request must have, with equal values."""
    every: bool = False
    """ADMIN: all eligible devices that no earlier request of the claim got, 1 or more."""
    exclusions: tuple[Exclusion, ...] = ()
    """Why the other devices are not eligible, in the order of the rules. Disjoint."""


@attrs.frozen
class Request:
    """A request of a claim with its alternatives."""

    alternatives: tuple[Alternative, ...]
    """In order of preference, 1 or more."""


@attrs.frozen
class Match:
    """An attribute whose value must be the same for the devices of several requests."""

    attribute: str
    requests: frozenset[int] | None = None
    """Indexes of the requests; None is all of the claim."""


@attrs.frozen
class Claim:
    """A claim as the search sees it."""

    id: str
    """The claim's key in the ledger, such as ``default/train``."""
    requests: tuple[Request, ...]
    match: tuple[Match, ...] = ()


@attrs.frozen
class Grant:
    """One device that a request got."""

    device: DeviceKey
    request: int
    """Index of the request in its claim."""
    alternative: int
    """Index of the alternative in its request."""
    label: str
    mode: AccessMode
    amounts: Amounts = attrs.field(factory=dict)
    """SHARED: the allocated amount of each resource in nano-units, in whole blocks."""


@attrs.frozen
class Allocation:
    """The devices of one claim: by request, then in device order."""

    claim: str
    grants: tuple[Grant, ...]


@attrs.frozen
class Limits:
    """Limits of one call of ``solve``."""

    devices: int = 32
    """The most devices of a claim (AllocationResultsMaxSize of resource.k8s.io)."""
    first_fit: int = 2_000
    """The most picks of first fit before ``decide`` takes over."""
    total: int = 100_000
    """The most steps of the call; then the outcome is ``Undecided``."""


@attrs.frozen
class Solution:
    """All claims fit."""

    allocations: tuple[Allocation, ...]
    """In the order of the claims."""
    steps: int = 0


class Cause(enum.Enum):
    """What an alternative lacks."""

    DEVICES = "devices"
    """Too few devices are usable."""
    AMOUNTS = "amounts"
    """The usable devices have too little capacity left."""
    BUDGET = "budget"
    """Enough devices are usable, but the budgets of their pools are too small for them."""
    MATCH = "match"
    """It gets all devices, and they differ in a matched attribute."""
    TOGETHER = "together"
    """Nothing on its own: it conflicts with other requests of this call."""


@attrs.frozen
class Rejection:
    """Why one alternative did not get its devices."""

    claim: str
    label: str
    cause: Cause
    count: int
    """The least number of devices that it needs."""
    usable: int
    """The set of devices that no rule excludes."""
    exclusions: tuple[Exclusion, ...]
    """In the order in which the rules apply; disjoint, and disjoint from ``usable``."""
    reachable: Amounts = attrs.field(factory=dict)
    """SHARED: the largest amount of each resource that it could get."""


@attrs.frozen
class Leftover:
    """Why a satisfied request did not get the other devices."""

    claim: str
    label: str
    taken: int
    """The set of devices that it got."""
    exclusions: tuple[Exclusion, ...]
    """As in ``Rejection``; together with ``taken`` they cover all devices."""


@attrs.frozen
class Infeasible:
    """The claims do not fit now; they may after releases or changes of pools."""

    reasons: tuple[Rejection, ...]
    """For each request that cannot be met on its own, in order. If each one can be met on
    its own, for all requests."""
    steps: int = 0


@attrs.frozen
class Undecided:
    """The search was cut off. Callers retry; they never report it as "does not fit"."""

    steps: int


@attrs.frozen
class Error:
    """The claim can never be allocated, even with other pools."""

    claim: str
    message: str


Outcome = Solution | Infeasible | Undecided | Error


@attrs.frozen
class LedgerState:
    """All that must be stored to rebuild a ledger."""

    allocations: tuple[Allocation, ...]
    """By claim."""
    charges: Mapping[DeviceKey, Amounts]
    """By device in use: what it was charged when its first claim got it."""
