"""Snapshot archives that the user names, ``-`` for standard input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.cli.files import read_file
from devicemanager.cli.options import CommandError, not_installed

if TYPE_CHECKING:
    from devicemanager.snapshot import Snapshot


def load_snapshot(text: str) -> Snapshot:
    """The snapshot in an archive. Raises CommandError, SnapshotError and OSError."""
    from devicemanager.snapshot import layout

    return unpacked(read_file(text, layout.MAX_PACKED), text)


def unpacked(data: bytes, name: str) -> Snapshot:
    """The snapshot in an archive's bytes. Raises CommandError and SnapshotError."""
    try:
        from devicemanager.snapshot.reading import read_snapshot
    except ModuleNotFoundError as error:
        raise CommandError(not_installed(error, "snapshot")) from None
    return read_snapshot(data, name)
