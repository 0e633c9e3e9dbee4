"""Errors of manifests and other objects, with the field path and the reason."""

# The functions ``invalid``, ``required`` and ``unsupported`` use the texts of the API server
# (k8s.io/apimachinery/pkg/util/validation/field, v1.32).

from __future__ import annotations

import json
import math

from devicemanager.core.errors import RequestError

_MAX_VALUE = 100


class ManifestError(RequestError):
    """Error in a manifest. The text is one line: file, field and reason."""


class FieldError(Exception):
    """Error of one invalid field. Each enclosing field adds its name to the path (``under``)."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field
        self.text = text

    def under(self, parent: str) -> FieldError:
        """Return a copy of this error with ``parent`` in front of its path."""
        # An index such as ``[0]`` follows its list without a dot.
        joint = "." if self.field and not self.field.startswith("[") else ""
        return type(self)(f"{parent}{joint}{self.field}", self.text)

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


class UnknownField(FieldError):
    """Error of a field that no Kubernetes version has. ``text`` suggests another field; it can be
    empty.

    ``str(error)`` is the API server's message (``NewStrictDecodingError``,
    k8s.io/apimachinery/pkg/runtime, v1.32), followed by ``text``.
    """

    def __str__(self) -> str:
        hint = f"; {self.text}" if self.text else ""
        return f'strict decoding error: unknown field "{self.field}"{hint}'


def invalid(field: str, value: object, text: str) -> FieldError:
    """Return the API server's error for an invalid value (``field.Invalid``)."""
    return FieldError(field, f"Invalid value: {shown(value)}: {text}")


def required(field: str, text: str = "") -> FieldError:
    """Return the API server's error for a missing value (``field.Required``)."""
    return FieldError(field, f"Required value: {text}" if text else "Required value")


def unsupported(field: str, value: object, *supported: str) -> FieldError:
    """Return the API server's error for a value that is not supported (``field.NotSupported``)."""
    choices = ", ".join(shown(choice) for choice in supported)
    return FieldError(field, f"Unsupported value: {shown(value)}: supported values: {choices}")


def wrong_type(field: str, expected: str, value: object) -> FieldError:
    """Return the error for a value of a wrong type, which Go's JSON decoder would reject."""
    return FieldError(field, f"must be {expected}, not {described(value)}")


def shown(value: object) -> str:
    """Return a value as one line of text, cut if it is long.

    A string is in quotes. Any other value is described, for example as ``a mapping``.
    """
    # Cut before it is encoded, because a value can have megabytes.
    text = json.dumps(value[:_MAX_VALUE]) if isinstance(value, str) else described(value)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."


def key(name: object) -> str:
    """Return a map key in the form that field paths use: ``[name]``."""
    return f"[{plain(name)}]"


def plain(name: object) -> str:
    """Return short printable text unchanged; return any other value as ``shown`` does."""
    is_plain = isinstance(name, str) and name.isprintable() and len(name) <= _MAX_VALUE
    return str(name) if is_plain else shown(name)


def described(value: object) -> str:
    """Describe a value in terms of YAML and JSON, such as ``a mapping`` or ``the number 5``."""
    if value is None:
        return "null"
    # Tested before int, because a Python boolean is also an int.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        # Python raises ValueError for a number of more than 4300 digits, which YAML can contain.
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
