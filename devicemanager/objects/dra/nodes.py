"""Rules for node selectors, taints, tolerations and conditions.

Each check yields one ``FieldError`` per broken rule; ``at`` is the path of the checked field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from devicemanager.objects.dra import formats
from devicemanager.objects.dra.errors import (
    Errors,
    declared,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from devicemanager.objects.dra.lists import items

__all__ = ["conditions", "node_selector", "taint", "toleration"]

_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_MAX_REASON: Final = 1024
_MAX_MESSAGE: Final = 32768

_Object = Mapping[str, Any]


# -- node selectors ----------------------------------------------------------------------


def node_selector(at: str, selector: _Object) -> Errors:
    """Check a node selector (``ValidateNodeSelector``)."""
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        yield required(f"{at}.nodeSelectorTerms", "must have at least one node selector term")
    yield from items(f"{at}.nodeSelectorTerms", terms, _term)


def _term(at: str, term: _Object) -> Errors:
    yield from items(f"{at}.matchExpressions", term.get("matchExpressions"), _expression)
    yield from items(f"{at}.matchFields", term.get("matchFields"), _field)


def _expression(at: str, requirement: _Object) -> Errors:
    values = requirement.get("values") or ()
    yield from _values(at, requirement.get("operator", ""), len(values))
    yield from formats.label_key(f"{at}.key", requirement.get("key", ""))
    yield from items(f"{at}.values", values, formats.label_value)


def _values(at: str, operator: str, number: int) -> Errors:
    match operator:
        case "In" | "NotIn":
            if not number:
                rule = "must be specified when `operator` is 'In' or 'NotIn'"
                yield required(f"{at}.values", rule)
        case "Exists" | "DoesNotExist":
            if number:
                rule = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden(f"{at}.values", rule)
        case "Gt" | "Lt":
            if number != 1:
                rule = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield required(f"{at}.values", rule)
        case _:
            yield invalid(f"{at}.operator", operator, "not a valid selector operator")


def _field(at: str, requirement: _Object) -> Errors:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator not in ("In", "NotIn"):
        yield invalid(f"{at}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        rule = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{at}.values", rule)
    key = requirement.get("key", "")
    if key == "metadata.name":
        yield from items(f"{at}.values", values, formats.node_name)
    else:
        yield invalid(f"{at}.key", key, "not a valid field selector key")


# -- taints and tolerations --------------------------------------------------------------


def taint(at: str, taint: _Object, old: _Object | None = None) -> Errors:
    """Check the taint of a device. The effect is checked only if it changes."""
    yield from formats.label_key(f"{at}.key", taint.get("key", ""))
    if value := taint.get("value"):
        yield from formats.label_value(f"{at}.value", value)
    effect = taint.get("effect", "")
    if old is not None and old.get("effect", "") == effect:
        return
    if effect:
        yield from _effect(at, effect)
    else:
        yield from declared([required(f"{at}.effect")])


def _effect(at: str, effect: str) -> Errors:
    if effect not in _EFFECTS:
        yield from declared([unsupported(f"{at}.effect", effect, _EFFECTS)])


def toleration(at: str, toleration: _Object) -> Errors:
    """Check the toleration of a request or an allocation result."""
    # Key and effect are optional: without them, a toleration matches all keys or all effects.
    if key := toleration.get("key"):
        yield from declared(formats.label_key(f"{at}.key", key))
    yield from _operator(at, toleration.get("operator", ""), toleration.get("value", ""))
    if effect := toleration.get("effect"):
        yield from _effect(at, effect)


def _operator(at: str, operator: str, value: str) -> Errors:
    match operator:
        case "Exists":
            if value:
                yield invalid(f"{at}.value", value, "must be empty for operator `Exists`")
        case "Equal":
            yield from formats.label_value(f"{at}.value", value)
        case "":
            yield from declared([required(f"{at}.operator")])
        case _:
            choices = ("Equal", "Exists")
            yield from declared([unsupported(f"{at}.operator", operator, choices)])


# -- conditions --------------------------------------------------------------------------


def conditions(at: str, values: list[_Object] | None, most: int) -> Errors:
    """Check the conditions of a status. ``most``: maximum number of conditions."""
    values = values or []
    seen: set[str] = set()
    for number, each in enumerate(values):
        type_ = each.get("type", "")
        if type_ in seen:
            yield duplicate(f"{at}[{number}]", type_)
        seen.add(type_)
        yield from _condition(f"{at}[{number}]", each)
    if len(values) > most:
        yield too_many(at, len(values), most)


def _condition(at: str, condition: _Object) -> Errors:
    if type_ := condition.get("type"):
        yield from formats.label_key(f"{at}.type", type_)
    else:
        yield required(f"{at}.type", "is required")
    yield from _status(f"{at}.status", condition.get("status", ""))
    if (seen := condition.get("observedGeneration", 0)) < 0:
        rule = "must be greater than or equal to zero"
        yield invalid(f"{at}.observedGeneration", seen, rule)
    if not condition.get("lastTransitionTime"):
        yield required(f"{at}.lastTransitionTime")
    yield from _reason(f"{at}.reason", condition.get("reason", ""))
    if formats.length(condition.get("message", "")) > _MAX_MESSAGE:
        yield too_long(f"{at}.message", _MAX_MESSAGE)


def _status(at: str, status: str) -> Errors:
    if not status:
        yield required(at)
    elif status not in _STATUSES:
        yield unsupported(at, status, _STATUSES)


def _reason(at: str, reason: str) -> Errors:
    if not reason:
        yield required(at)
        return
    yield from (invalid(at, reason, each) for each in _reason_faults(reason))
    if formats.length(reason) > _MAX_REASON:
        yield too_long(at, _MAX_REASON)


def _reason_faults(reason: str) -> Iterator[str]:
    if not re.fullmatch(_REASON, reason):
        yield (
            "a condition reason must start with alphabetic character, optionally followed by a "
            "string of alphanumeric characters or '_,:', and must end with an alphanumeric "
            "character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,"
            "ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
            f"'{_REASON}')"
        )
