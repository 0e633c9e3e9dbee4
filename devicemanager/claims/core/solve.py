"""Find devices for several claims together: for all of them, or for none.

In:  the inventory of one node, the ledger, and the claims.
Out: an ``Outcome``. The ledger is not changed; ``Ledger.commit`` records a solution.

The docstring of the package ``claims.core`` defines slot, demand and all other terms.
"""

# Order of answers. Requests are ordered as given, over all claims. An earlier request gets a
# better alternative even if all later requests get a worse one. Once an alternative is chosen
# for each request, ``first_fit`` defines the order of the devices.
#
# The search has layers. Each layer is exact, or leaves the decision to the next one:
#
# 1. ``_options`` drops alternatives that do not fit even alone.
# 2. ``_choose`` tries the combinations of alternatives, depth first, and extends a combination
#    only if devices can be found for it. Most calls have only one combination.
# 3. ``Problem.reduce`` removes devices and values by counting.
# 4. ``_components`` separates slots that cannot interfere with each other. So the costs of
#    components add up instead of multiplying. The first answers of all components together are
#    the first answer of the call.
# 5. ``first_fit`` searches each component in the documented order.
# 6. ``decide`` takes over for whole devices if first fit needs too many picks. It decides
#    exactly if the component fits; its answer need not be the first one in order.
#
# All layers count steps in one ``StepBudget``, which also counts the evaluation of constraints
# before the search, and the reasons of a rejection after it. A spent budget ends the search as
# ``Undecided``, which does not mean "does not fit".

from __future__ import annotations

from collections.abc import Callable, Sequence

from devicemanager.claims.core import decide, first_fit, max_flow, reasons
from devicemanager.claims.core.first_fit import SlotDevices
from devicemanager.claims.core.inventory import Inventory
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.ledger_view import LedgerView
from devicemanager.claims.core.model import (
    AccessMode,
    Allocation,
    Alternative,
    Claim,
    Error,
    Grant,
    Infeasible,
    Limits,
    Outcome,
    Solution,
    Undecided,
)
from devicemanager.claims.core.problem import Choice, Problem, Slot
from devicemanager.claims.core.step_budget import (
    FirstFitCutOffError,
    OutOfStepsError,
    StepBudget,
)
from devicemanager.core import bitset

Answer = tuple[Choice, SlotDevices]
"""The alternative chosen for one request, and its devices."""

DEFAULT_LIMITS = Limits()


def solve(
    inventory: Inventory,
    ledger: Ledger,
    claims: Sequence[Claim],
    limits: Limits = DEFAULT_LIMITS,
    steps: StepBudget | None = None,
) -> Outcome:
    """Find devices on one node for claims that are not allocated yet.

    ``steps``: a step budget from ``budget_of``, of which the caller may already have spent a part.
    None creates a new step budget.

    The outcomes ``Infeasible`` and ``Error`` are certain. The outcome ``Undecided`` means that
    the search reached its limits without a result.
    """
    # These errors need no search, and are reported even if the claims do not fit.
    for claim in claims:
        if (error := _too_many(claim, limits.devices)) is not None:
            return error
    steps = steps or budget_of(limits)
    call = _Call(LedgerView.of(inventory, ledger), claims, limits, steps)
    try:
        found = call.run()
    except OutOfStepsError:
        return Undecided(steps.spent, call.unexamined(), steps.is_out_of_time)
    if found is not None:
        return Solution(call.allocations(found), call.steps.spent)
    if call.too_many is not None:
        return call.too_many
    searched = steps.spent
    steps.reserve(0)

    def fits(some: Sequence[Claim]) -> bool:
        return _Call(call.view, some, limits, steps).run() is not None

    found_reasons = reasons.rejections(call.view, ledger, claims, limits, steps, fits)
    return Infeasible(found_reasons, searched)


def budget_of(limits: Limits, may_continue: Callable[[], bool] | None = None) -> StepBudget:
    """Return a new step budget for one search.

    ``may_continue`` is called every few steps. If it returns False, the search ends as if it had
    used all steps.
    """
    steps = StepBudget(limits.total + limits.explanation, may_continue)
    steps.reserve(limits.explanation)
    return steps


def _too_many(claim: Claim, most: int) -> Error | None:
    least = sum(min(_least(each) for each in request.alternatives) for request in claim.requests)
    return _error(claim, least, most) if least > most else None


def _least(alternative: Alternative) -> int:
    return 1 if alternative.every else alternative.count


def _error(claim: Claim, count: int, most: int) -> Error:
    return Error(claim.id, f"needs {count} devices; a claim can have at most {most}")


class _Call:
    """One call of ``solve``: its claims, limits and step budget."""

    def __init__(
        self, view: LedgerView, claims: Sequence[Claim], limits: Limits, steps: StepBudget
    ) -> None:
        self.view = view
        self.steps = steps
        # The choices, or requests with index 0, that the search has not decided yet.
        self._open: Sequence[Choice] = ()
        # The error for the first claim that would fit if a claim could have more devices.
        self.too_many: Error | None = None
        self._claims = claims
        self._limits = limits

    def run(self) -> list[Answer] | None:
        """Return the first answer: for each request, a choice and its devices.

        Return None if there is no answer.
        """
        requests = [
            (claim, request, 0)
            for claim in range(len(self._claims))
            for request in range(len(self._claims[claim].requests))
        ]
        options = []
        for place, (claim, request, _) in enumerate(requests):
            self._open = requests[place:]
            options.append(self._options(claim, request))
        if not all(options):
            return None
        # The first preferences are the usual answer, and the cheapest one to try.
        first = self._fill([choices[0] for choices in options])
        if first is not None or all(len(choices) == 1 for choices in options):
            return first
        return self._choose(options)

    def _options(self, claim: int, request: int) -> list[Choice]:
        """Return those alternatives of a request that can fit alone, in order of preference."""
        found: list[Choice] = []
        alternatives = self._claims[claim].requests[request].alternatives
        for index, alternative in enumerate(alternatives):
            choice = (claim, request, index)
            if any(alternative.is_like(alternatives[other]) for _, _, other in found):
                continue  # a repeated alternative cannot succeed where the earlier one failed
            problem = self._problem([choice])
            if problem.reduce():
                found.append(choice)
            else:
                self._note_too_many(problem)
        return found

    def _choose(self, options: list[list[Choice]]) -> list[Answer] | None:
        """Return the answer for the first combination of options for which devices are found.

        ``options``: the possible choices for each request. Return None if there is no answer.

        The search is depth first. It starts with the choices of all requests that have only one
        option, and then adds a choice for one request after another. Each time, it looks for
        devices before it adds the next choice. So it finds a conflict between early requests
        once, not for each combination of later requests.
        """
        chosen = [choices[0] if len(choices) == 1 else None for choices in options]
        undecided = [place for place, choice in enumerate(chosen) if choice is None]
        branches = [iter(options[undecided[0]])]
        while branches:
            place = undecided[len(branches) - 1]
            chosen[place] = next(branches[-1], None)
            if chosen[place] is None:
                branches.pop()
                continue
            if not self._is_possible(chosen, options):
                continue
            found = self._fill([choice for choice in chosen if choice is not None])
            if found is None:
                continue
            if len(branches) == len(undecided):
                return found
            branches.append(iter(options[undecided[len(branches)]]))
        return None

    def _is_possible(
        self, chosen: Sequence[Choice | None], options: Sequence[Sequence[Choice]]
    ) -> bool:
        """True unless there are certainly too few whole devices for all requests.

        A request without a choice can use the devices of all its options, and needs the smallest
        count of these.
        """
        demands = []
        for choice, choices in zip(chosen, options, strict=True):
            found = [self._alternative(each) for each in ([choice] if choice else choices)]
            if all(each.mode is AccessMode.EXCLUSIVE for each in found):
                devices = bitset.union(self.view.usable(each) for each in found)
                demands.append((devices, min(each.count for each in found)))
        self.steps.spend(len(demands))
        return max_flow.fits(demands, self.steps)

    def _fill(self, choices: list[Choice]) -> list[Answer] | None:
        """Return each choice with devices for it; None if the choices do not fit together."""
        self._open = choices
        problem = self._problem(choices)
        # The cost of creating the problem, in steps.
        self.steps.spend(len(choices) * (4 + len(self.view.inventory.kinds) // 64))
        devices: dict[int, SlotDevices] = {}
        if not problem.reduce():
            self._note_too_many(problem)
            return None
        components = _components(problem)
        for place, slots in enumerate(components):
            self._open = [choices[slot] for each in components[place:] for slot in each]
            found = self._fill_component(problem, slots)
            if found is None:
                self._note_too_many(problem)
                return None
            devices.update(found)
        return [(choice, devices[place]) for place, choice in enumerate(choices)]

    def _fill_component(self, problem: Problem, slots: list[int]) -> dict[int, SlotDevices] | None:
        if not decide.is_decidable(problem, slots):
            return first_fit.search(problem, slots, None)
        try:
            return first_fit.search(problem, slots, self._limits.first_fit)
        except FirstFitCutOffError:
            return decide.decide(problem, slots)

    def _problem(self, choices: list[Choice]) -> Problem:
        return Problem.of(self.view, self._claims, choices, self._limits.devices, self.steps)

    def _alternative(self, choice: Choice) -> Alternative:
        claim, request, index = choice
        return self._claims[claim].requests[request].alternatives[index]

    def _note_too_many(self, problem: Problem) -> None:
        for slot in problem.slots:
            if (count := slot.devices_over_limit()) and self.too_many is None:
                claim = self._claims[slot.claim]
                room = self._limits.devices - slot.most
                self.too_many = _error(claim, count + room, self._limits.devices)

    def unexamined(self) -> tuple[tuple[str, str], ...]:
        """Return the claim and label of each choice that the search has not decided yet."""
        return tuple(
            [(self._claims[each[0]].id, self._alternative(each).label) for each in self._open]
        )

    def allocations(self, answers: Sequence[Answer]) -> tuple[Allocation, ...]:
        """Return the allocation of each claim for an answer."""
        grants: list[list[Grant]] = [[] for _ in self._claims]
        for choice, found in answers:
            alternative = self._alternative(choice)
            amounts = found.amounts or ({},) * len(found.devices)
            for number, each in zip(found.devices, amounts, strict=True):
                key = self.view.inventory.devices[number].key
                grants[choice[0]].append(
                    Grant(key, *choice[1:], alternative.label, alternative.mode, each)
                )
        return tuple(
            Allocation(claim.id, tuple(own))
            for claim, own in zip(self._claims, grants, strict=True)
        )


def _components(problem: Problem) -> list[list[int]]:
    """Group slots (by index) so that slots of different groups cannot interfere.

    Slots in a group are ascending; groups are in the order of their first slots.
    """
    leader = list(range(len(problem.slots)))
    pools = [_charging_pools(problem, slot) for slot in problem.slots]
    for place, slot in enumerate(problem.slots):
        for other in range(place):
            if leader[other] == leader[place]:
                continue
            if _can_interfere(problem.slots[other], slot) or pools[other] & pools[place]:
                old, new = leader[place], leader[other]
                leader = [new if each == old else each for each in leader]
    found: dict[int, list[int]] = {}
    for place, each in enumerate(leader):
        found.setdefault(each, []).append(place)
    return sorted(found.values())


def _can_interfere(one: Slot, other: Slot) -> bool:
    """True if a pick for one slot can affect the devices of the other; charges are ignored."""
    if set(one.constraints) & set(other.constraints):
        return True
    # Admin access uses no device. It interferes only within a claim: a claim gets a device once.
    if one.claim != other.claim and AccessMode.ADMIN in (one.mode, other.mode):
        return False
    return bool(one.usable & other.usable)


def _charging_pools(problem: Problem, slot: Slot) -> int:
    """Return the pools that a pick for this slot can charge, as a bit set of pool indexes."""
    if slot.mode is AccessMode.ADMIN:
        return 0
    found = 0
    for kind in problem.view.inventory.kinds:
        if kind.charge and kind.devices & slot.usable & ~problem.view.in_use:
            found |= 1 << kind.pool
    return found
