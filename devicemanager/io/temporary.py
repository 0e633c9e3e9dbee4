"""Temporary directories whose paths are short: sockets go into them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["ADVICE", "NoDirectory", "short_directory"]

_LONGEST_TMPDIR = 30
"""In bytes: leaves a plugin 48 of the 107 that a socket's path may have."""

ADVICE = f"set TMPDIR to a directory of at most {_LONGEST_TMPDIR} bytes"


class NoDirectory(Exception):
    """None can be made. The text says where and why; ``ADVICE`` is what may help."""


def short_directory() -> Path:
    """A new directory, under TMPDIR if that is short enough, which its owner alone may enter.
    Raises NoDirectory."""
    where = "/tmp"
    try:
        chosen = tempfile.gettempdir()
        if len(os.fsencode(chosen)) <= _LONGEST_TMPDIR:
            where = chosen
        return Path(tempfile.mkdtemp(prefix="dm-", dir=where)).absolute()
    except OSError as error:
        text = f"cannot make a temporary directory in {where}: {error.strerror}"
        raise NoDirectory(text) from error
