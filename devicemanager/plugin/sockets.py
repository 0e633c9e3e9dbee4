"""Where a plugin puts its socket: the directory, and a name that no living plugin uses."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from podresources.sockets import is_alive

__all__ = ["claim", "directory_problem"]


def directory_problem(directory: Path) -> str | None:
    """What keeps sockets from being made there, unless it is only that it is missing."""
    try:
        if not directory.exists():
            return None
    except PermissionError:
        return "cannot be reached by this user"
    if not directory.is_dir():
        return "is not a directory"
    if not os.access(directory, os.W_OK | os.X_OK):
        return "cannot be written to by this user"
    return None


def claim(bound: Path, names: Iterator[str]) -> Path:
    """Give the socket ``bound`` the first of ``names`` that no living plugin uses.

    The link is made in one step and fails if the name is taken, so of two plugins that
    start at once only one gets it. A dead socket is replaced; what is no socket is left
    alone.
    """
    for name in names:
        path = bound.with_name(name)
        try:
            os.link(bound, path)
        except FileExistsError:
            if not _is_socket(path) or is_alive(path):
                continue
            bound.replace(path)
        else:
            bound.unlink()
        return path
    raise AssertionError("socket names never run out")


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return True
