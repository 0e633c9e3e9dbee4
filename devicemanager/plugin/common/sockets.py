"""Check a plugin's socket directory, and choose a socket name that no running plugin uses."""

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

_RANDOM_SUFFIX = 6
_HASH = 8


def directory_problem(directory: Path) -> str | None:
    """Return why no socket can be created in a directory; None if a socket can be created.

    Also return None for a directory that does not exist yet.
    """
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
    """Yield possible file names for a socket in ``directory``, best first, endlessly.

    If ``unique`` is false, the first name is the plain name; all other names have a random suffix.
    The path of the socket has at most 107 bytes, both in ``directory`` and in the kubelet's default
    directory. These paths differ if a container mounts the directory under another path. Raises
    ConfigurationError if the directory's path is too long.
    """
    # One byte is for the slash, one for the dash before the suffix.
    longest = max(len(directory.encode()), len(PLUGIN_DIRECTORY))
    room = MAX_PATH_BYTES - longest - 1 - (_RANDOM_SUFFIX + 1)
    if room < _HASH + 2:
        raise ConfigurationError(
            f"directory path {directory} is too long for unix sockets, whose paths have at most "
            f"{MAX_PATH_BYTES} bytes: choose a shorter path"
        )
    base = _shorten(plain.replace("/", "_"), room)
    if not unique:
        yield base
    while True:
        yield f"{base}-{secrets.token_hex(_RANDOM_SUFFIX // 2)}"


def _shorten(name: str, room: int) -> str:
    """Return ``name``; if it exceeds ``room`` bytes, replace its end by a hash of the name."""
    raw = name.encode()
    if len(raw) <= room:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:_HASH]
    # The cut can be inside a character; `ignore` drops the bytes of an incomplete character.
    return raw[: room - _HASH - 1].decode(errors="ignore") + "-" + digest


def may_be_socket(name: str, own: str | None = None) -> bool:
    """True if the file ``name`` in the plugin directory can be a socket.

    False for the kubelet's checkpoint and for hidden temporary files, which every admission writes.
    Always True for ``own``, the socket name that the author chose.
    """
    return name == own or not (name.startswith(".") or name == CHECKPOINT_FILE)


def claim(bound: Path, names: Iterator[str]) -> Path:
    """Rename the socket at the path ``bound`` to the first of ``names`` that is free, and return
    the new path.

    A name is also free if its file is a stale socket, which is then replaced. Creating a hard link
    is atomic and fails if the name exists. So two plugins that start at the same time get different
    names.
    """
    for name in names:
        path = bound.with_name(name)
        try:
            os.link(bound, path)
        except FileExistsError:
            if not _is_socket(path) or is_alive(path):
                continue
            # Another plugin may have replaced the stale socket since the check. The rename is
            # still safe: the other plugin notices that its socket was replaced, and uses another
            # name.
            bound.replace(path)
        else:
            bound.unlink()
        return path
    raise AssertionError("unreachable: the loop tries names until one is free")


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    # The file was removed after the link failed, so the name can be used.
    except FileNotFoundError:
        return True
