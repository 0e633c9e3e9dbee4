"""What a runtime could not take, or would take for something else, is rejected here.

A plugin's answer and a CDI file may say anything. A name with ``=`` or a line end, say,
would reach the container as another variable than the one that was looked at.
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
        # It may have anything in it that a plugin or a CDI file says.
        super().__init__(printable(text))


def shown(text: str) -> str:
    """The text in quotes, as people can read it."""
    return f"'{printable(text, _SHOWN)}'"


def check_env(source: str, name: str, value: str) -> None:
    """Raise OciError for a variable that a process cannot have, or not under this name."""
    if not name or "=" in name or not name.isprintable():
        raise OciError(f"{source}: {shown(name)} is not a name of an environment variable")
    if "\0" in value:
        raise OciError(f"{source}: environment variable {name} has a NUL in its value")


def check_annotation(source: str, key: str) -> None:
    """Raise OciError for an annotation without a key."""
    if not key:
        raise OciError(f"{source}: an annotation has no key")


def check_interface(source: str, name: str) -> None:
    """Raise OciError for a name that no network interface can have."""
    if fault := interface_name_fault(name):
        raise OciError(f"{source}: network interface {shown(name)}: {fault}")


def container_path(source: str, what: str, path: str) -> str:
    """The path as a runtime resolves it, without ``..``: it never leads out of the
    container's root. Raises OciError for a path that is not absolute."""
    _check_path(source, f"container path of {what}", path)
    return "/" + posixpath.normpath(path).lstrip("/")


def host_path(source: str, what: str, path: str) -> str:
    """The path as it is, since ``..`` behind a link leads elsewhere than it looks."""
    _check_path(source, f"host path of {what}", path)
    return path


def _check_path(source: str, what: str, path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise OciError(f"{source}: the {what} must be an absolute path, not {shown(path)}")
