"""Reject settings that a container runtime could not apply, or would interpret differently.

Responses of plugins and CDI files can contain anything. For example, the name of an environment
variable with ``=`` or a line end would define another variable in the container.
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
    """Error of a setting that cannot be rendered; its text is one line with the reason."""

    def __init__(self, text: str) -> None:
        # The text can quote anything from a plugin's response or a CDI file.
        super().__init__(printable(text))


def shown(text: str) -> str:
    """Return a text in quotes and safe to print, cut to 200 characters."""
    return f"'{printable(text, _SHOWN)}'"


def check_env(source: str, name: str, value: str) -> None:
    """Raise OciError for an invalid environment variable.

    ``source``, for the error text: the origin of the variable, such as the name of a CDI device.
    """
    if not name or "=" in name or not name.isprintable():
        raise OciError(
            f"{source}: invalid environment variable name {shown(name)}: expected printable "
            "characters without ="
        )
    # The kernel ends a variable at a NUL, so the container would see a shorter value.
    if "\0" in value:
        raise OciError(
            f"{source}: invalid value of environment variable {name}: it contains a NUL character"
        )


def check_annotation(source: str, key: str) -> None:
    """Raise OciError for an annotation without a key."""
    if not key:
        raise OciError(f"{source}: an annotation has an empty key: expected a name")


def check_interface(source: str, name: str) -> None:
    """Raise OciError for an invalid name of a network interface."""
    if fault := interface_name_fault(name):
        raise OciError(f"{source}: network interface {shown(name)}: {fault}")


def container_path(source: str, what: str, path: str) -> str:
    """Return ``path`` without ``..``, so that it cannot leave the container's root.

    Raises OciError for a path that is not absolute. The error names ``source``, which is the origin
    of the path, and ``what``, which is the kind of setting, such as ``a mount``.
    """
    _check_path(source, f"container path of {what}", path)
    # posixpath keeps two leading slashes, which have no meaning for a container runtime.
    return "/" + posixpath.normpath(path).lstrip("/")


def host_path(source: str, what: str, path: str) -> str:
    """Return a path on the host unchanged. Raises OciError if the path is not absolute.

    ``..`` is not removed: after a symbolic link, it means the parent of the link's target.
    """
    _check_path(source, f"host path of {what}", path)
    return path


def _check_path(source: str, what: str, path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise OciError(f"{source}: the {what} must be an absolute path, not {shown(path)}")
