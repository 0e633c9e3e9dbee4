"""Errors of checkpoints. Every message is one line: where, what, and what to do."""

from __future__ import annotations

_ADVICE = "restore a good copy, or move it away to start without a checkpoint"


class CheckpointError(Exception):
    """Base class of errors about a checkpoint file or its contents."""


class CheckpointNotFound(CheckpointError):
    """The file does not exist. The kubelet then starts without a checkpoint."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source

    def __str__(self) -> str:
        return f"{self.source}: no such file: check the path; no kubelet has written it yet"


class CheckpointUnreadable(CheckpointError):
    """The file exists but cannot be read; ``__cause__`` has the OSError, if any."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source = source
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.source}: cannot be read: {self.reason}; "
            "check its type and permissions, or move it away to start without a checkpoint"
        )


class CheckpointCorrupt(CheckpointError):
    """The contents are not a checkpoint, or were altered."""

    def __init__(self, problem: str, source: str = "checkpoint") -> None:
        super().__init__(problem, source)
        self.problem = problem
        self.source = source

    def __str__(self) -> str:
        return f"{self.source}: {self.problem}; {_ADVICE}"


class ChecksumMismatch(CheckpointCorrupt):
    """The data is well-formed but was altered.

    ``expected`` is the checksum of the data, ``found`` the one in the file.
    """

    def __init__(self, expected: int, found: int, source: str = "checkpoint") -> None:
        problem = f"checksum is {found}, but the data has {expected}: the file was altered"
        super().__init__(problem, source)
        # Pickle passes these to the constructor when it loads the error.
        self.args = (expected, found, source)
        self.expected = expected
        self.found = found


class CheckpointWriteError(CheckpointError):
    """The file could not be written or moved; ``__cause__`` has the OSError.

    If ``replaced`` is false, the file is unchanged. If it is true, the file has the new
    contents, but they may not survive a power failure.
    """

    def __init__(self, source: str, reason: str, replaced: bool = False) -> None:
        super().__init__(source, reason, replaced)
        self.source = source
        self.reason = reason
        self.replaced = replaced

    def __str__(self) -> str:
        state = "a power failure may undo the write" if self.replaced else "it is unchanged"
        return f"{self.source}: cannot be written: {self.reason}; {state}"
