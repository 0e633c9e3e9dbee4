"""Find out why a command cannot be started.

If an interpreter is missing, the error of ``execve`` does not name it.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
from pathlib import Path
from typing import BinaryIO

__all__ = ["why_not_started"]

_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<32xQ14xHH")  # e_phoff, e_phentsize, e_phnum
_SEGMENT = struct.Struct("<I4xQ16xQ")  # p_type, p_offset, p_filesz
_PT_INTERP = 3
_LONGEST = 4096  # PATH_MAX


def why_not_started(command: str, error: OSError, *, is_image: bool = False) -> str:
    """Return why ``execve`` could not start ``command``. ``error`` is the error of ``execve``.

    The calling process must have the same root directory and mounts as the process that called
    ``execve``. ``is_image``: True if the root directory belongs to a container image.
    """
    if error.errno != errno.ENOENT:
        return str(error.strerror)
    path = shutil.which(command)
    if path is not None and (interpreter := _interpreter(path)):
        return f"it needs {interpreter}, which does not exist"
    return f"{error.strerror}{' in the root file system' if is_image else ''}"


def _interpreter(path: str) -> str:
    """Return the missing interpreter of a script, or the missing dynamic loader of a program; empty
    if nothing is missing."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(_LONGEST)
            found = _of_script(start) or _of_program(start, file)
    except (OSError, ValueError, OverflowError, struct.error):  # damaged, or not readable
        return ""
    name = os.fsdecode(found)
    return "" if not name or Path(name).exists() else name


def _of_script(start: bytes) -> bytes:
    words = start.split(b"\n", 1)[0].removeprefix(b"#!").split()
    return words[0] if start.startswith(b"#!") and words else b""


def _of_program(start: bytes, file: BinaryIO) -> bytes:
    if not start.startswith(_ELF_64_LITTLE):
        return b""
    first, size, count = _HEADER.unpack_from(start)
    for number in range(count):
        file.seek(first + size * number)
        kind, place, length = _SEGMENT.unpack(file.read(_SEGMENT.size))
        if kind == _PT_INTERP:
            file.seek(place)
            return file.read(min(length, _LONGEST)).rstrip(b"\0")
    return b""
