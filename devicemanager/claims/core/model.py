"""What claims ask for and what they get, free of any API's types.

Both ``devmgmtproto.k8s.io`` and ``resource.k8s.io`` reduce to these values: the front end
resolves classes, evaluates constraints and rounds; the core decides.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from devicemanager.claims.core.inventory import Amounts, DeviceKey


class Mode(enum.Enum):
    """How a request uses its devices."""

    EXCLUSIVE = "exclusive"
    """Alone: nobody else may hold the device, whole or in part."""
    SHARED = "shared"
    """Some of the device's resources: other claims may hold the rest."""
    ADMIN = "admin"
    """Beside everybody: holdings and budgets do not count, and nothing is held."""


@attrs.frozen
class Exclusion:
    """Why devices do not qualify, in words that a user understands."""

    rule: str
    """Such as ``device.memory >= '40Gi' is false``."""
    devices: int
    """The set of devices that this rule was the first to exclude."""


@attrs.frozen
class Alternative:
    """One way to satisfy a request; an ordinary request has exactly one."""

    label: str
    """Where it stands in its claim, such as ``claims[0]`` or ``claims[0].oneOf[1]``."""
    eligible: int
    """The set of devices that driver, class and constraints admit."""
    mode: Mode = Mode.EXCLUSIVE
    count: int = 1
    """At least this many devices. 1 or more."""
    limit: int | None = None
    """At most this many devices; for shared requests only, None is as many as it takes.
    The other modes take exactly ``count``: fewer is not enough, more is never needed."""
    amounts: Amounts = attrs.field(factory=dict)
    """SHARED: what all its devices must give together, each amount more than 0."""
    match: tuple[str, ...] = ()
    """Attributes that all devices of this request must have, with equal values."""
    every: bool = False
    """ADMIN: all eligible devices that no earlier request of the claim took, 1 or more."""
    exclusions: tuple[Exclusion, ...] = ()
    """Why the devices outside ``eligible`` are outside, in the order of the rules. Disjoint."""


@attrs.frozen
class Request:
    alternatives: tuple[Alternative, ...]
    """In order of preference, 1 or more."""


@attrs.frozen
class Match:
    """An attribute that the devices of several requests of a claim must have in common."""

    attribute: str
    requests: frozenset[int] | None = None
    """Indexes of the requests; None is all of the claim."""


@attrs.frozen
class Claim:
    id: str
    """What the ledger knows the claim by, such as ``default/train``."""
    requests: tuple[Request, ...]
    match: tuple[Match, ...] = ()


@attrs.frozen
class Grant:
    """One device for one request."""

    device: DeviceKey
    request: int
    """Index of the request in its claim."""
    alternative: int
    """Index of the alternative in its request."""
    label: str
    mode: Mode
    amounts: Amounts = attrs.field(factory=dict)
    """SHARED: what is given of each resource, in whole blocks."""


@attrs.frozen
class Allocation:
    """What one claim gets: by request, then in device order."""

    claim: str
    grants: tuple[Grant, ...]


@attrs.frozen
class Limits:
    """What bounds one call of the solver. Steps, not time: the same input, the same answer."""

    devices: int = 32
    """A claim may get this many devices (AllocationResultsMaxSize of resource.k8s.io)."""
    first_fit: int = 2_000
    """So long the documented order of solutions is searched."""
    total: int = 100_000
    """When these are spent, the outcome is ``Budget``."""


@attrs.frozen
class Solution:
    allocations: tuple[Allocation, ...]
    """In the order of the claims."""
    steps: int = 0


class Cause(enum.Enum):
    """What an alternative is short of."""

    DEVICES = "devices"
    """Too few devices are usable."""
    AMOUNTS = "amounts"
    """The usable devices have too little left of what it asks for."""
    BUDGET = "budget"
    """Enough devices are usable, but pools cannot pay for so many at once."""
    MATCH = "match"
    """It takes all devices there are, and they differ in a matched attribute."""
    TOGETHER = "together"
    """Nothing, were it alone: the requests of this call exclude one another."""


@attrs.frozen
class Rejection:
    """Why one alternative did not get its devices."""

    claim: str
    label: str
    cause: Cause
    count: int
    """How many devices it needs at least."""
    usable: int
    """The set of devices that no rule excluded."""
    exclusions: tuple[Exclusion, ...]
    """In the order in which the rules are applied; disjoint, and disjoint from ``usable``."""
    reachable: Amounts = attrs.field(factory=dict)
    """SHARED: the most that it could have of each resource."""


@attrs.frozen
class Leftover:
    """Why a request that was served did not take the other devices."""

    claim: str
    label: str
    taken: int
    """The set of devices that it got."""
    exclusions: tuple[Exclusion, ...]
    """As in ``Rejection``; with ``taken`` they are all devices."""


@attrs.frozen
class Infeasible:
    """Does not fit now; it may once other claims are released or pools change."""

    reasons: tuple[Rejection, ...]
    """Of the requests that cannot be met, in order; of all, if only together they cannot."""
    steps: int = 0


@attrs.frozen
class Budget:
    """The search was cut off before it knew: to be retried, never to be told as "no fit"."""

    steps: int


@attrs.frozen
class Error:
    """The claim can never be allocated as it is written."""

    claim: str
    message: str


Outcome = Solution | Infeasible | Budget | Error


@attrs.frozen
class LedgerState:
    """All that must be stored to rebuild a ledger."""

    allocations: tuple[Allocation, ...]
    """By claim."""
    charges: Mapping[DeviceKey, Amounts]
    """What each device in use was charged when its first holder came, by device."""
