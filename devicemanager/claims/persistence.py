"""The state file of claims: read when a kubelet starts, written before a pod is admitted."""

# Order of writes. An allocation is on disk before the pod is admitted (``write``); otherwise a
# restart could allocate its devices to another pod. A release is written later
# (``write_pending``): if the kubelet is killed in between, the file still has the released
# claim, and the kubelet releases it once it knows all pods. An extra claim in the file is safe;
# a missing one is not.
#
# Concurrent admissions share one write (``checkpoint.shared_writer``).

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import checkpoint
from checkpoint.shared_writer import Store, Writer
from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.state_file import ClaimsState, StateCorrupt, StateWriter, parse_state
from devicemanager.core.errors import StartError
from devicemanager.core.printable import counted
from devicemanager.events.stream import EventKind, EventStream

_RETRY_WAITS = (0.05, 0.2)
"""Seconds to wait before each retry of a failed read of the file."""


class StateFile(Store, Protocol):
    """Storage of the state file: a ``checkpoint.FileStore``."""

    @property
    def path(self) -> Path: ...
    def read(self) -> bytes: ...
    def set_aside(self) -> Path: ...
    def remove_leftovers(self) -> None: ...


class ClaimsFile:
    """The state file of one kubelet instance. Thread-safe."""

    def __init__(
        self, file: StateFile, events: EventStream, state: Callable[[], ClaimsState]
    ) -> None:
        """Store the arguments; read and write nothing yet.

        ``state``: function that returns the current state. It is called for each write of the file.
        """
        self._file = file
        self._events = events
        self._state = state
        self._counts = _CountingFile(file)
        # The writer makes one write at a time, so the rendering needs no lock.
        self._writer = Writer(self._counts, self._render)
        self._rendering = StateWriter()

    def load(self, restore: Callable[[ClaimsState], None]) -> None:
        """Read the file and pass its state to ``restore``; without a file, pass an empty state.

        If the file is corrupt, or ``restore`` raises ValueError, rename the file and pass an empty
        state. Raises StartError if an existing file cannot be read or renamed, or if
        ``restore`` raises ClaimsError. Starting without the file would allocate devices that
        running pods use.
        """
        self._file.remove_leftovers()
        try:
            state = parse_state(self._read())
            restore(state)
        except checkpoint.CheckpointNotFound:
            restore(ClaimsState())
        except checkpoint.CheckpointUnreadable as error:
            raise StartError(str(error)) from error
        except (StateCorrupt, ValueError) as error:
            self._set_aside(error)
            restore(ClaimsState())
        except ClaimsError as error:
            raise StartError(f"{self._file.path}: {error}") from error
        else:
            text = f"{self._file.path}: {counted(len(state.records), 'allocated claim')}"
            self._events.publish(EventKind.CLAIMS_LOADED, text)

    def _read(self) -> bytes:
        # Some errors are temporary: a busy disk, or no free file descriptors.
        for wait in _RETRY_WAITS:
            try:
                return self._file.read()
            except checkpoint.CheckpointUnreadable:
                time.sleep(wait)
        return self._file.read()

    def _set_aside(self, error: Exception) -> None:
        try:
            aside = self._file.set_aside()
        except checkpoint.CheckpointError as failed:
            raise StartError(
                f"{self._file.path}: {error}; the file could not be renamed: {failed}"
            ) from failed
        text = f"{self._file.path}: {error}; renamed to {aside}, no claim is allocated now"
        self._events.publish(EventKind.CLAIMS_SET_ASIDE, text)

    def _render(self) -> bytes:
        # Read the count before rendering: a change during rendering may be missing from the
        # text, so it must still count as not written.
        self._counts.rendered = self._counts.changes
        return self._rendering.render(self._state())

    def write(self) -> None:
        """Write the state; return once every change before this call is on disk.

        Raises ClaimsError if the write fails.
        """
        try:
            self._writer.flush()
        except checkpoint.CheckpointWriteError as error:
            self._events.publish(EventKind.CLAIMS_FAILED, str(error))
            raise ClaimsError(str(error)) from error

    def mark_changed(self) -> None:
        """Count a change that ``write_pending`` must write.

        The caller must hold the lock that guards the state.
        """
        self._counts.changes += 1

    def write_pending(self) -> None:
        """Write the state if a change that ``mark_changed`` counted is not on disk yet.

        If the write fails, publish an event and raise no error.
        """
        # Only releases and reports of drivers wait for this; see the order of writes above.
        if self._counts.written < self._counts.changes:
            with contextlib.suppress(ClaimsError):
                self.write()

    def close(self) -> None:
        """Wait for a write in progress, and make every later write fail."""
        self._writer.close()


class _CountingFile:
    """State file that counts how many changes have been written to it."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self.changes = 0
        # The number of changes that the text being written contains.
        self.rendered = 0
        self.written = 0

    def write(self, data: checkpoint.Contents) -> None:
        self._file.write(data)
        self.written = self.rendered
