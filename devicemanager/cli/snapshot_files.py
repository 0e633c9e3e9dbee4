"""Read and write archives of snapshots."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from devicemanager.cli import files
from devicemanager.cli.options import CommandError, not_installed

if TYPE_CHECKING:
    from devicemanager.snapshot import Snapshot


def write_archive(name: str, data: bytes) -> None:
    """Write an archive to the new file ``name``, or to standard output if ``name`` is ``-``.

    Raises CommandError if the file exists or standard output is a terminal, and OSError if the
    archive cannot be written.
    """
    if name == files.STANDARD_INPUT:
        stream = getattr(sys.stdout, "buffer", None)
        if stream is None or sys.stdout.isatty():
            raise CommandError("cannot write the archive to a terminal: use -o FILE or a pipe")
        stream.write(data)
        return
    # Created with mode 0600, because responses of plugins may contain secrets.
    files.write_new(name, data)


def load_snapshot(file: str) -> Snapshot:
    """Read a snapshot archive; ``-`` is standard input. Raises CommandError, SnapshotError and
    OSError."""
    from devicemanager.snapshot import layout

    return unpacked(files.read_file(file, layout.MAX_PACKED), file)


def unpacked(data: bytes, name: str) -> Snapshot:
    """Return the snapshot that the archive ``data`` contains. ``name`` stands for the archive in
    error texts. Raises CommandError and SnapshotError."""
    try:
        from devicemanager.snapshot.reading import read_snapshot
    # Only reading needs the extra, so that a snapshot can be taken on any node.
    except ModuleNotFoundError as error:
        raise CommandError(not_installed(error, "snapshot")) from None
    return read_snapshot(data, name)
