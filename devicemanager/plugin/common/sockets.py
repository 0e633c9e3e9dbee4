"""Check the socket directory, and choose a name that no running plugin uses."""

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
    """Return why no socket can be created there, or None. The directory need not exist yet."""
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
    """Yield file names to try for a socket in ``directory``, best first, endlessly.

    The plain name comes first unless ``unique``; the others have a random suffix. All paths fit
    into 107 bytes, here and under the kubelet's default directory: a container can mount the
    directory under another path than the kubelet uses.
    """
    # One byte is for the slash, one for the dash before the suffix.
    longest = max(len(directory.encode()), len(PLUGIN_DIRECTORY))
    room = MAX_PATH_BYTES - longest - 1 - (_RANDOM_SUFFIX + 1)
    if room < _HASH + 2:
        raise ConfigurationError(
            f"directory path {directory} is too long for unix sockets, whose limit is "
            f"{MAX_PATH_BYTES} bytes: choose a shorter one"
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
    # The cut can be inside a character, whose bytes are then dropped.
    return raw[: room - _HASH - 1].decode(errors="ignore") + "-" + digest


def may_be_socket(name: str, own: str | None = None) -> bool:
    """True if a change of this file in the plugin directory can concern a plugin.

    The kubelet's checkpoint and the hidden temporary file that it renames do not: every
    admission writes them. ``own`` is the socket name that the author chose.
    """
    return name == own or not (name.startswith(".") or name == CHECKPOINT_FILE)


def claim(bound: Path, names: Iterator[str]) -> Path:
    """Rename the socket ``bound`` to the first of ``names`` that no running plugin uses.

    A stale socket is replaced; a file that is not a socket is left alone. The hard link is
    atomic and fails if the name exists, so only one of two plugins that start at once gets it.
    """
    for name in names:
        path = bound.with_name(name)
        try:
            os.link(bound, path)
        except FileExistsError:
            if not _is_socket(path) or is_alive(path):
                continue
            # Another plugin may have taken the stale socket since the check. The rename is still
            # safe for this plugin: the other one notices that its socket was replaced, and uses
            # another name.
            bound.replace(path)
        else:
            bound.unlink()
        return path
    raise AssertionError("socket names never run out")


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    # Removed since the link failed: the name can be used.
    except FileNotFoundError:
        return True
