"""Errors of recordings and replays."""

from __future__ import annotations

from devicemanager.plugin.errors import PluginError

__all__ = ["NotRecorded", "RecordingError"]


class RecordingError(PluginError):
    """A recording cannot be made, written or read; one line with place and reason."""


class NotRecorded(PluginError, AssertionError):
    """A replayed plugin got requests that are not in its recording; one line for each."""
