"""What is wrong with a manifest, and where."""

from __future__ import annotations

import json
import math

from devicemanager.core.errors import RequestError

_LONGEST_VALUE = 100


class ManifestError(RequestError):
    """A manifest cannot be used. The text is one line: file, field, what is wrong."""


class FieldError(Exception):
    """What is wrong with one field. On its way out each level adds its own name."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field
        self.text = text

    def under(self, parent: str) -> FieldError:
        """The same complaint, seen from one level further up."""
        joint = "." if self.field and not self.field.startswith("[") else ""
        return type(self)(f"{parent}{joint}{self.field}", self.text)

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


class UnknownField(FieldError):
    """A field that no version has; ``text`` says what may have been meant, if anything.

    The words are the API server's (``NewStrictDecodingError``,
    k8s.io/apimachinery/pkg/runtime, v1.32).
    """

    def __str__(self) -> str:
        hint = f"; {self.text}" if self.text else ""
        return f'strict decoding error: unknown field "{self.field}"{hint}'


def invalid(field: str, value: object, text: str) -> FieldError:
    """``field.Invalid`` of k8s.io/apimachinery/pkg/util/validation/field (v1.32)."""
    return FieldError(field, f"Invalid value: {shown(value)}: {text}")


def required(field: str, text: str = "") -> FieldError:
    """``field.Required`` of the same package."""
    return FieldError(field, f"Required value: {text}" if text else "Required value")


def unsupported(field: str, value: object, *supported: str) -> FieldError:
    """``field.NotSupported`` of the same package."""
    choices = ", ".join(shown(choice) for choice in supported)
    return FieldError(field, f"Unsupported value: {shown(value)}: supported values: {choices}")


def wrong_type(field: str, expected: str, value: object) -> FieldError:
    """A field holds a value of another type, as decoding JSON into Go types finds out."""
    return FieldError(field, f"must be {expected}, not {described(value)}")


def shown(value: object) -> str:
    """``value`` on one line, in quotes if it is text, cut when it is long."""
    text = json.dumps(value[:_LONGEST_VALUE]) if isinstance(value, str) else described(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def key(name: object) -> str:
    """``[name]`` as field paths have it."""
    return f"[{plain(name)}]"


def plain(name: object) -> str:
    """``name`` as it is, or quoted where it is no plain text."""
    is_plain = isinstance(name, str) and name.isprintable() and len(name) <= _LONGEST_VALUE
    return str(name) if is_plain else shown(name)


def described(value: object) -> str:
    """The kind of a value as someone who writes YAML or JSON calls it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"the number {value}" if abs(value) < 10**30 else "a very large number"
    if isinstance(value, float):
        return f"the number {value}" if math.isfinite(value) else "an infinite number"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"a value of type {type(value).__name__}"
