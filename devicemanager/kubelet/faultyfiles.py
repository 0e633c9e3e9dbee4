"""The checkpoint's file with the faults that are set."""

from __future__ import annotations

import errno
import os

from checkpoint import Contents, FileOperations
from devicemanager.faults.injection_point import InjectionPoint
from devicemanager.faults.registry import FaultRegistry, named

__all__ = ["FaultyFiles"]


class FaultyFiles(FileOperations):
    """Operations of which a write fails or takes long, if the registry says so."""

    def __init__(self, faults: FaultRegistry) -> None:
        self._faults = faults

    def write(self, descriptor: int, data: Contents) -> None:
        if self._faults.armed:
            self._ask()
        super().write(descriptor, data)

    def _ask(self) -> None:
        fired = self._faults.at(InjectionPoint.CHECKPOINT)
        if (slow := named(fired, "delay-checkpoint")) is not None:
            slow.hold().wait()
        if (failing := named(fired, "fail-checkpoint")) is not None:
            code = getattr(errno, failing["error"])
            raise OSError(code, os.strerror(code))
