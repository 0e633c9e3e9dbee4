"""Which devices claims get: all of them together, or none.

The order of answers is that of the specification: first the alternatives, the earlier
request keeping its preference over the later one; then for these alternatives request by
request, as ``firstfit`` says. The answer does not depend on anything but the arguments, and
the ledger is not changed: ``Ledger.commit`` does that.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from devicemanager.claims.core import decide, firstfit, max_flow, reasons
from devicemanager.claims.core.components import components
from devicemanager.claims.core.firstfit import Part
from devicemanager.claims.core.inventory import Inventory
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.core.model import (
    Allocation,
    Alternative,
    Budget,
    Claim,
    Error,
    Grant,
    Infeasible,
    Limits,
    Mode,
    Outcome,
    Solution,
)
from devicemanager.claims.core.problem import Choice, Problem
from devicemanager.claims.core.step_budget import OrderLostError, OutOfStepsError, Steps
from devicemanager.claims.core.view import View
from devicemanager.core import bitset

Answer = tuple[Choice, Part]

DEFAULT_LIMITS = Limits()


def solve(
    inventory: Inventory,
    ledger: Ledger,
    claims: Sequence[Claim],
    limits: Limits = DEFAULT_LIMITS,
) -> Outcome:
    """The first answer for claims that are not allocated yet, all of one node.

    ``Infeasible`` and ``Error`` are certain; ``Budget`` means that nothing is known.
    """
    for claim in claims:
        if (error := _too_many(claim, limits.devices)) is not None:
            return error
    call = _Call(View.of(inventory, ledger), claims, limits)
    try:
        found = call.run()
    except OutOfStepsError:
        return Budget(call.steps.spent)
    if found is not None:
        return Solution(call.allocations(found), call.steps.spent)
    if call.too_many is not None:
        return call.too_many
    return Infeasible(reasons.rejections(call.view, ledger, claims, limits), call.steps.spent)


def _too_many(claim: Claim, most: int) -> Error | None:
    least = sum(min(_least(each) for each in request.alternatives) for request in claim.requests)
    return _error(claim, least, most) if least > most else None


def _least(alternative: Alternative) -> int:
    return 1 if alternative.every else alternative.count


def _error(claim: Claim, count: int, most: int) -> Error:
    return Error(claim.id, f"it takes {count} devices, and a claim may have {most} at most")


class _Call:
    def __init__(self, view: View, claims: Sequence[Claim], limits: Limits) -> None:
        self.view = view
        self.steps = Steps(limits.total)
        self.too_many: Error | None = None
        """A claim that the limit of devices for a claim kept from an answer."""
        self._claims = claims
        self._limits = limits

    def run(self) -> list[Answer] | None:
        """The first answer: a choice and its part for each request. None if there is none."""
        options = [
            self._options(claim, request)
            for claim in range(len(self._claims))
            for request in range(len(self._claims[claim].requests))
        ]
        if not all(options):
            return None
        first = self._fill([choices[0] for choices in options])
        if first is not None or all(len(choices) == 1 for choices in options):
            return first
        return self._choose(options)

    def _options(self, claim: int, request: int) -> list[Choice]:
        """The alternatives worth trying, in order: each could be served if it were alone."""
        found: list[Choice] = []
        alternatives = self._claims[claim].requests[request].alternatives
        for index, alternative in enumerate(alternatives):
            choice = (claim, request, index)
            if any(_same(alternative, alternatives[other]) for _, _, other in found):
                continue  # what an earlier one does not get, this one does not get either
            problem = self._problem([choice])
            if problem.reduce():
                found.append(choice)
            else:
                self._note_too_many(problem)
        return found

    def _choose(self, options: list[list[Choice]]) -> list[Answer] | None:
        """The first vector of alternatives that can be served, depth first, and its answer.

        Each beginning of a vector is served alone, together with the requests that have one
        option only, before it is made longer.
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
        """Are there enough whole devices, if what is undecided may have any option's?"""
        demands = []
        for choice, choices in zip(chosen, options, strict=True):
            found = [self._alternative(each) for each in ([choice] if choice else choices)]
            if all(each.mode is Mode.EXCLUSIVE for each in found):
                devices = bitset.union(self.view.usable(each) for each in found)
                demands.append((devices, min(each.count for each in found)))
        self.steps.work(len(demands))
        return max_flow.fits(demands, self.steps)

    def _fill(self, choices: list[Choice]) -> list[Answer] | None:
        """Serve these alternatives; None if that cannot be."""
        problem = self._problem(choices)
        # What it costs to set the problem up, compared with a pick.
        self.steps.work(len(choices) * (4 + len(self.view.inventory.kinds) // 64))
        parts: dict[int, Part] = {}
        if not problem.reduce():
            self._note_too_many(problem)
            return None
        for slots in components(problem):
            found = self._fill_component(problem, slots)
            if found is None:
                self._note_too_many(problem)
                return None
            parts.update(found)
        return [(choice, parts[place]) for place, choice in enumerate(choices)]

    def _fill_component(self, problem: Problem, slots: list[int]) -> dict[int, Part] | None:
        if not decide.is_decidable(problem, slots):
            return firstfit.search(problem, slots, None)
        try:
            return firstfit.search(problem, slots, self._limits.first_fit)
        except OrderLostError:
            return decide.decide(problem, slots)

    def _problem(self, choices: list[Choice]) -> Problem:
        return Problem.of(self.view, self._claims, choices, self._limits.devices, self.steps)

    def _alternative(self, choice: Choice) -> Alternative:
        claim, request, index = choice
        return self._claims[claim].requests[request].alternatives[index]

    def _note_too_many(self, problem: Problem) -> None:
        for slot in problem.slots:
            if (count := slot.exceeds()) and self.too_many is None:
                claim = self._claims[slot.claim]
                room = self._limits.devices - slot.most
                self.too_many = _error(claim, count + room, self._limits.devices)

    def allocations(self, answers: Sequence[Answer]) -> tuple[Allocation, ...]:
        """The answers as what each claim gets."""
        grants: list[list[Grant]] = [[] for _ in self._claims]
        for choice, part in answers:
            alternative = self._alternative(choice)
            amounts = part.amounts or ({},) * len(part.devices)
            for number, given in zip(part.devices, amounts, strict=True):
                key = self.view.inventory.devices[number].key
                grants[choice[0]].append(
                    Grant(key, *choice[1:], alternative.label, alternative.mode, given)
                )
        return tuple(
            Allocation(claim.id, tuple(own))
            for claim, own in zip(self._claims, grants, strict=True)
        )


def _same(one: Alternative, other: Alternative) -> bool:
    """Do both ask for the same?"""
    return attrs.evolve(one, label=other.label, exclusions=other.exclusions) == other
