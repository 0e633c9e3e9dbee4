"""The state file of claims: read when a kubelet starts, written before anybody is answered."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import checkpoint
from checkpoint.shared_writer import Store, Writer
from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.statefile import ClaimsState, StateCorrupt, StateWriter, parse_state
from devicemanager.core.errors import StartError
from devicemanager.events.stream import EventKind, EventStream

_WAITS = (0.05, 0.2)
"""Seconds before a file that could not be read is read again."""


class StateFile(Store, Protocol):
    """Where the state is kept: a ``checkpoint.FileStore``."""

    @property
    def path(self) -> Path: ...
    def read(self) -> bytes: ...
    def set_aside(self) -> Path: ...
    def remove_leftovers(self) -> None: ...


class ClaimsFile:
    """The file of one life of the kubelet's process. May be used from any thread."""

    def __init__(
        self, file: StateFile, events: EventStream, state: Callable[[], ClaimsState]
    ) -> None:
        """``state`` is asked for what is to be written."""
        self._file = file
        self._events = events
        self._state = state
        self._counts = _Counted(file)
        # Its writes come one after the other, so what renders has one user at a time.
        self._writer = Writer(self._counts, self._render)
        self._rendering = StateWriter()

    def load(self, take_over: Callable[[ClaimsState], None]) -> None:
        """Hand over what the file says. A corrupt file is set aside, also if ``take_over``
        raises ValueError. Raises StartError if the file is there and cannot be read: to go on
        would give away what is held.
        """
        self._file.remove_leftovers()
        try:
            state = parse_state(self._read())
            take_over(state)
        except checkpoint.CheckpointNotFound:
            take_over(ClaimsState())
        except checkpoint.CheckpointUnreadable as error:
            raise StartError(str(error)) from error
        except (StateCorrupt, ValueError) as error:
            self._set_aside(error)
            take_over(ClaimsState())
        except ClaimsError as error:
            raise StartError(f"{self._file.path}: {error}") from error
        else:
            text = f"{self._file.path}: {len(state.records)} allocated claims"
            self._events.publish(EventKind.CLAIMS_LOADED, text)

    def _read(self) -> bytes:
        """Try again what may pass: the disk, or a process that has all descriptors."""
        for wait in _WAITS:
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
                f"{self._file.path}: {error}; it cannot be set aside either: {failed}"
            ) from failed
        text = f"{self._file.path}: {error}; set aside as {aside}, no claim is allocated now"
        self._events.publish(EventKind.CLAIMS_SET_ASIDE, text)

    def _render(self) -> bytes:
        self._counts.rendered = self._counts.changes
        return self._rendering.render(self._state())

    def write(self) -> None:
        """Return once every change before this call is on disk. Raises ClaimsError."""
        try:
            self._writer.flush()
        except checkpoint.CheckpointWriteError as error:
            self._events.publish(EventKind.CLAIMS_FAILED, str(error))
            raise ClaimsError(str(error)) from error

    def fall_behind(self) -> None:
        """Something has changed; ``catch_up`` will have to write. To be called with a lock
        held that keeps others from changing something."""
        self._counts.changes += 1

    def catch_up(self) -> None:
        """Return once no change of before is missing on disk. A failure is an event only: what
        the file says too much is freed when a kubelet starts and does not know the pod."""
        if self._counts.written < self._counts.changes:
            with contextlib.suppress(ClaimsError):
                self.write()

    def close(self) -> None:
        """Wait for a write under way; every later one fails."""
        self._writer.close()


class _Counted:
    """A file that counts which changes have reached it."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self.changes = 0
        self.rendered = 0
        """As of which change the contents are that are written now."""
        self.written = 0

    def write(self, data: checkpoint.Contents) -> None:
        self._file.write(data)
        self.written = self.rendered
