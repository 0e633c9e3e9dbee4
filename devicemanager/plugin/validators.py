"""Converters and validators of an author's values. Each error is a one-line ValueError."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import attrs

__all__ = ["absolute_path", "check_text", "path_text", "permission_letters", "several"]

T = TypeVar("T")


def check_text(what: str, value: object) -> None:
    """Raise ValueError if ``value`` is not a string that a protobuf message can contain.

    ``what`` names the value in the error.
    """
    if not isinstance(value, str):
        raise ValueError(f"{what} must be text, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is not valid Unicode: {value!r}") from None


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a ``Path`` as a string. Any other value is returned unchanged, and must be checked by
    the caller."""
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def absolute_path(_instance: object, attribute: attrs.Attribute[str], path: str) -> None:
    """Raise ValueError if ``path`` is not an absolute path."""
    check_text(attribute.name, path)
    if not path.startswith("/"):
        raise ValueError(f"{attribute.name} must be an absolute path: {path!r}")
    if "\0" in path:
        raise ValueError(f"{attribute.name} must not contain a NUL: {path!r}")


def permission_letters(_instance: object, _attribute: attrs.Attribute[str], text: str) -> None:
    """Raise ValueError unless ``text`` has only ``r``, ``w`` and ``m``, and each at most once.

    An empty text is invalid, too.
    """
    valid = isinstance(text, str) and not set(text) - set("rwm") and len(set(text)) == len(text)
    if not text or not valid:
        raise ValueError(f"invalid permissions {text!r}: use some of the letters r, w and m")


def several(what: str, values: Iterable[T]) -> tuple[T, ...]:
    """Return the values as a tuple; ``what`` names them in the error.

    Raises ValueError for a string, a path, or a value that is not iterable.
    """
    if isinstance(values, str | os.PathLike) or not isinstance(values, Iterable):
        raise ValueError(f"{what} must be a list, not {values!r}")
    return tuple(values)
