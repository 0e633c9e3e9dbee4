"""Consumable capacity: how much of a device a request consumes (``consumable_capacity.go``, v1.37).

In:  the amounts in a request, and the capacities of a device with their request policies.
Out: the amount consumed of each capacity; None if a policy does not allow the request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from devicemanager.core.quantity import (
    NANOS,
    NANOS_PER_MILLI,
    Format,
    Quantity,
    canonical,
    whole_units,
)

_LARGEST = 2**63 - 1


@attrs.frozen
class Arithmetic:
    """Version-dependent rules for computing amounts."""

    fractional: bool = False
    """True to compute the amounts of a ``validRange`` in thousandths, if its bounds and step
    allow this (feature gate DRAFractionalCapacityRange)."""
    binary: bool = False
    """True to give rounded amounts the quantity format BinarySI (1.36 and earlier). False to give
    them the format of the policy's ``step``."""


class CapacityError(Exception):
    """Error for an amount that is negative, or that a policy cannot represent. It ends the
    allocation."""


@attrs.frozen
class Amount:
    """Quantity, with the text that the user wrote."""

    nanos: int
    format: Format
    text: str = ""
    """The amount as written; empty for a computed amount. Amounts with different texts are not
    equal, because upstream compares an amount with the policy's default by text."""

    @classmethod
    def parse(cls, text: str | int) -> Amount:
        """Parse a quantity. Raises ValueError for a malformed quantity."""
        found = Quantity.parse(str(text))
        return cls(found.nanos, found.format, str(text))

    def __str__(self) -> str:
        """Return the quantity in the canonical form of Kubernetes, such as ``1Gi``."""
        return canonical(self.nanos, self.format)


@attrs.frozen
class Range:
    """``validRange`` of a request policy."""

    min: Amount | None
    max: Amount | None
    step: Amount | None

    def in_milli(self, is_enabled: bool) -> bool:
        """True if amounts in the range are computed in thousandths (``useMilli``).

        ``is_enabled``: True if the feature gate DRAFractionalCapacityRange is enabled.
        """
        bounds = [each for each in (self.min, self.max, self.step) if each is not None]
        if not is_enabled or not all(_is_milli(each) for each in bounds):
            return False
        return self.step is None or self.step.nanos >= NANOS_PER_MILLI


@attrs.frozen
class Capacity:
    """Capacity of a device, with its request policy."""

    value: Amount
    has_policy: bool = False
    default: Amount | None = None
    range: Range | None = None
    values: tuple[Amount, ...] | None = None
    """Valid values in ascending order; None or empty if the policy lists no values."""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Capacity:
        """Read a capacity of a device. Raises ValueError for a malformed quantity."""
        policy = spec.get("requestPolicy")
        value = Amount.parse(spec["value"])
        if policy is None:
            return cls(value)
        limits, values = policy.get("validRange"), policy.get("validValues")
        return cls(
            value,
            True,
            _amount(policy.get("default")),
            limits
            and Range(
                _amount(limits.get("min")), _amount(limits.get("max")), _amount(limits.get("step"))
            ),
            None if values is None else tuple(map(Amount.parse, values)),
        )

    def consumed(self, wanted: Amount | None, arithmetic: Arithmetic) -> Amount:
        """Return the amount that a request consumes: the requested amount, rounded up as the policy
        requires.

        ``wanted``: the requested amount. None means that the request does not name this capacity.
        The request then consumes the default of the policy; without a default, the whole capacity.
        Raises CapacityError for an amount that the policy cannot represent.
        """
        if wanted is None:
            return self.default or self.value
        # Steps are counted from the minimum, so a range without one rounds nothing.
        if self.range is not None and self.range.min is not None:
            return _round_up(wanted, self.range, self.range.min, arithmetic)
        if self.values is not None:
            # An amount above all valid values stays as it is, and ``allows`` rejects it.
            return next((each for each in self.values if wanted.nanos <= each.nanos), wanted)
        return wanted

    def allows(self, consumed: Amount, arithmetic: Arithmetic) -> bool:
        """True if the policy allows this amount (``violatesPolicy``)."""
        # The default is allowed even outside of the range. The comparison includes the text, so a
        # request for ``1Gi`` is not the default ``1024Mi``.
        if not self.has_policy or consumed == self.default:
            return True
        if self.range is not None:
            return _is_in(consumed, self.range, arithmetic)
        return not self.values or any(consumed.nanos == each.nanos for each in self.values)


def consumption(
    wanted: Mapping[str, Amount], capacities: Mapping[str, Capacity], arithmetic: Arithmetic
) -> dict[str, Amount] | None:
    """Return the amounts that a request consumes of a device, by capacity.

    Return None if the device lacks a requested capacity, or if a policy does not allow the request.
    Raises CapacityError for a negative amount, and for an amount that a policy cannot represent.
    """
    if not wanted.keys() <= capacities.keys():
        return None
    found = {}
    # All amounts are computed before a policy is checked. An error must end the allocation, and not
    # depend on the order of the capacities. Sorted, so that the first error is always the same.
    for name in sorted(capacities):
        try:
            found[name] = capacities[name].consumed(wanted.get(name), arithmetic)
            # Older objects can have negative amounts, which the API server now rejects. Such an
            # amount would free capacity that other claims use.
            if found[name].nanos < 0:
                raise CapacityError("capacity value is negative")
        except CapacityError as error:
            raise CapacityError(f"capacity {json.dumps(name)}: {error}") from None
    if all(capacities[name].allows(amount, arithmetic) for name, amount in found.items()):
        return found
    return None


def _amount(text: str | None) -> Amount | None:
    return None if text is None else Amount.parse(text)


def _round_up(wanted: Amount, limits: Range, least: Amount, arithmetic: Arithmetic) -> Amount:
    if wanted.nanos < least.nanos:
        return least
    step = limits.step
    if step is None:
        return wanted
    unit = NANOS_PER_MILLI if limits.in_milli(arithmetic.fractional) else NANOS
    if unit == NANOS_PER_MILLI and not _is_milli(wanted):
        raise _unrepresentable(f"request {wanted.text} is not a representable milli value")
    # Python could compute larger amounts, but Go computes with int64.
    if wanted.nanos > _LARGEST * NANOS:
        raise _unrepresentable(f"request {wanted.text} exceeds MaxInt64")
    low, pace = _units(least, unit), _units(step, unit)
    rounded = low + -(-(_units(wanted, unit) - low) // pace) * pace
    if rounded > _LARGEST:
        limit = "MaxInt64" if unit == NANOS else "the milli-value range"
        raise _unrepresentable(f"rounding request {wanted.text} up to the next step passes {limit}")
    return Amount(rounded * unit, "BinarySI" if arithmetic.binary else step.format)


def _is_in(amount: Amount, limits: Range, arithmetic: Arithmetic) -> bool:
    if limits.max is not None and amount.nanos > limits.max.nanos:
        return False
    if limits.step is None or limits.min is None:
        return True
    unit = NANOS
    if limits.in_milli(arithmetic.fractional):
        unit = NANOS_PER_MILLI
        if not _is_milli(amount):
            return False
    return (_units(amount, unit) - _units(limits.min, unit)) % _units(limits.step, unit) == 0


def _is_milli(amount: Amount) -> bool:
    return amount.nanos % NANOS_PER_MILLI == 0 and amount.nanos // NANOS_PER_MILLI <= _LARGEST


def _units(amount: Amount, unit: int) -> int:
    # Whole units are rounded up, as by Go's ``Quantity.Value``. Thousandths are exact: the callers
    # have checked this with ``_is_milli``.
    return whole_units(amount.nanos) if unit == NANOS else amount.nanos // unit


def _unrepresentable(text: str) -> CapacityError:
    return CapacityError(
        f"capacity request cannot be represented in the device's range arithmetic: {text}"
    )
