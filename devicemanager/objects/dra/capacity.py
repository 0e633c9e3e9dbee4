"""Rules for a device's capacity and its request policy (``validateRequestPolicy``, v1.37).

Each check yields one ``FieldError`` per broken rule; ``at`` is the path of the checked field.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

from devicemanager.core.quantity import NANOS, Quantity
from devicemanager.objects.dra.errors import Errors, forbidden, invalid, required
from devicemanager.objects.dra.formats import quantity
from devicemanager.objects.dra.lists import unique

__all__ = ["device_capacity"]

_Object = Mapping[str, Any]
_MAX_OPTIONS: Final = 10
# The largest result of ``Quantity.Value``, which is an int64.
_LARGEST: Final = (2**63 - 1) * NANOS
_ZERO: Final = Quantity(0)


def device_capacity(*, is_shared: bool) -> Callable[[str, _Object], Errors]:
    """Return a function that checks one capacity of a device.

    ``is_shared``: True if the device allows several allocations.
    """
    return _shared if is_shared else _exclusive


def _exclusive(at: str, capacity: _Object) -> Errors:
    if capacity.get("requestPolicy") is not None:
        yield forbidden(f"{at}.requestPolicy", "allowMultipleAllocations must be true")


def _shared(at: str, capacity: _Object) -> Errors:
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    at = f"{at}.requestPolicy"
    values, range_ = policy.get("validValues"), policy.get("validRange")
    if values and range_ is not None:
        rule = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time"
        )
        yield forbidden(at, rule)
        return
    kind = "validValues" if values else "validRange"
    if not values and range_ is None:
        return
    default = policy.get("default")
    if default is None:
        yield required(f"{at}.default", f"required when {kind} is defined")
        return
    most, start = _read(capacity.get("value")), _read(default)
    if values:
        options = [_read(each) for each in values]
        yield from _options(f"{at}.validValues", start, most, options)
    else:
        bounds = {each: _read(range_[each]) for each in range_ if range_[each] is not None}
        yield from _range(f"{at}.validRange", start, most, bounds)


def _read(value: Any) -> Quantity:
    return quantity(value) or _ZERO


# -- valid values ------------------------------------------------------------------------


def _options(at: str, default: Quantity, most: Quantity, options: list[Quantity]) -> Errors:
    for number, (one, next_) in enumerate(itertools.pairwise(options), start=1):
        if one > next_:
            rule = "values must be sorted in ascending order"
            yield invalid(f"{at}[{number}]", str(next_), rule)

    def fits(path: str, option: Quantity) -> Errors:
        if option > most:
            yield invalid(path, str(option), f"option is larger than capacity value: {most}")

    yield from unique(at, options, _MAX_OPTIONS, fits, _key, is_declared=False)
    if len(options) > _MAX_OPTIONS or default not in options:
        rule = "default value is not valid according to the requestPolicy"
        yield invalid(at, str(default), rule)


def _key(option: Quantity) -> str:
    return str(_whole(option))


def _whole(amount: Quantity) -> int:
    """Round an amount up to a whole number (``Quantity.Value``).

    Upstream compares fractions only with the gate DRAFractionalCapacityRange, which is off by
    default.
    """
    return -(-amount.nanos // NANOS)


# -- valid range -------------------------------------------------------------------------


def _range(at: str, default: Quantity, most: Quantity, bounds: dict[str, Quantity]) -> Errors:
    least = bounds.get("min")
    if least is None:
        yield required(f"{at}.min", "required when validRange is defined")
        return
    yield from _limits(at, default, most, least, bounds.get("max"))
    if "step" in bounds:
        yield from _step(at, most, {"default": default, **bounds})


def _limits(
    at: str, default: Quantity, capacity: Quantity, least: Quantity, most: Quantity | None
) -> Errors:
    if least > capacity:
        yield invalid(f"{at}.min", str(least), f"min is larger than capacity value: {capacity}")
    if default < least:
        yield invalid(f"{at}.default", str(default), f"default is less than min: {least}")
    if most is None:
        return
    if least > most:
        yield invalid(f"{at}.max", str(least), f"min is larger than max: {most}")
    if most > capacity:
        yield invalid(f"{at}.max", str(most), f"max is larger than capacity value: {capacity}")
    if default > most:
        yield invalid(f"{at}.default", str(default), f"default is more than max: {most}")


def _unsafe(at: str, amounts: Mapping[str, Quantity]) -> Errors:
    for name in ("default", "min", "max", "step"):
        each = amounts.get(name, _ZERO)
        if each.nanos < 0:
            yield invalid(f"{at}.{name}", str(each), "must be greater than or equal to 0")
        elif each.nanos > _LARGEST:
            rule = "must not be larger than 9223372036854775807"
            yield invalid(f"{at}.{name}", str(each), rule)


def _step(at: str, capacity: Quantity, amounts: Mapping[str, Quantity]) -> Errors:
    step, least = amounts["step"], amounts["min"]
    if step.nanos <= 0:
        yield invalid(f"{at}.step", str(step), "must be greater than zero")
        return
    first = Quantity(least.nanos + step.nanos, least.format)
    if first > capacity:
        rule = f"one step {first} is larger than capacity value: {capacity}"
        yield invalid(f"{at}.step", str(step), rule)
    # Upstream computes multiples with int64 values, which other amounts would overflow.
    unsafe = list(_unsafe(at, amounts))
    yield from unsafe
    if not unsafe:
        yield from _multiples(f"{at}.step", amounts)


def _multiples(at: str, amounts: Mapping[str, Quantity]) -> Errors:
    step, least = amounts["step"], amounts["min"]
    for name in ("default", "max"):
        each = amounts.get(name)
        if each is not None and (_whole(each) - _whole(least)) % _whole(step):
            rule = f"value is not a multiple of a given step ({step}) from ({least})"
            yield invalid(at, str(each), rule)
