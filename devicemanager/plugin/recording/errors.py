"""What can go wrong with a recording."""

from __future__ import annotations

from devicemanager.plugin.errors import PluginError

__all__ = ["NotRecorded", "RecordingError"]


class RecordingError(PluginError):
    """A recording cannot be made, written or read; one line that says where and why."""


class NotRecorded(PluginError, AssertionError):
    """A kubelet asked a replayed plugin what is not in its recording; a line for each."""
