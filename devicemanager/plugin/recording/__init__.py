"""Record the calls between a kubelet and its plugins, and replay them as a plugin.

Theory of operation. A ``Recorder`` serves ``kubelet.sock`` for the plugins. When a plugin
registers, the recorder starts a proxy socket in the kubelet's directory, and forwards Register with
the name of the proxy socket. The kubelet then calls the proxy, which forwards each call to the
plugin.
The recorder writes one line to the file for each device list, and one at the end of each call or
stream.

A ``ReplayPlugin`` is a plugin of the plugin framework. Its service takes device lists and responses
from a recording, and finds the response to a request by comparing device IDs as sets.

In:  a running kubelet (real or mock) and plugins; or a recording.
Out: a file of JSON lines (``calls``, ``recording``); or a registered plugin and its misses
     (requests that the recording does not contain).

Invariants: bytes are forwarded unchanged, except the endpoint in Register; the file can be
redacted; an error while writing the file never affects a call. Start reading at ``recorder``,
``proxy``, ``layout`` (the paths of the sockets), then ``calls`` and ``replay``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.plugin.recording.calls import SCHEMA, EndedBy, RecordedCall
    from devicemanager.plugin.recording.errors import NotRecorded, RecordingError
    from devicemanager.plugin.recording.recorder import Recorder
    from devicemanager.plugin.recording.recording import (
        RecordedRegistration,
        RecordedStream,
        Recording,
    )
    from devicemanager.plugin.recording.replay import ReplayPlugin
    from devicemanager.plugin.recording.responses import Miss

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
        "Miss": "responses",
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
