"""Errors of checkpoint files. Each message is one line: the file, the problem, and the fix."""

from __future__ import annotations

_ADVICE = "restore a good copy, or move it away to start without a checkpoint"


class CheckpointError(Exception):
    """Base class of errors about a checkpoint file or its contents."""


class CheckpointNotFound(CheckpointError):
    """Error for a checkpoint file that does not exist. In this case, a kubelet starts without
    checkpoint data."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source

    def __str__(self) -> str:
        return (
            f"{self.source}: No such file or directory: check the path, or wait until a kubelet "
            "has written it"
        )


class CheckpointUnreadable(CheckpointError):
    """Error for a checkpoint file that exists but cannot be read. If an OSError is the reason,
    ``__cause__`` is that OSError."""

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
    """Error for a file whose contents are not a checkpoint or have changed since a kubelet wrote
    the file."""

    def __init__(self, problem: str, source: str = "checkpoint") -> None:
        super().__init__(problem, source)
        self.problem = problem
        self.source = source

    def __str__(self) -> str:
        return f"{self.source}: {self.problem}; {_ADVICE}"


class ChecksumMismatch(CheckpointCorrupt):
    """Error for a well-formed checkpoint whose data does not match its checksum.

    ``expected`` is the checksum computed from the data. ``found`` is the checksum in the file; None
    if it is missing.
    """

    def __init__(self, expected: int, found: int | None, source: str = "checkpoint") -> None:
        in_file = "no checksum" if found is None else f"checksum {found}"
        problem = (
            f"the file has {in_file}, but its data has checksum {expected}: the file was altered"
        )
        super().__init__(problem, source)
        # Pickle calls the constructor with these values when it loads the error.
        self.args = (expected, found, source)
        self.expected = expected
        self.found = found


class CheckpointWriteError(CheckpointError):
    """Error for a checkpoint file that could not be written or moved. If an OSError is the reason,
    ``__cause__`` is that OSError.

    If ``replaced`` is false, the file is unchanged. If ``replaced`` is true, the file has the new
    contents, but a power failure may undo the write.
    """

    def __init__(self, source: str, reason: str, replaced: bool = False) -> None:
        super().__init__(source, reason, replaced)
        self.source = source
        self.reason = reason
        self.replaced = replaced

    def __str__(self) -> str:
        state = "a power failure may undo the write" if self.replaced else "it is unchanged"
        return f"{self.source}: cannot be written: {self.reason}; {state}"
