"""Explain why claims get their devices or do not fit, in words and as data.

In:  the result of a search, with the devices that each rule excludes (``core.reasons``); the
     claims, with their requests as users wrote them.
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
from devicemanager.claims.core.solve import DEFAULT_LIMITS, budget_of, solve
from devicemanager.claims.core.step_budget import StepBudget
from devicemanager.claims.errors import TryAgain
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.claims.v1alpha1.resolve import ConstraintsCutOff, ResolvedClaim
from devicemanager.core import bitset
from devicemanager.core.printable import counted, one_line
from devicemanager.core.quantity import Quantity

_SHOWN = 3
_SHOWN_TAKEN = 8
"""Maximum number of devices that a line of text names; the JSON data has all devices."""


@attrs.frozen
class ExcludedDevices:
    """Devices that the same rule excludes, with this rule in words. A device that several rules
    exclude counts for the first of them."""

    rule: str
    devices: tuple[str, ...]
    """Device names as ``pool/device``, in the order in which the search considers devices."""


@attrs.frozen
class RequestExplanation:
    """Explanation of one request of a claim, or of one alternative of the request."""

    claim: str
    label: str
    """Position in the claim's spec, such as ``claims[0].oneOf[1]``."""
    served: bool
    """True if the request has devices or would get them."""
    summary: str
    taken: tuple[str, ...]
    """Devices of the request as ``pool/device``. A shared device also has the allocated amounts,
    as in ``nic-0/uplink (10G of bandwidth)``."""
    usable: tuple[str, ...]
    """Devices that no rule excludes, as ``pool/device``; empty if the request gets its devices."""
    excluded: tuple[ExcludedDevices, ...]


@attrs.frozen
class Explanation:
    """Explanation of claims: the devices that they have or would get, or why they do not fit."""

    claims: tuple[str, ...]
    """Names of the claims as ``namespace/name``."""
    fits: bool | None
    """True if the claims fit, False if not; None if the search reached its limits first."""
    message: str
    """Result for all claims together, in one line."""
    requests: tuple[RequestExplanation, ...] = ()
    unexamined: tuple[str, ...] = ()
    """Texts about the parts of the search that were not finished (see ``TryAgain``); empty if the
    search did not reach its limits."""

    def text(self) -> str:
        """Return the explanation as lines of text for people."""
        # The lines quote constraints and errors of CEL: a line break in them must not start a line.
        lines = [line for each in self.requests for line in _lines(each)]
        return "\n".join(map(one_line, [self.message, *lines]))

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as a dict for JSON, with all devices."""
        return attrs.asdict(self)


def explain(
    inventory: Inventory,
    resolved: Sequence[ResolvedClaim],
    ledger: Ledger,
    limits: Limits = DEFAULT_LIMITS,
    steps: StepBudget | None = None,
) -> Explanation:
    """Return which devices the claims have or would get, or why they do not fit together.

    Nothing is allocated. ``inventory``: the devices that a node can use. ``steps``: the
    counter of search steps; None creates a new counter with ``limits``.
    """
    allocated = [ledger.allocation(each.claim.id) for each in resolved]
    new = [each.claim for each, has in zip(resolved, allocated, strict=True) if has is None]
    names = tuple([each.claim.id for each in resolved])
    steps = steps or budget_of(limits)
    outcome = solve(inventory, ledger, new, limits, steps)
    if isinstance(outcome, Infeasible):
        rejections = [_rejected(inventory, resolved, each) for each in outcome.reasons]
        message = _together(names, "does not fit")
        open_ = [f"why {_named(r)} is rejected" for r in outcome.reasons if _is_open(r)]
        return Explanation(names, False, message, tuple(rejections), tuple(open_))
    if isinstance(outcome, Error):
        return Explanation(names, False, f'DeviceClaim "{outcome.claim}": {outcome.message}')
    if isinstance(outcome, Undecided):
        cut = cut_off_search(outcome)
        return Explanation(names, None, str(cut), unexamined=cut.unexamined)
    # The new allocations are in the order of the claims without one.
    found = iter(outcome.allocations)
    allocations = [has or next(found) for has in allocated]
    # Explain against a ledger without these claims: otherwise rules would exclude the devices of
    # an allocated claim as allocated to that claim.
    before = ledger.copy()
    before.release(*names)
    claims = [each.claim for each in resolved]
    left = leftovers(LedgerView.of(inventory, before), before, claims, allocations)
    served = [_served(inventory, resolved, allocations, each) for each in left]
    what = "fits" if new else "is allocated"
    return Explanation(names, True, _together(names, what), tuple(served))


def cut_off_search(outcome: Undecided) -> TryAgain:
    """Return the error for a search that reached its limits."""
    names = [f"{claim}, {label}" for claim, label in outcome.unexamined]
    limit = _limit(outcome.steps, outcome.is_out_of_time)
    what = tuple([f"all combinations of devices for {name}" for name in names])
    text = f"; not examined: all combinations of devices for {_some(names)}" if names else ""
    return TryAgain(
        f"the search for devices was cut off {limit} without a result{text}: try again, or"
        " simplify the claims",
        what,
    )


def cut_off_constraints(claim: str, cut: ConstraintsCutOff, steps: StepBudget) -> TryAgain:
    """Return the error for a search that reached its limits while it evaluated constraints."""
    limit = _limit(steps.spent, steps.is_out_of_time)
    what = f"the constraints of {claim}, {cut.label} on {cut.left} of {counted(cut.of, 'device')}"
    return TryAgain(
        f"the search for devices was cut off {limit} without a result; not examined: {what},"
        " and everything after that: try again, or simplify the constraints",
        (what,),
    )


def _limit(steps: int, is_out_of_time: bool) -> str:
    return f"by its time limit, after {steps} steps," if is_out_of_time else f"after {steps} steps"


def _named(rejection: Rejection) -> str:
    return f"{rejection.claim}, {rejection.label}"


def _is_open(rejection: Rejection) -> bool:
    return rejection.cause is Cause.UNEXAMINED


def rejection_line(rejection: Rejection, resolved: Sequence[ResolvedClaim]) -> str:
    """Return a rejection in one line: what is missing, then each rule with the number of devices
    that it excludes."""
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
    # All devices of an alternative have the same mode.
    summary = f"gets {counted(len(taken), 'device')}{_MODES[grants[0].mode]}"
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
    needs = f"needs {counted(rejection.count, 'device')}"
    usable = rejection.usable.bit_count()
    if rejection.cause is Cause.DEVICES:
        return f"{needs}, {usable} can be used"
    if rejection.cause is Cause.AMOUNTS:
        have = [
            f"{_amount(detail, name, detail.requests[name].nanos)} of {name}, can have at most"
            f" {_amount(detail, name, nanos)} from {_pools(rejection, name)}"
            for name, nanos in sorted(rejection.reachable.items())
            if nanos < detail.requests[name].nanos
        ]
        return f"needs {' and '.join(have)}"
    if rejection.cause is Cause.BUDGET:
        short = _some([f"{name} of pool {pool}" for pool, name in rejection.short])
        return f"{needs}: {usable} can be used, but the budgets allow fewer than needed: {short}"
    if rejection.cause is Cause.MATCH:
        return "needs all devices, but their matched attributes differ"
    if rejection.cause is Cause.UNEXAMINED:
        return f"{needs}; not examined further, because the step limit was reached"
    others = [
        label if claim == rejection.claim else f"{claim}, {label}"
        for claim, label in rejection.collides
    ]
    return f"{needs}, which fit alone but not together with {_some(others)}"


def _pools(rejection: Rejection, resource: str) -> str:
    return _some([f"pool {pool}" for pool, name in rejection.short if name == resource])


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
        yield f"    {counted(len(each.devices), 'device')}: {each.rule} ({_some(each.devices)})"


def _some(devices: Sequence[str], most: int = _SHOWN) -> str:
    more = [f"and {len(devices) - most} more"] if len(devices) > most else []
    return ", ".join([*devices[:most], *more])
