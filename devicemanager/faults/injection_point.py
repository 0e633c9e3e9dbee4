"""Where faults are asked for, and on behalf of whom."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["NOBODY", "FaultContext", "InjectionPoint"]


class InjectionPoint(StrEnum):
    """A moment of the kubelet's work at which a fault may fire."""

    REGISTER = "register"
    """Register has come, and nothing has been looked at."""
    REGISTERED = "registered"
    """A plugin is registered; its list stream is not open yet, Register not answered."""
    NOTIFICATION = "notification"
    """A plugin that the watcher found is about to be registered, then told so."""
    LIST = "list"
    """A device list has come that differs from the one before it; it is not taken in yet."""
    CALL = "call"
    """A call to a plugin is about to be made, or was answered."""
    CHECKPOINT = "checkpoint"
    """The checkpoint is about to be written."""
    START = "start"
    """The kubelet's process starts; the checkpoint is not read yet."""
    POD_RESOURCES = "pod-resources"
    """A PodResources call has come."""


class FaultContext(NamedTuple):
    """What happens at a point, as far as faults ask: with whom, and which call."""

    resource: str | None = None
    plugin: str | None = None
    """The file name of the plugin's socket."""
    rpc: str | None = None
    """The call, or the method of PodResources."""
    phase: str = "before"
    """Of a call: ``before`` it is made, ``after`` it was answered."""

    def __str__(self) -> str:
        who = " of ".join(filter(None, (self.plugin, self.resource)))
        return " ".join(filter(None, (self.rpc, who)))


NOBODY = FaultContext()
"""An occasion of the kubelet's own."""
