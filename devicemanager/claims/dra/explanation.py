"""Explain why claims do not fit on a node: for each device, the first rule that excludes it.

In:  claims that do not fit, and the other inputs of their allocation (``requests.Call``): the node,
     its devices, and the device classes.
Out: lines of text. For each request: the rules, and the devices that each rule excludes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from devicemanager.claims.core.compatibility import CommonGroups
from devicemanager.claims.dra.pools import Source
from devicemanager.claims.dra.requests import Call, ClaimRequests, RequestOption, key_of

_SHOWN = 3
"""Maximum number of devices named in a line."""


def lines(call: Call, read: Sequence[ClaimRequests]) -> Iterator[str]:
    """Yield lines of text: first the incomplete and invalid pools, then each request with the rules
    that exclude devices.

    ``read``: the claims with their requests. Raises AllocationError for an error in an object, and
    OutOfStepsError if the step budget is spent.
    """
    for pool in call.offer.pools:
        if not pool.is_usable:
            yield f"pool {pool.name} is not used: {pool.invalid or 'slices are missing'}"
    for claim in read:
        for options in claim.requests:
            for option in options:
                yield from _of_option(call, key_of(claim.claim), option)


def _of_option(call: Call, claim: str, option: RequestOption) -> Iterator[str]:
    by_rule: dict[str, list[str]] = {}
    usable = 0
    for number, source in enumerate(call.offer.sources):
        rule = _rule(call, option, number, source)
        if rule is None:
            usable += 1
        else:
            name = "/".join(call.offer.inventory.devices[number].key)
            by_rule.setdefault(rule, []).append(name)
    count = "all" if option.option.every is not None else str(option.option.count)
    yield f"claim {claim}, request {option.name}: devices wanted: {count}, usable: {usable}"
    for rule, names in by_rule.items():
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"  {rule}: {', '.join(names[:_SHOWN])}{more}"
    if not call.offer.sources:
        yield "  no complete pool has devices for this node"
    elif not by_rule and usable < option.option.count:
        yield "  the node has no other devices"
    elif not by_rule or usable >= max(option.option.count, 1):
        yield (
            "  enough devices, but no combination meets all constraints, counters and other "
            "requests"
        )


def _rule(call: Call, option: RequestOption, number: int, source: Source) -> str | None:
    """Return the first rule that excludes a device; None if no rule does."""
    # The order is that of the search, so the search would reject the device for the same reason.
    view, bit, candidate = call.view, 1 << number, option.candidate
    if view.exclusive & bit and not option.option.is_admin:
        return "allocated to another claim"
    # One by one, to name the selector that is false.
    for selector in candidate.selectors:
        if not call.selectors.match((selector,), source, call.steps):
            return f"{selector.owner}, selector #{selector.index} is false: {selector.expression}"
    if not candidate.accepts(number):
        return "not for this node, or its request policy excludes the amount"
    used = view.allocated.get(number, {})
    totals = source.facts.totals
    for name, amount in candidate.consumes(number).items():
        if amount + used.get(name, 0) > totals[name]:
            return f"too little {name} left"
    if view.unaffordable & bit:
        return "too little is left of the counters of its pool"
    # A shared device in use has charged its counters already. Another share charges nothing, so its
    # groups are not compared.
    charged = view.allocated if source.device.get("allowMultipleAllocations") else ()
    if number not in charged and not CommonGroups(call.groups).add(number):
        return "incompatible with devices that use its counters (compatibilityGroups)"
    if not candidate.permits(number):
        return "a taint is not tolerated, or a feature gate is off"
    return None
