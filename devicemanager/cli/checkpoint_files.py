"""Checkpoints that the user names: files, standard input, or those in snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from devicemanager.cli.files import STANDARD_INPUT, read_checkpoint
from devicemanager.cli.options import CommandError
from devicemanager.cli.snapshot import unpacked

if TYPE_CHECKING:
    from checkpoint import Inspection
    from devicemanager.snapshot import Snapshot


class CheckpointFile(NamedTuple):
    """A checkpoint's contents, whatever they are, and where they are from."""

    name: str
    data: bytes
    path: Path | None
    """The file itself; None where it cannot be replaced."""
    snapshot: Snapshot | None = None
    """The snapshot that it stands in."""

    @classmethod
    def read(cls, text: str) -> CheckpointFile:
        """A checkpoint file, the checkpoint of a snapshot, or one of them on standard input.
        Raises CommandError and SnapshotError."""
        from devicemanager.snapshot.packing import is_packed

        data = read_checkpoint(text)
        if not is_packed(data):
            return cls(text, data, None if text == STANDARD_INPUT else Path(text))
        snapshot = unpacked(data, text)
        if snapshot.checkpoint is None:
            part = snapshot.part("kubelet_internal_checkpoint")
            why = f": {part.problem}" if part is not None and part.problem else ""
            raise CommandError(f"{text}: the snapshot has no checkpoint{why}")
        return cls(text, snapshot.checkpoint, None, snapshot)


def inspect_checkpoint(text: str) -> Inspection:
    """What can be read of a checkpoint. Raises CommandError if the file cannot be read."""
    import checkpoint

    return checkpoint.inspect(CheckpointFile.read(text).data)
