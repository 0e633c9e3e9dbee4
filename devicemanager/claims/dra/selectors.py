"""Evaluate the CEL expressions of selectors and derived attributes (``derivedAttributes``).

Devices share the result of an expression if the values that the expression reads are equal.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from devicemanager.claims.cel.dra import (
    Attribute,
    CelCompileError,
    CelRuntimeError,
    Device,
    DraSelector,
    Features,
    Release,
    compile_derived_attribute,
    compile_selector,
)
from devicemanager.claims.core.step_budget import StepBudget
from devicemanager.claims.dra.errors import AllocationError
from devicemanager.claims.dra.pools import Source
from devicemanager.claims.dra.profile import Feature, Profile
from devicemanager.claims.dra.slices import Object

_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue())"
    " or guarding the check with has() for optional fields"
)

_RELEASES = {"1.34": Release.V1_36, "1.36": Release.V1_36}
"""Release of the CEL environment by allocator version. Other versions use the newest release."""
_STEPS = 4
"""Steps that every evaluation takes from the call's budget."""
_UNITS = 4
"""Cost units per additional step."""

_Key = tuple[str, int, bool]
"""Driver, ``id`` of the device's facts, and True if claims can share the device."""


@attrs.frozen
class Selector:
    """CEL selector of a class or claim."""

    owner: str
    """The class or claim with this selector: ``class NAME`` or ``claim NAMESPACE/NAME``."""
    index: int
    expression: str


class Selectors:
    """Evaluator of CEL selectors and derived attributes (``derivedAttributes``). Caches results."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._features = Features(
            release=_RELEASES.get(profile.version, Release.V1_37),
            consumable_capacity=profile.has(Feature.CONSUMABLE_CAPACITY),
            list_attributes=profile.has(Feature.LIST_ATTRIBUTES),
        )
        self._devices: dict[_Key, Device] = {}
        self._results: dict[tuple[str, _Key], bool | str] = {}
        self._by_values: dict[tuple[str, tuple[object, ...]], bool | str] = {}
        self._derived: dict[tuple[str, tuple[object, ...]], Object | str] = {}

    def match(self, selectors: Iterable[Selector], source: Source, steps: StepBudget) -> bool:
        """True if a device satisfies all selectors.

        Raises AllocationError if a selector does not compile, or fails for this device.
        """
        return all(self._matches(each, source, steps) for each in selectors)

    def _matches(self, selector: Selector, source: Source, steps: StepBudget) -> bool:
        key = self._key(source)
        # This cache needs no projection, which has to read all attributes of the device.
        result = self._results.get((selector.expression, key))
        if result is None:
            result = self._evaluate(selector.expression, self._device(key, source), steps)
            self._results[selector.expression, key] = result
        if isinstance(result, str):
            # The cache has only the text of an error: the message also names the device, and many
            # devices share the result.
            raise AllocationError(self._error(selector, source, result))
        return result

    def derived(self, name: str, expression: str, source: Source, steps: StepBudget) -> Object:
        """Return a device's value of a derived attribute, such as ``{"string": "a"}``.

        ``name`` and ``expression``: an entry of ``derivedAttributes`` in a request. Raises
        AllocationError if the expression does not compile, or fails for this device.
        """
        device = self._device(self._key(source), source)
        try:
            compiled = compile_derived_attribute(expression, features=self._features)
        except CelCompileError as error:
            raise AllocationError(f"compile derived attribute {name} failed: {error}") from None
        key = expression, compiled.projection(device)
        result = self._derived.get(key)
        if result is None:
            steps.spend(_STEPS)
            try:
                found = compiled.value(device, lambda units: steps.spend(units // _UNITS))
                result = {found.kind: found.value}
            except CelRuntimeError as error:
                result = str(error)
            self._derived[key] = result
        if isinstance(result, str):
            where = f"{source.slice.pool.driver}/{source.slice.pool.name}/{source.device['name']}"
            raise AllocationError(
                f"evaluate derived attribute {name} on device {where} failed: {result}"
            )
        return result

    @staticmethod
    def _key(source: Source) -> _Key:
        shares = bool(source.device.get("allowMultipleAllocations"))
        return source.slice.pool.driver, id(source.facts), shares

    def _device(self, key: _Key, source: Source) -> Device:
        device = self._devices.get(key)
        if device is None:
            facts = source.facts
            device = self._devices[key] = Device(
                key[0],
                {name: _attribute(each) for name, each in facts.attributes.items()},
                {name: str(each["value"]) for name, each in facts.raw_capacity.items()},
                # The variant ``stable`` does not pass ``allowMultipleAllocations`` to CEL.
                key[2] and not self._profile.is_stable,
            )
        return device

    def _evaluate(self, expression: str, device: Device, steps: StepBudget) -> bool | str:
        """Return the result of an expression, or its error as text.

        Devices with equal values of all attributes that the expression reads share one result.
        """
        try:
            # Compiled when a device reaches the selector, as upstream: an error in a selector that
            # is never evaluated does not show.
            selector = compile_selector(expression, features=self._features)
            key = expression, selector.projection(device)
            result = self._by_values.get(key)
            if result is None:
                # Before the evaluation: without steps, the search must not start a costly one.
                steps.spend(_STEPS)
                result = self._by_values[key] = _answer(selector, device, steps)
            return result
        except CelCompileError as error:
            return f"CEL compile error: {error}"

    def _error(self, selector: Selector, source: Source, text: str) -> str:
        where = f"{selector.owner}: selector #{selector.index}"
        if text.startswith("CEL runtime error") and self._profile.error_names_device:
            pool = source.slice.pool
            where += f" on device {pool.driver}/{pool.name}/{source.device['name']}"
            if "no such key:" in text:
                text += _HINT
        return f"{where}: {text}"


def _answer(selector: DraSelector, device: Device, steps: StepBudget) -> bool | str:
    try:
        return selector.evaluate(device, lambda units: steps.spend(units // _UNITS))
    except CelRuntimeError as error:
        return f"CEL runtime error: {error}"


def _attribute(value: Object) -> Attribute:
    """Convert an attribute. Its first field is the value; without a field, the type is empty."""
    kind, found = next(iter(value.items()), ("", ""))
    return Attribute(kind, tuple(found) if isinstance(found, list) else found)
