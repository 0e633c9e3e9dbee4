"""Errors of recordings and replays."""

from __future__ import annotations

from devicemanager.plugin.errors import PluginError

__all__ = ["NotRecorded", "RecordingError"]


class RecordingError(PluginError):
    """Failure to make, write or read a recording. The text is one line with the reason."""


class NotRecorded(PluginError, AssertionError):
    """Error of a replay: the kubelet sent requests that the recording does not contain.

    The text has one line per request.
    """
