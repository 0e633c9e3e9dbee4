"""Recorded traffic between a kubelet and its plugins, and plugins that answer from it.

What belongs here: standing between the two (``recorder``), the format of what they said
(``calls``, ``recording``), and the plugin that says it again (``replay``). What never does:
anything of the kubelet's side; whoever registers and dials is a real one, or the mock.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.plugin.recording.answers import Miss
    from devicemanager.plugin.recording.calls import SCHEMA, EndedBy, RecordedCall
    from devicemanager.plugin.recording.errors import NotRecorded, RecordingError
    from devicemanager.plugin.recording.recorder import Recorder
    from devicemanager.plugin.recording.recording import (
        RecordedRegistration,
        RecordedStream,
        Recording,
    )
    from devicemanager.plugin.recording.replay import ReplayPlugin

__all__ = [
    "SCHEMA",
    "EndedBy",
    "Miss",
    "NotRecorded",
    "RecordedCall",
    "RecordedRegistration",
    "RecordedStream",
    "Recorder",
    "Recording",
    "RecordingError",
    "ReplayPlugin",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "SCHEMA": "calls",
        "EndedBy": "calls",
        "Miss": "answers",
        "NotRecorded": "errors",
        "RecordedCall": "calls",
        "RecordedRegistration": "recording",
        "RecordedStream": "recording",
        "Recorder": "recorder",
        "Recording": "recording",
        "RecordingError": "errors",
        "ReplayPlugin": "replay",
    },
)
