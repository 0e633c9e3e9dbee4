"""Temporary directories with short paths, for sockets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["ADVICE", "NoDirectory", "short_directory"]

_LONGEST_TMPDIR = 30
"""Bytes of TMPDIR. With it a plugin has 48 of the 107 bytes that a socket's path may have."""

ADVICE = f"set TMPDIR to a directory of at most {_LONGEST_TMPDIR} bytes"


class NoDirectory(Exception):
    """No directory can be created. The text says where and why; ``ADVICE`` says what may help."""


def short_directory() -> Path:
    """Create a directory that only its owner can enter, under TMPDIR if that is short enough.

    Raises NoDirectory.
    """
    # Many CI systems set a long TMPDIR, in which a socket's path would exceed 107 bytes.
    where = "/tmp"
    try:
        chosen = tempfile.gettempdir()
        if len(os.fsencode(chosen)) <= _LONGEST_TMPDIR:
            where = chosen
        return Path(tempfile.mkdtemp(prefix="dm-", dir=where)).absolute()
    except OSError as error:
        text = f"cannot make a temporary directory in {where}: {error.strerror}"
        raise NoDirectory(text) from error
