"""Temporary directories whose paths are short enough for unix sockets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["ADVICE", "NoDirectory", "short_directory"]

_DEFAULT = "/tmp"
_MEMORY = "/dev/shm"
_LONGEST_TMPDIR = 30
"""Longest path of TMPDIR in bytes. The path of a socket may have 107 bytes. With the longest
TMPDIR, 48 of these bytes remain for a plugin."""

ADVICE = f"set TMPDIR to a directory whose path has at most {_LONGEST_TMPDIR} bytes"


class NoDirectory(Exception):
    """Error if no temporary directory can be created; the text says where and why.

    ``ADVICE`` is a text with a possible fix.
    """


def short_directory(*, in_memory: bool = False) -> Path:
    """Create a temporary directory that only its owner can enter.

    The directory is in TMPDIR if the path of TMPDIR has at most 30 bytes, otherwise in ``/tmp``.
    With ``in_memory``, ``/dev/shm`` replaces ``/tmp`` if this user can write to ``/dev/shm``.
    Raises NoDirectory if the directory cannot be created.
    """
    # Many CI systems set a long TMPDIR, with which the path of a socket would exceed 107 bytes.
    where = _DEFAULT
    try:
        chosen = tempfile.gettempdir()
        if len(os.fsencode(chosen)) <= _LONGEST_TMPDIR:
            where = chosen
        if in_memory and where == _DEFAULT and os.access(_MEMORY, os.W_OK | os.X_OK):
            where = _MEMORY
        # The prefix is short, because it is part of the path of each socket.
        return Path(tempfile.mkdtemp(prefix="dm-", dir=where)).absolute()
    except OSError as error:
        text = f"cannot make a temporary directory in {where}: {error.strerror}"
        raise NoDirectory(text) from error
