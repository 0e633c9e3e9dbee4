"""What can go wrong with a checkpoint. Every message is one line: what, where, what to do."""

from __future__ import annotations

__all__ = [
    "CheckpointCorrupt",
    "CheckpointError",
    "CheckpointNotFound",
    "CheckpointUnreadable",
    "CheckpointWriteError",
    "ChecksumMismatch",
]

_START_AFRESH = "move it away to start afresh, or restore a good copy"


class CheckpointError(Exception):
    """Any failure of this package that has to do with a file or its contents."""


class CheckpointNotFound(CheckpointError):
    """There is no such file. To the kubelet that means a fresh start."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source

    def __str__(self) -> str:
        return f"{self.source}: no such file: nothing was checkpointed there, or the path is wrong"


class CheckpointUnreadable(CheckpointError):
    """The file is there but its contents cannot be had; ``__cause__`` has the OSError, if any."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source = source
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.source}: cannot be read: {self.reason}; "
            "check its type and permissions, or move it away to start afresh"
        )


class CheckpointCorrupt(CheckpointError):
    """The contents are not a checkpoint, or not one as it was written."""

    def __init__(self, problem: str, source: str = "checkpoint") -> None:
        super().__init__(problem, source)
        self.problem = problem
        self.source = source

    def __str__(self) -> str:
        return f"{self.source}: {self.problem}; {_START_AFRESH}"


class ChecksumMismatch(CheckpointCorrupt):
    """The data is well-formed and is not what was written.

    ``expected`` is the checksum that this data has, ``found`` the one in the file.
    """

    def __init__(self, expected: int, found: int, source: str = "checkpoint") -> None:
        problem = f"the file says checksum {found}, but its data has {expected}: it was altered"
        super().__init__(problem, source)
        # What pickle hands to the constructor again.
        self.args = (expected, found, source)
        self.expected = expected
        self.found = found


class CheckpointWriteError(CheckpointError):
    """The file could not be written or moved; ``__cause__`` has the OSError.

    Unless ``replaced`` is true, the file is what it was before. If it is true, the new
    contents are in place but may not survive a power failure.
    """

    def __init__(self, source: str, reason: str, replaced: bool = False) -> None:
        super().__init__(source, reason, replaced)
        self.source = source
        self.reason = reason
        self.replaced = replaced

    def __str__(self) -> str:
        state = "it may be lost at a power failure" if self.replaced else "it is unchanged"
        return f"{self.source}: cannot be written: {self.reason}; {state}"
