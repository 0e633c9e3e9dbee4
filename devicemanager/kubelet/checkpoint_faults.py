"""Faults of the kubelet's files: writes that fail or take long, and lost or damaged files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from checkpoint import Contents, FileOperations
from devicemanager.faults.injection_point import Effect, InjectionPoint, implements
from devicemanager.faults.registry import FaultRegistry, Fired, first

__all__ = ["FaultyFiles", "damage_files"]


class FaultyFiles(FileOperations):
    """Functions that write the files of the checkpoint and of ``dra_manager_state``.

    Injected faults can delay a write or make it fail.
    """

    def __init__(self, faults: FaultRegistry) -> None:
        self._faults = faults

    def write(self, descriptor: int, data: Contents) -> None:
        if self._faults.armed:
            fired = self._faults.at(InjectionPoint.CHECKPOINT)
            for effect, act in _AT_WRITE.items():
                if (fault := first(fired, effect)) is not None:
                    act(fault)
        super().write(descriptor, data)


def _delay(fault: Fired) -> None:
    fault.hold().wait()


def _fail(fault: Fired) -> None:
    code = getattr(errno, fault["error"])
    raise OSError(code, os.strerror(code))


# The delay comes first: if both faults fire, the write fails after the delay.
_AT_WRITE: Mapping[Effect, Callable[[Fired], None]] = {
    Effect.DELAY_CHECKPOINT: _delay,
    Effect.FAIL_CHECKPOINT: _fail,
}
implements(InjectionPoint.CHECKPOINT, _AT_WRITE)


def damage_files(faults: FaultRegistry, checkpoint: Path, dra_state: Path) -> None:
    """Carry out the faults that remove or truncate the checkpoint or ``dra_manager_state``.

    Called before the kubelet reads the files.
    """
    if faults.armed:
        for fault in faults.at(InjectionPoint.START):
            # Actions cannot be set for this point, so the table has the effect of every fault.
            _AT_START[fault.effect](dra_state if fault.effect in _OF_DRA else checkpoint)


def _lose(path: Path) -> None:
    path.unlink(missing_ok=True)


def _truncate(path: Path) -> None:
    # The file looks as after a crash of the node before its file system had written all blocks.
    if path.exists():
        os.truncate(path, path.stat().st_size // 2)


_AT_START: Mapping[Effect, Callable[[Path], None]] = {
    Effect.LOSE_CHECKPOINT: _lose,
    Effect.TRUNCATE_CHECKPOINT: _truncate,
    Effect.LOSE_DRA_STATE: _lose,
    Effect.TRUNCATE_DRA_STATE: _truncate,
}
_OF_DRA = {Effect.LOSE_DRA_STATE, Effect.TRUNCATE_DRA_STATE}
implements(InjectionPoint.START, _AT_START)
