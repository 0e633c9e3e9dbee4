"""Atomic writes of files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

__all__ = ["write_atomically", "write_files"]


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the contents of a file. Readers see either the old or the new contents.

    Create missing directories. Flush the data, so that a power failure cannot damage the file.
    Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In a CDI directory, container runtimes read only *.json and *.yaml.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            # Before the rename: otherwise a power failure could leave an empty file at the final
            # path.
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_files(contents: Mapping[Path, str]) -> None:
    """Write each file atomically, unless it already has this content. Raises OSError."""
    for path, text in contents.items():
        if not _has(path, text):
            write_atomically(path, text.encode())


def _has(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except FileNotFoundError:
        return False
