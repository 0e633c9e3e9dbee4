"""Where faults are asked for."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Point"]


class Point(StrEnum):
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
