"""Errors of recordings and replays."""

from __future__ import annotations

from devicemanager.plugin.errors import PluginError

__all__ = ["NotRecorded", "RecordingError"]


class RecordingError(PluginError):
    """Failure to make, write or read a recording. The text is one line with the reason."""


class NotRecorded(PluginError, AssertionError):
    """Error for requests to a replayed plugin that are not in its recording. The text has one line
    per request."""
