"""Translate a claim into an input of the search: find its classes, evaluate its constraints.

In:  a claim, the classes, and the inventory of a node.
Out: a ``core.model.Claim`` with the eligible devices of each alternative, and the reasons why
     other devices are not eligible; or ClaimsError for an error that no change of pools can fix.
"""

# Evaluating CEL takes most of the time of an allocation. A constraint is therefore evaluated
# once for each combination of values of the attributes that it reads, not once per device:
# thousands of devices have only a few combinations. The results are cached with the inventory.
#
# Each evaluation spends steps of the call's budget, so a call with many costly constraints ends
# without a result. The results so far stay in the cache: the next call continues from there.

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import attrs

from devicemanager.claims import cel
from devicemanager.claims.attributes import AttributeValue
from devicemanager.claims.core.inventory import Inventory
from devicemanager.claims.core.model import (
    AccessMode,
    Alternative,
    Claim,
    Exclusion,
    Match,
    Request,
)
from devicemanager.claims.core.step_budget import OutOfStepsError, StepBudget
from devicemanager.claims.errors import ClaimsError, EvaluationError, one_line
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.core import bitset
from devicemanager.core.quantity import NANOS

Classes = Mapping[str, api.DeviceClass]

_BASE_STEPS = 4
"""Number of steps of the call's budget that the evaluation of the simplest constraint costs."""
_UNITS = 4
"""Number of cost units of an evaluation that count as one step of the call's budget. A step takes
about 8 µs."""
_MAX_ANSWERS = 100_000
"""Maximum number of cached results, without those of the last constraint."""

_SHOWN = 200
"""Maximum number of characters of a constraint that a reason quotes."""


@attrs.frozen
class AcceptedDevices:
    """Devices that a class accepts for one alternative of a request."""

    device_class: api.DeviceClass
    devices: int
    """The set of devices that this class accepts. If several classes accept a device, it is only in
    the set of the first class."""


@attrs.frozen
class ResolvedAlternative:
    """Alternative of a request: as written in the API, and as input of the search."""

    detail: api.ClaimDetail
    accepted: tuple[AcceptedDevices, ...]
    """The devices that each class accepts for this alternative, sorted by class name."""
    alternative: Alternative

    def class_of(self, device: int) -> api.DeviceClass:
        """Return the class that accepts a device, given by its number in the inventory."""
        return next(each.device_class for each in self.accepted if each.devices >> device & 1)


@attrs.frozen
class ResolvedClaim:
    """Claim as input of the search, with the alternatives of each request."""

    claim: Claim
    choices: tuple[tuple[ResolvedAlternative, ...], ...]
    """The alternatives of each request, in the order of the claim."""


@attrs.frozen(eq=False)
class Constraints:
    """Evaluator of constraints on one inventory, with a cache of the results."""

    inventory: Inventory
    _names: tuple[str, ...] = attrs.field(init=False)
    _answers: dict[str, dict[tuple[object, ...], str | None]] = attrs.field(
        factory=dict, init=False
    )
    # A list, because the fields of a frozen class cannot be set again.
    _count: list[int] = attrs.field(factory=lambda: [0], init=False)
    """Number of cached results, as the only element of a list."""

    @_names.default
    def _all_names(self) -> tuple[str, ...]:
        names: set[str] = set()
        for attributes in {id(d.attributes): d.attributes for d in self.inventory.devices}.values():
            names.update(attributes)
        return tuple(sorted(names))

    def apply(self, text: str, devices: int, steps: StepBudget) -> tuple[int, dict[str, int]]:
        """Return the set of those ``devices`` that satisfy the constraint ``text``.

        Also return the sets of those ``devices`` that do not satisfy the constraint, by reason.
        Raises ConstraintsCutOff if the search reaches its limits before all devices are evaluated.
        """
        expression = cel.compile_v1alpha1(text)
        if expression is None:
            return devices, {}
        names = self._names if expression.reads is None else tuple(sorted(expression.reads))
        answers = self._answers.setdefault(text, {})
        passed, failed = 0, dict[str, int]()
        # Evaluate once for all devices with equal values, and cache the result for later claims.
        for values, members in self.inventory.partition(names).items():
            affected = members & devices
            if not affected:
                continue
            if values not in answers:
                try:
                    fault = _fault(expression, dict(zip(names, values, strict=True)), steps)
                except OutOfStepsError:
                    left = devices & ~passed & ~bitset.union(failed.values())
                    raise ConstraintsCutOff(left.bit_count(), devices.bit_count()) from None
                # Interned: many results have equal texts, and the cache holds up to
                # ``_MAX_ANSWERS`` results.
                answers[values] = fault if fault is None else sys.intern(fault)
                self._note_answer(text)
            fault = answers[values]
            if fault is None:
                passed |= affected
            else:
                failed[fault] = failed.get(fault, 0) | affected
        return passed, failed

    def _note_answer(self, text: str) -> None:
        """Count a new result of constraint ``text``; at the limit, remove the oldest constraint."""
        self._count[0] += 1
        if self._count[0] > _MAX_ANSWERS:
            oldest = next(iter(self._answers))
            # Not this constraint: its results are in use, and a retry of the call needs them.
            if oldest != text:
                self._count[0] -= len(self._answers.pop(oldest))


def _fault(
    expression: cel.Expression, values: Mapping[str, object], steps: StepBudget
) -> str | None:
    """Return why devices with these attributes do not satisfy a constraint.

    Return None if they satisfy it. Raises OutOfStepsError if the evaluation takes too long.
    """
    steps.spend(_BASE_STEPS)
    # A device without the attribute has None instead of a value.
    attributes = {
        name: value for name, value in values.items() if isinstance(value, AttributeValue)
    }
    text = one_line(expression.text, _SHOWN)
    try:
        is_match = expression.matches(attributes, lambda units: steps.spend(units // _UNITS))
        return None if is_match else f"{text} is false"
    except EvaluationError as error:
        return f"{text} fails: {error}"


class ConstraintsCutOff(Exception):
    """Error if the search reaches its limits while it evaluates a constraint."""

    def __init__(self, left: int, of: int) -> None:
        """Create the error.

        ``left``: number of devices without a result. ``of``: number of devices to evaluate.
        """
        self.left = left
        self.of = of
        self.label = ""
        """Request or alternative whose constraints were evaluated: its position in the claim's
        spec, such as ``claims[0].oneOf[1]``."""


class Resolver:
    """Translator of claims into inputs of the search, for one inventory and set of classes."""

    def __init__(
        self,
        constraints: Constraints,
        classes: Classes,
        admin_namespaces: frozenset[str] | None,
        steps: StepBudget,
    ) -> None:
        """Create a resolver.

        ``admin_namespaces``: the namespaces whose claims can use classes with admin access; None
        means all namespaces. ``steps``: the counter of search steps, with their limit.
        """
        self._steps = steps
        self._constraints = constraints
        self.inventory = constraints.inventory
        self._classes = classes
        self._admin_namespaces = admin_namespaces

    def resolve(self, claim: api.DeviceClaim) -> ResolvedClaim:
        """Translate a claim into an input of the search.

        Raises ClaimsError for a class that does not exist, for a class with another ``deviceType``
        than the claim requests, and for a forbidden use of admin access. No change of pools can
        fix these errors. Raises ConstraintsCutOff if the search reaches its limits.
        """
        labelled = [_labelled(number, each) for number, each in enumerate(claim.claims)]
        # Find all classes first: a missing class is an error even in an unneeded alternative.
        found = [
            [(*each, self._find_classes(claim, *each)) for each in instance]
            for instance in labelled
        ]
        choices = tuple([tuple([self._choice(*each) for each in instance]) for instance in found])
        requests = tuple([Request(tuple([c.alternative for c in each])) for each in choices])
        match = tuple([Match(name) for name in claim.match_attributes])
        return ResolvedClaim(Claim(claim.id, requests, match), choices)

    def _find_classes(
        self, claim: api.DeviceClaim, label: str, detail: api.ClaimDetail
    ) -> tuple[api.DeviceClass, ...]:
        try:
            return self._classes_of(detail, claim.metadata.namespace)
        except ClaimsError as error:
            raise ClaimsError(f'DeviceClaim "{claim.id}": spec.{label}: {error}') from None

    def _classes_of(self, detail: api.ClaimDetail, namespace: str) -> tuple[api.DeviceClass, ...]:
        # A type never matches a class with admin access, which must be requested by name.
        if not detail.device_class:
            ordinary = [each for each in self._classes.values() if not each.admin_access]
            of_type = [each for each in ordinary if each.device_type == detail.device_type]
            return tuple(sorted(of_type, key=lambda each: each.name))
        name = detail.device_class
        found = self._classes.get(name)
        if found is None:
            raise ClaimsError(f'DeviceClass "{name}" does not exist: create it first')
        if detail.device_type and detail.device_type != found.device_type:
            raise ClaimsError(
                f'DeviceClass "{name}" has type "{found.device_type}",'
                f' but the claim requests type "{detail.device_type}":'
                " change the class or the type in the claim"
            )
        if found.admin_access and not self._is_admin(namespace):
            raise ClaimsError(
                f'DeviceClass "{name}" gives admin access: namespace "{namespace}" must not use it:'
                " name another class"
            )
        resources = sorted(detail.requests.keys() - {api.COUNT})
        if found.admin_access and resources:
            raise ClaimsError(
                f'DeviceClass "{name}" gives admin access: only {api.COUNT} can be requested,'
                f" not {', '.join(resources)}"
            )
        return (found,)

    def _is_admin(self, namespace: str) -> bool:
        return self._admin_namespaces is None or namespace in self._admin_namespaces

    def _choice(
        self, label: str, detail: api.ClaimDetail, classes: tuple[api.DeviceClass, ...]
    ) -> ResolvedAlternative:
        try:
            accepted, exclusions = self._qualify(detail, classes)
        except ConstraintsCutOff as error:
            error.label = label
            raise
        eligible = 0
        for each in accepted:
            eligible |= each.devices
        # A class with admin access is always alone: a device type does not select it.
        admin = any(each.admin_access for each in classes)
        alternative = _alternative(label, detail, admin, eligible, exclusions)
        return ResolvedAlternative(detail, accepted, alternative)

    def _qualify(
        self, detail: api.ClaimDetail, classes: tuple[api.DeviceClass, ...]
    ) -> tuple[tuple[AcceptedDevices, ...], tuple[Exclusion, ...]]:
        """Return the devices that each class accepts, and the rules that exclude all other devices.

        A device belongs to the first class that accepts it.
        """
        rest = _Unqualified(self.inventory.everything)
        accepted = []
        for each in classes:
            devices = self.inventory.of_driver(each.driver) & rest.devices
            by_class, failed = self._constraints.apply(each.constraints, devices, self._steps)
            rest.note({f"{fault} (DeviceClass {each.name})": s for fault, s in failed.items()})
            passed, failed = self._constraints.apply(detail.constraints, by_class, self._steps)
            rest.note(failed)
            rest.devices &= ~passed
            accepted.append(AcceptedDevices(each, passed))
        return tuple(accepted), rest.exclusions(_no_driver(detail, classes))


class _Unqualified:
    """Devices that no class has accepted yet, by the first rule that excludes them."""

    def __init__(self, everything: int) -> None:
        self.devices = everything
        self._unexplained = everything
        self._rules: dict[str, int] = {}

    def note(self, failed: Mapping[str, int]) -> None:
        for rule, devices in failed.items():
            new = devices & self._unexplained
            self._unexplained &= ~new
            if new:
                self._rules[rule] = self._rules.get(rule, 0) | new

    def exclusions(self, otherwise: str) -> tuple[Exclusion, ...]:
        rules = {otherwise: self._unexplained, **self._rules}
        left = {rule: devices & self.devices for rule, devices in rules.items()}
        return tuple([Exclusion(rule, devices) for rule, devices in left.items() if devices])


def _no_driver(detail: api.ClaimDetail, classes: Iterable[api.DeviceClass]) -> str:
    drivers = sorted({each.driver for each in classes})
    if not drivers:
        return f"no DeviceClass of type {detail.device_type} exists"
    return f"the driver is not {' or '.join(drivers)}"


def _labelled(number: int, instance: api.ClaimInstance) -> list[tuple[str, api.ClaimDetail]]:
    label = f"claims[{number}]"
    if instance.detail is not None:
        return [(label, instance.detail)]
    return [(f"{label}.oneOf[{i}]", detail) for i, detail in enumerate(instance.one_of)]


def _alternative(
    label: str, detail: api.ClaimDetail, admin: bool, eligible: int, why: tuple[Exclusion, ...]
) -> Alternative:
    count = detail.requests.get(api.COUNT, api.ONE).nanos // NANOS
    limit = detail.limits.get(api.COUNT)
    amounts = {name: q.nanos for name, q in detail.requests.items() if name != api.COUNT}
    mode = AccessMode.ADMIN if admin else AccessMode.SHARED if amounts else AccessMode.EXCLUSIVE
    return Alternative(
        label,
        eligible,
        mode,
        count,
        None if limit is None else limit.nanos // NANOS,
        amounts,
        detail.match_attributes,
        every=admin and not detail.requests,
        exclusions=why,
    )
