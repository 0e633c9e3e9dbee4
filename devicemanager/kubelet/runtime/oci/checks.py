"""Reject settings that a runtime could not apply, or would understand differently.

Responses of plugins and CDI files can contain anything. A name with ``=`` or a line end, for
example, would reach the container as another variable than the one that was checked.
"""

from __future__ import annotations

import posixpath

from devicemanager.core.api.names import interface_name_fault
from devicemanager.core.errors import RequestError
from devicemanager.core.printable import printable

__all__ = [
    "OciError",
    "check_annotation",
    "check_env",
    "check_interface",
    "container_path",
    "host_path",
    "shown",
]

_SHOWN = 200


class OciError(RequestError):
    """A setting cannot be rendered. The text names it and says why, on one line."""

    def __init__(self, text: str) -> None:
        # It can contain anything that a plugin or a CDI file contains.
        super().__init__(printable(text))


def shown(text: str) -> str:
    """Return the text in quotes, safe to print."""
    return f"'{printable(text, _SHOWN)}'"


def check_env(source: str, name: str, value: str) -> None:
    """Raise OciError for an environment variable that a process cannot have."""
    if not name or "=" in name or not name.isprintable():
        raise OciError(f"{source}: {shown(name)} is not a valid environment variable name")
    if "\0" in value:
        raise OciError(f"{source}: environment variable {name} has a NUL in its value")


def check_annotation(source: str, key: str) -> None:
    """Raise OciError for an annotation without a key."""
    if not key:
        raise OciError(f"{source}: an annotation has no key")


def check_interface(source: str, name: str) -> None:
    """Raise OciError for an invalid name of a network interface."""
    if fault := interface_name_fault(name):
        raise OciError(f"{source}: network interface {shown(name)}: {fault}")


def container_path(source: str, what: str, path: str) -> str:
    """Return the path as a runtime resolves it, without ``..``.

    So it cannot leave the container's root. Raises OciError for a path that is not absolute.
    """
    _check_path(source, f"container path of {what}", path)
    # posixpath keeps two leading slashes, which mean nothing to a runtime.
    return "/" + posixpath.normpath(path).lstrip("/")


def host_path(source: str, what: str, path: str) -> str:
    """Return the path unchanged: ``..`` after a symbolic link does not lead where it seems to."""
    _check_path(source, f"host path of {what}", path)
    return path


def _check_path(source: str, what: str, path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise OciError(f"{source}: the {what} must be an absolute path, not {shown(path)}")
