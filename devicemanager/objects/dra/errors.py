"""Errors of objects of resource.k8s.io, as the API server reports them.

``FieldError`` has the fields and the message of ``field.Error`` in k8s.io/apimachinery (v1.37).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from devicemanager.core.messages import go_quoted

__all__ = [
    "OMITTED",
    "Errors",
    "FieldError",
    "declared",
    "duplicate",
    "forbidden",
    "go_json",
    "invalid",
    "message",
    "not_found",
    "required",
    "too_long",
    "too_many",
    "unsupported",
]

OMITTED: Final = object()
"""Value of an error whose message does not show the value."""

_NAMES: Final = {
    "FieldValueNotFound": "Not found",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "InternalError": "Internal error",
}


@attrs.frozen
class FieldError:
    """A broken rule: field, value and reason."""

    reason: str
    """Reason as in ``causes`` of a Status, such as ``FieldValueInvalid``."""
    field: str
    """Path of the field, such as ``spec.devices[0].name``."""
    value: Any = OMITTED
    """Value as JSON data, or ``OMITTED``."""
    detail: str = ""
    declared: bool = False
    """True if the rule is a validation tag in the API's Go types, such as ``+k8s:maxItems``.

    The API server lists the errors of these rules last (``ValidateDeclaratively``). Their field
    paths are those of the API version in the request.
    """

    @property
    def text(self) -> str:
        """Message without the path (``ErrorBody``)."""
        parts = [_NAMES[self.reason]]
        if self.value is not OMITTED:
            parts.append(_shown(self.value))
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


Errors = Iterator[FieldError]


def message(errors: Iterable[FieldError]) -> str:
    """Return the message for one or more errors. Equal messages appear once. If several remain,
    they are in brackets."""
    # As ``Aggregate.Error`` of k8s.io/apimachinery, into which the API server converts the list.
    texts = list(dict.fromkeys(str(each) for each in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def required(field: str, detail: str = "") -> FieldError:
    """Return the error for a missing value."""
    return FieldError("FieldValueRequired", field, detail=detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """Return the error for a malformed value."""
    return FieldError("FieldValueInvalid", field, value, detail)


def unsupported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    """Return the error for a value that is not one of ``supported``."""
    choices = ", ".join(go_quoted(each) for each in supported)
    return FieldError("FieldValueNotSupported", field, value, f"supported values: {choices}")


def forbidden(field: str, detail: str) -> FieldError:
    """Return the error for a value that is not allowed here."""
    return FieldError("FieldValueForbidden", field, detail=detail)


def duplicate(field: str, value: Any) -> FieldError:
    """Return the error for a duplicate value."""
    return FieldError("FieldValueDuplicate", field, value)


def not_found(field: str, value: Any) -> FieldError:
    """Return the error for a reference to an object that does not exist."""
    return FieldError("FieldValueNotFound", field, value)


def too_long(field: str, most: int, unit: str = "bytes") -> FieldError:
    """Return the error for a text longer than ``most``. ``unit``: bytes or characters."""
    return FieldError("FieldValueTooLong", field, detail=f"may not be more than {most} {unit}")


def too_many(field: str, number: int, most: int) -> FieldError:
    """Return the error for a list of more than ``most`` items."""
    return FieldError("FieldValueTooMany", field, number, f"must have at most {most} items")


def declared(errors: Iterable[FieldError]) -> Errors:
    """Yield copies of these errors with ``declared=True`` (``FieldError.declared``)."""
    for each in errors:
        yield attrs.evolve(each, declared=True)


# -- values as Go prints them ------------------------------------------------------------


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return go_quoted(value)
    return go_json(value)


def go_json(value: Any) -> str:
    """Return a value as Go's ``json.Marshal`` prints it, with HTML characters escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
