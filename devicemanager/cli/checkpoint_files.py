"""Read a checkpoint file that the user names: that of the device manager or the DRA manager."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from devicemanager.cli.checkpoint_contents import CLAIMS, DEVICES, Contents
from devicemanager.cli.files import STANDARD_INPUT, add_file, read_checkpoint
from devicemanager.cli.options import CommandError
from devicemanager.cli.output import clean
from devicemanager.cli.snapshot_files import unpacked

if TYPE_CHECKING:
    from devicemanager.snapshot import Snapshot

_FILE = f"{DEVICES}, {CLAIMS}, or a snapshot that contains one; - for standard input"


def add_checkpoint(parser: argparse.ArgumentParser, name: str, **options: Any) -> None:
    """Add an argument for a checkpoint file."""
    add_file(parser, name, _FILE, **options)


def add_dra(parser: argparse.ArgumentParser) -> None:
    """Add the flag ``--dra``: in a snapshot, read ``dra_manager_state`` instead of the device
    manager's checkpoint."""
    parser.add_argument("--dra", action="store_true", help=f"use the {CLAIMS} of a snapshot")


class CheckpointFile(NamedTuple):
    """The bytes of a checkpoint file, not yet checked, and where they come from."""

    name: str
    data: bytes
    path: Path | None
    """The path of the file. None for standard input or a snapshot: ``--write`` cannot replace
    them."""
    snapshot: Snapshot | None = None
    """The snapshot that contains the checkpoint, if any."""

    @classmethod
    def read(cls, text: str, *, dra: bool = False) -> CheckpointFile:
        """Read a checkpoint file, or the checkpoint file in a snapshot; ``-`` is standard input.

        A snapshot can have two checkpoint files. If ``dra`` is true, read the DRA manager's,
        otherwise the device manager's. Raises CommandError and SnapshotError.
        """
        from devicemanager.snapshot.packing import is_packed

        data = read_checkpoint(text)
        # Recognized by content: users rename archives, and standard input has no name.
        if not is_packed(data):
            return cls(text, data, None if text == STANDARD_INPUT else Path(text))
        snapshot = unpacked(data, text)
        name, content = (CLAIMS, snapshot.dra_state) if dra else (DEVICES, snapshot.checkpoint)
        if content is None:
            part = snapshot.part(name)
            why = f": {part.problem}" if part is not None and part.problem else ""
            raise CommandError(f"{text}: the snapshot has no {name}{why}")
        return cls(text, content, None, snapshot)

    def contents(self) -> Contents:
        """Return the readable contents. The keys in the file show its format. Without a known key,
        the name of the file decides."""
        from checkpoint.dra import is_state_file

        # Imported here: each has its own parser.
        if is_state_file(self.data, self.name):
            from devicemanager.cli.checkpoint_claims import ClaimContents

            return ClaimContents.read(self.data)
        from devicemanager.cli.checkpoint_devices import DeviceContents

        return DeviceContents.read(self.data)


def warn(file: str, problems: Sequence[str]) -> None:
    """Print a warning on standard error for each problem of a file."""
    for problem in problems:
        print(f"devicemanager: warning: {clean(file)}: {clean(problem)}", file=sys.stderr)
