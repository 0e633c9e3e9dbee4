"""What the kubelet's methods need of the process that serves, whichever kind of kubelet it is."""

from __future__ import annotations

from typing import Protocol

from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.workers import PodWorkers

__all__ = ["Process", "Served"]


class Process(Protocol):
    """One life of a kubelet's process."""

    @property
    def manager(self) -> DeviceManager: ...
    @property
    def workers(self) -> PodWorkers: ...


class Served(Protocol):
    """Knows the process that serves."""

    def serving(self) -> Process:
        """Raises RequestError if there is none."""
