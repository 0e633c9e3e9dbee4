"""The socket's directory, and a name in it that no running plugin uses."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from devicemanager.core.api.deviceplugin import CHECKPOINT_FILE, PLUGIN_DIRECTORY
from devicemanager.plugin.errors import ConfigurationError
from podresources.sockets import MAX_PATH_BYTES, is_alive

__all__ = ["claim", "directory_problem", "may_be_socket", "socket_names"]

_ENDING = 6
_HASH = 8


def directory_problem(directory: Path) -> str | None:
    """Return what prevents sockets in the directory, or None. It need not exist yet."""
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


def socket_names(plain: str, directory: str, *, unique: bool) -> Iterator[str]:
    """File names to try for a socket in ``directory``, best first, without end.

    The plain name comes first unless ``unique``; the others have a random ending. All fit
    into 107 bytes here and under the kubelet's default directory, since a plugin may see
    its directory under another path than the kubelet does.
    """
    longest = max(len(directory.encode()), len(PLUGIN_DIRECTORY))
    room = MAX_PATH_BYTES - longest - 1 - (_ENDING + 1)
    if room < _HASH + 2:
        raise ConfigurationError(
            f"directory {directory} is too long for unix sockets: a path has at most "
            f"{MAX_PATH_BYTES} bytes; choose a shorter one"
        )
    base = _shorten(plain.replace("/", "_"), room)
    if not unique:
        yield base
    while True:
        yield f"{base}-{secrets.token_hex(_ENDING // 2)}"


def _shorten(name: str, room: int) -> str:
    """``name``, its end replaced by a hash of the whole if it is over ``room`` bytes."""
    raw = name.encode()
    if len(raw) <= room:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:_HASH]
    return raw[: room - _HASH - 1].decode(errors="ignore") + "-" + digest


def may_be_socket(name: str, own: str | None = None) -> bool:
    """Whether a change of this file in the plugin directory may concern a plugin.

    The kubelet's checkpoint does not, nor what it is written to first, which has a dot and
    some ending: every admission writes one. ``own`` is the name that the author chose for a
    socket.
    """
    return name == own or not (name.startswith(".") or name == CHECKPOINT_FILE)


def claim(bound: Path, names: Iterator[str]) -> Path:
    """Rename the socket ``bound`` to the first of ``names`` that no running plugin uses.

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
