"""The file ``dra_manager_state`` of one kubelet: read at start, written after every change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import checkpoint
import checkpoint.dra
from checkpoint.dra import ClaimState, StateDocument, StateStore
from checkpoint.shared_writer import Writer
from devicemanager.core.dra import messages
from devicemanager.core.dra.errors import StateWriteError
from devicemanager.core.dra.model import ClaimInfo, DriverState, PreparedDevice
from devicemanager.core.dra.rules import DraRules
from devicemanager.core.errors import StartError
from devicemanager.core.printable import counted
from devicemanager.events.stream import EventKind, EventStream

__all__ = ["StateFile"]


class StateFile:
    """The file ``dra_manager_state`` of one kubelet. Thread-safe.

    If several threads call ``write`` at the same time, one write of the file can serve them all.
    """

    def __init__(
        self,
        root: Path,
        durability: checkpoint.Durability,
        files: checkpoint.FileOperations,
        rules: DraRules,
        events: EventStream,
    ) -> None:
        self._rules = rules
        self._events = events
        self._store = StateStore(root, durability=durability, files=files)
        self._document = StateDocument(share_ids=rules.behaviour.dra_stores_share_id)
        self._writer: Writer | None = None

    def load(self, claims: Callable[[], Sequence[ClaimInfo]]) -> tuple[ClaimInfo, ...]:
        """Return the claims in the file. If the file does not exist, create it without claims.

        Each later call of ``write`` calls ``claims`` to get the claims for the file. A corrupt file
        is renamed and replaced by a file without claims.

        Raises StartError if the file cannot be read, or if a corrupt file cannot be renamed. With
        the kubelet bug (quirk) Q38, every corrupt file raises StartError. Raises StateWriteError if
        the file cannot be written.
        """
        self._writer = Writer(self._store, lambda: self._document.parts(claims()))
        # A kubelet that was killed during a write leaves a temporary file.
        self._store.remove_leftovers()
        try:
            found = self._store.load_state().claims or ()
        except checkpoint.CheckpointNotFound:
            self._create()
            return ()
        except checkpoint.CheckpointUnreadable as error:
            raise StartError(str(error)) from error
        except checkpoint.CheckpointCorrupt as error:
            self._set_aside(error)
            self._create()
            return ()
        self._events.publish(
            EventKind.DRA_STATE_LOADED,
            f"{self._store.path}: {counted(len(found), 'ResourceClaim')}",
        )
        return tuple(map(claim_info, found))

    def _create(self) -> None:
        # Until the first claim, the kubelet writes null instead of a list (``GetOrCreate``,
        # pkg/kubelet/cm/dra/state/state_checkpoint.go, v1.32).
        self._write(lambda: self._store.write(self._document.parts(None)))

    def _set_aside(self, error: checkpoint.CheckpointCorrupt) -> None:
        if "Q38" in self._rules.quirks:
            problem = checkpoint.dra.kubelet_error(self._store.read()) or ("file", str(error))
            raise StartError(messages.start_error(*problem, self._rules.wording)) from error
        try:
            aside = self._store.set_aside()
        except checkpoint.CheckpointError as failed:
            raise StartError(f"{error}; the file could not be renamed: {failed}") from failed
        self._events.publish(
            EventKind.DRA_STATE_SET_ASIDE,
            f"{error.source}: {error.problem}; renamed to {aside}, starting without it",
        )

    def write(self) -> None:
        """Write all changes made so far. Raises StateWriteError."""
        assert self._writer is not None
        self._write(self._writer.flush)

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except checkpoint.CheckpointWriteError as error:
            cause = error.__cause__
            # The operating system's error message, as Go writes it.
            reason = cause.strerror if isinstance(cause, OSError) else None
            text = (reason or error.reason).lower()
            self._events.publish(EventKind.DRA_STATE_FAILED, str(error))
            raise StateWriteError(text) from error

    def close(self) -> None:
        """Wait for the write in progress, and reject later writes."""
        if self._writer is not None:
            self._writer.close()


def claim_info(claim: ClaimState) -> ClaimInfo:
    """Convert a claim of the state file to the form that ``core.dra`` keeps in memory."""
    return ClaimInfo(
        claim.namespace,
        claim.name,
        claim.uid,
        claim.pods,
        {
            name: DriverState(
                None
                if state.devices is None
                else tuple(
                    PreparedDevice(each.pool, each.device, each.share_id, each.requests, each.cdi)
                    for each in state.devices
                ),
                state.skips,
            )
            for name, state in claim.drivers.items()
        },
    )
