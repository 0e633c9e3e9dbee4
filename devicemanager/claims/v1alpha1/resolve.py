"""What a claim means on a node: classes looked up, constraints evaluated, as the allocator's IR.

A constraint is evaluated once for each combination of values of the attributes that it reads,
however many devices have that combination.
"""

from __future__ import annotations

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
from devicemanager.claims.errors import ClaimsError, EvaluationError, one_line
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.core.quantity import NANOS

Classes = Mapping[str, api.DeviceClass]

_SHOWN = 200
"""Characters of a constraint that a reason repeats."""


@attrs.frozen
class Accepted:
    """Which devices a class accepts for one alternative."""

    device_class: api.DeviceClass
    devices: int
    """A set of devices: those that no class before accepted."""


@attrs.frozen
class Choice:
    """One alternative of an instance, resolved."""

    detail: api.ClaimDetail
    accepted: tuple[Accepted, ...]
    alternative: Alternative

    def class_of(self, device: int) -> api.DeviceClass:
        """The class through which a device (by number) qualifies."""
        return next(each.device_class for each in self.accepted if each.devices >> device & 1)


@attrs.frozen
class ResolvedClaim:
    claim: Claim
    choices: tuple[tuple[Choice, ...], ...]
    """By instance, then by alternative."""


@attrs.frozen(eq=False)
class Constraints:
    """Evaluates constraints on the devices of one inventory, and remembers the answers."""

    inventory: Inventory
    _names: tuple[str, ...] = attrs.field(init=False)
    _answers: dict[str, dict[tuple[object, ...], str | None]] = attrs.field(
        factory=dict, init=False
    )

    @_names.default
    def _all_names(self) -> tuple[str, ...]:
        names: set[str] = set()
        for attributes in {id(d.attributes): d.attributes for d in self.inventory.devices}.values():
            names.update(attributes)
        return tuple(sorted(names))

    def apply(self, text: str, devices: int) -> tuple[int, dict[str, int]]:
        """Of ``devices``, the set that satisfies ``text``; the others by what is wrong."""
        expression = cel.compile_devmgmt(text)
        if expression is None:
            return devices, {}
        names = self._names if expression.reads is None else tuple(sorted(expression.reads))
        answers = self._answers.setdefault(text, {})
        passed, failed = 0, dict[str, int]()
        for values, members in self.inventory.partition(names).items():
            here = members & devices
            if not here:
                continue
            if values not in answers:
                answers[values] = _fault(expression, dict(zip(names, values, strict=True)))
            fault = answers[values]
            if fault is None:
                passed |= here
            else:
                failed[fault] = failed.get(fault, 0) | here
        return passed, failed


def _fault(expression: cel.Expression, values: Mapping[str, object]) -> str | None:
    """What keeps devices with these attributes from satisfying the constraint, or None."""
    attributes = {
        name: value for name, value in values.items() if isinstance(value, AttributeValue)
    }
    text = one_line(expression.text, _SHOWN)
    try:
        return None if expression.matches(attributes) else f"{text} is false"
    except EvaluationError as error:
        return f"{text} fails: {error}"


class Resolver:
    """Resolves claims against one inventory and the classes as they are at the time."""

    def __init__(
        self,
        constraints: Constraints,
        classes: Classes,
        admin_namespaces: frozenset[str] | None = None,
    ) -> None:
        """``admin_namespaces`` may use classes with admin access; None is all."""
        self._constraints = constraints
        self.inventory = constraints.inventory
        self._classes = classes
        self._admin_namespaces = admin_namespaces

    def resolve(self, claim: api.DeviceClaim) -> ResolvedClaim:
        """Raises ClaimsError for what no change of pools can mend: a class that does not exist or
        is of another type, or resources asked of a class with admin access.
        """
        labelled = [_labelled(number, each) for number, each in enumerate(claim.claims)]
        # All classes are looked up before any constraint is evaluated.
        found = [[(*each, self._of(claim, *each)) for each in instance] for instance in labelled]
        choices = tuple([tuple([self._choice(*each) for each in instance]) for instance in found])
        requests = tuple([Request(tuple([c.alternative for c in each])) for each in choices])
        match = tuple([Match(name) for name in claim.match_attributes])
        return ResolvedClaim(Claim(claim.id, requests, match), choices)

    def _of(
        self, claim: api.DeviceClaim, label: str, detail: api.ClaimDetail
    ) -> tuple[api.DeviceClass, ...]:
        try:
            return self._classes_of(detail, claim.metadata.namespace)
        except ClaimsError as error:
            raise ClaimsError(f'DeviceClaim "{claim.id}": spec.{label}: {error}') from None

    def _classes_of(self, detail: api.ClaimDetail, namespace: str) -> tuple[api.DeviceClass, ...]:
        if not detail.device_class:
            ordinary = [each for each in self._classes.values() if not each.admin_access]
            of_type = [each for each in ordinary if each.device_type == detail.device_type]
            return tuple(sorted(of_type, key=lambda each: each.name))
        name = detail.device_class
        found = self._classes.get(name)
        if found is None:
            raise ClaimsError(f'there is no DeviceClass "{name}"')
        if detail.device_type and detail.device_type != found.device_type:
            raise ClaimsError(
                f'DeviceClass "{name}" is of type "{found.device_type}",'
                f' the claim says "{detail.device_type}"'
            )
        if found.admin_access and not self._is_admin(namespace):
            raise ClaimsError(
                f'DeviceClass "{name}" gives admin access, which the namespace "{namespace}" may'
                " not use"
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
    ) -> Choice:
        accepted, exclusions = self._qualify(detail, classes)
        eligible = 0
        for each in accepted:
            eligible |= each.devices
        admin = any(each.admin_access for each in classes)
        alternative = _alternative(label, detail, admin, eligible, exclusions)
        return Choice(detail, accepted, alternative)

    def _qualify(
        self, detail: api.ClaimDetail, classes: tuple[api.DeviceClass, ...]
    ) -> tuple[tuple[Accepted, ...], tuple[Exclusion, ...]]:
        """What each class accepts beyond those before it, and why the rest is left out."""
        rest = _Rest(self.inventory.everything)
        accepted = []
        for each in classes:
            devices = self.inventory.of_driver(each.driver) & rest.unqualified
            by_class, failed = self._constraints.apply(each.constraints, devices)
            rest.note({f"{fault} (DeviceClass {each.name})": s for fault, s in failed.items()})
            passed, failed = self._constraints.apply(detail.constraints, by_class)
            rest.note(failed)
            rest.unqualified &= ~passed
            accepted.append(Accepted(each, passed))
        return tuple(accepted), rest.exclusions(_no_driver(detail, classes))


class _Rest:
    """Devices that no class accepted yet, each with the first rule that was against it."""

    def __init__(self, everything: int) -> None:
        self.unqualified = everything
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
        left = {rule: devices & self.unqualified for rule, devices in rules.items()}
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
