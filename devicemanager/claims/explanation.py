"""Explain why claims get their devices or do not fit, in words and as data.

In:  an outcome of the search with the devices that each rule excludes (``core.reasons``), and
     the resolved claims, which have the units and labels that users wrote.
Out: an ``Explanation`` for people and JSON, or one line for the message of a rejection.
"""

# In each request, every device appears once: allocated, usable, or under the first rule that
# excludes it.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from devicemanager.claims.core.inventory import Inventory
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.ledger_view import LedgerView
from devicemanager.claims.core.model import (
    AccessMode,
    Allocation,
    Cause,
    Error,
    Exclusion,
    Grant,
    Infeasible,
    Leftover,
    Limits,
    Rejection,
    Undecided,
)
from devicemanager.claims.core.reasons import leftovers
from devicemanager.claims.core.solve import DEFAULT_LIMITS, solve
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.resolve import ResolvedClaim
from devicemanager.core import bitset
from devicemanager.core.quantity import Quantity

_SHOWN = 3
_SHOWN_TAKEN = 8
"""Maximum number of devices that a line of text names; the JSON data has all devices."""


@attrs.frozen
class ExcludedDevices:
    """Devices whose first excluding rule is the same, with that rule in words."""

    rule: str
    devices: tuple[str, ...]
    """Device names as ``pool/device``, in the order in which the search considers devices."""


@attrs.frozen
class RequestExplanation:
    """The result for one request of a claim, or for one of its alternatives."""

    claim: str
    label: str
    """Position in the claim's spec, such as ``claims[0].oneOf[1]``."""
    served: bool
    """True if the request has devices or would get them."""
    summary: str
    taken: tuple[str, ...]
    """Devices of the request as ``pool/device``; shared devices with their amounts."""
    usable: tuple[str, ...]
    """Devices that no rule excludes; empty if ``served`` is true."""
    excluded: tuple[ExcludedDevices, ...]


@attrs.frozen
class Explanation:
    """Reasons why claims have their devices, would get them together, or do not fit."""

    claims: tuple[str, ...]
    """Names of the claims as ``namespace/name``."""
    fits: bool
    message: str
    """Result for all claims together, in one line."""
    requests: tuple[RequestExplanation, ...] = ()

    def text(self) -> str:
        """Return the explanation as lines of text for people."""
        lines = [line for each in self.requests for line in _lines(each)]
        return "\n".join([self.message, *lines])

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as a dict for JSON, with all devices."""
        return attrs.asdict(self)


def explain(
    inventory: Inventory,
    resolved: Sequence[ResolvedClaim],
    ledger: Ledger,
    limits: Limits = DEFAULT_LIMITS,
) -> Explanation:
    """Explain claims together, on the node of ``inventory``, without allocating devices.

    The explanation shows the devices of allocated claims, and those that pending claims would
    get.
    """
    allocated = [ledger.allocation(each.claim.id) for each in resolved]
    new = [each.claim for each, has in zip(resolved, allocated, strict=True) if has is None]
    names = tuple([each.claim.id for each in resolved])
    outcome = solve(inventory, ledger, new, limits)
    if isinstance(outcome, Infeasible):
        rejections = [_rejected(inventory, resolved, each) for each in outcome.reasons]
        return Explanation(names, False, _together(names, "does not fit"), tuple(rejections))
    if isinstance(outcome, Error):
        return Explanation(names, False, f'DeviceClaim "{outcome.claim}": {outcome.message}')
    if isinstance(outcome, Undecided):
        return Explanation(names, False, undecided_message(outcome))
    found = iter(outcome.allocations)
    allocations = [has or next(found) for has in allocated]
    # Explain against a ledger without these claims: otherwise rules would exclude the devices of
    # an allocated claim as allocated to that claim.
    before = Ledger.restore(ledger.state())
    before.release(*names)
    claims = [each.claim for each in resolved]
    left = leftovers(LedgerView.of(inventory, before), before, claims, allocations)
    served = [_served(inventory, resolved, allocations, each) for each in left]
    what = "fits" if new else "is allocated"
    return Explanation(names, True, _together(names, what), tuple(served))


def undecided_message(outcome: Undecided) -> str:
    """Return the message for a search that reached its limits."""
    return (
        f"the search for devices was cut off after {outcome.steps} steps without a result: try"
        " again, or simplify the claims"
    )


def rejection_line(rejection: Rejection, resolved: Sequence[ResolvedClaim]) -> str:
    """Return a rejection in one line: what is missing, then each rule with a device count."""
    rules = [f"{each.devices.bit_count()}: {each.rule}" for each in rejection.exclusions]
    summary = _summary(rejection, _detail(resolved, rejection.claim, rejection.label))
    return "; ".join([f'DeviceClaim "{rejection.claim}", {rejection.label}: {summary}', *rules])


def _together(names: Sequence[str], what: str) -> str:
    if len(names) == 1:
        return f'DeviceClaim "{names[0]}" {what}'
    listed = ", ".join(f'"{name}"' for name in names)
    plural = {"does not fit": "do not fit together", "fits": "fit together"}
    return f"DeviceClaims {listed} {plural.get(what, 'are allocated')}"


def _rejected(
    inventory: Inventory, resolved: Sequence[ResolvedClaim], rejection: Rejection
) -> RequestExplanation:
    return RequestExplanation(
        rejection.claim,
        rejection.label,
        False,
        _summary(rejection, _detail(resolved, rejection.claim, rejection.label)),
        (),
        _names(inventory, rejection.usable),
        _excluded(inventory, rejection.exclusions),
    )


def _served(
    inventory: Inventory,
    resolved: Sequence[ResolvedClaim],
    allocations: Sequence[Allocation],
    left: Leftover,
) -> RequestExplanation:
    detail = _detail(resolved, left.claim, left.label)
    grants = [
        grant
        for allocation in allocations
        if allocation.claim == left.claim
        for grant in allocation.grants
        if grant.label == left.label
    ]
    taken = tuple([_granted(grant, detail) for grant in grants])
    summary = f"gets {_count(len(taken))}{_MODES[grants[0].mode]}"
    excluded = _excluded(inventory, left.exclusions)
    return RequestExplanation(left.claim, left.label, True, summary, taken, (), excluded)


_MODES = {
    AccessMode.EXCLUSIVE: "",
    AccessMode.SHARED: ", in part",
    AccessMode.ADMIN: ", with admin access",
}


def _granted(grant: Grant, detail: api.ClaimDetail) -> str:
    name = f"{grant.device.pool}/{grant.device.name}"
    amounts = [
        f"{_amount(detail, each, nanos)} of {each}" for each, nanos in sorted(grant.amounts.items())
    ]
    return f"{name} ({', '.join(amounts)})" if amounts else name


def _summary(rejection: Rejection, detail: api.ClaimDetail) -> str:
    """Return what a rejected alternative needs and what it could get, in words."""
    needs = f"needs {_count(rejection.count)}"
    usable = rejection.usable.bit_count()
    if rejection.cause is Cause.DEVICES:
        return f"{needs}, {usable} can be used"
    if rejection.cause is Cause.AMOUNTS:
        have = [
            f"{_amount(detail, name, detail.requests[name].nanos)} of {name}, can have at most"
            f" {_amount(detail, name, nanos)}"
            for name, nanos in sorted(rejection.reachable.items())
            if nanos < detail.requests[name].nanos
        ]
        return f"needs {' and '.join(have)}"
    if rejection.cause is Cause.BUDGET:
        return f"{needs}: {usable} can be used, but not that many within the budgets of their pools"
    if rejection.cause is Cause.MATCH:
        return "needs all devices, but their matched attributes differ"
    return f"{needs}, which fit alone but not with the other requests"


def _count(devices: int) -> str:
    return f"{devices} device{'' if devices == 1 else 's'}"


def _amount(detail: api.ClaimDetail, name: str, nanos: int) -> str:
    """Return an amount (nano-units) as text, in the quantity format that the claim uses."""
    return str(Quantity(nanos, detail.requests[name].format))


def _detail(resolved: Sequence[ResolvedClaim], claim: str, label: str) -> api.ClaimDetail:
    return next(
        choice.detail
        for each in resolved
        if each.claim.id == claim
        for choices in each.choices
        for choice in choices
        if choice.alternative.label == label
    )


def _excluded(inventory: Inventory, exclusions: Sequence[Exclusion]) -> tuple[ExcludedDevices, ...]:
    return tuple(
        [ExcludedDevices(each.rule, _names(inventory, each.devices)) for each in exclusions]
    )


def _names(inventory: Inventory, devices: int) -> tuple[str, ...]:
    keys = [device.key for device in bitset.select(inventory.devices, devices)]
    return tuple([f"{key.pool}/{key.name}" for key in keys])


def _lines(request: RequestExplanation) -> Iterator[str]:
    yield f"  {request.claim}, {request.label}: {request.summary}"
    if request.taken:
        yield f"    taken: {_some(request.taken, _SHOWN_TAKEN)}"
    if request.usable:
        yield f"    usable: {_some(request.usable)}"
    for each in request.excluded:
        yield f"    {_count(len(each.devices))}: {each.rule} ({_some(each.devices)})"


def _some(devices: Sequence[str], most: int = _SHOWN) -> str:
    more = [f"and {len(devices) - most} more"] if len(devices) > most else []
    return ", ".join([*devices[:most], *more])
