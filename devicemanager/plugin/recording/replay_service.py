"""DevicePlugin service that responds from a recording."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import grpc

from devicemanager.core.api.codes import go_name
from devicemanager.plugin.author import Plugin
from devicemanager.plugin.recording.calls import OK, EndedBy, RecordedCall
from devicemanager.plugin.recording.recording import RecordedRegistration, RecordedStream
from devicemanager.plugin.recording.responses import Miss, RecordedResponses
from devicemanager.plugin.service import Service
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.streams import Stream, Streams
from protos import deviceplugin_v1beta1 as dp

__all__ = ["Pace", "ReplayService", "status_code"]

Pace = Callable[[float], float]
"""Function that converts a recorded duration to its duration in the replay, both in seconds."""

_CODES = {go_name(code.name): code for code in grpc.StatusCode}


class ReplayService(Service):
    """Service that responds as the recorded plugin did after one ``registration``.

    Each ListAndWatch stream replays the next recorded stream of the registration. ``opened`` is the
    number of recorded streams to skip. After the last recorded stream, each further stream sends
    only the last list, and stays open.

    If the plugin ended a recorded stream, the replayed stream ends at the recorded time. Otherwise,
    the replayed stream stays open. For the last recorded stream of the registration, two exceptions
    depend on ``after``, the next recorded registration:

    * If ``after`` is None, because no further registration was recorded, the replayed stream stays
      open.
    * If ``after`` is a registration with the same kubelet instance, the replayed stream ends at the
      recorded time, even if the plugin did not end the recorded stream.

    ``missed`` is called with each request that was not recorded.
    """

    def __init__(
        self,
        plugin: Plugin,
        settings: PluginSettings,
        streams: Streams,
        *,
        registration: RecordedRegistration,
        after: RecordedRegistration | None,
        opened: int,
        responses: RecordedResponses,
        pace: Pace,
        missed: Callable[[Miss], object],
    ) -> None:
        super().__init__(plugin, settings, streams)
        self._registration = registration
        self._after = after
        self._responses = responses
        self._pace = pace
        self._missed = missed
        # Guards the number of streams that were opened.
        self._lock = threading.Lock()
        self._opened = opened

    def options(self) -> dp.DevicePluginOptions:
        register = dp.RegisterRequest.FromString(self._registration.register.request_bytes)
        return register.options

    def GetDevicePluginOptions(self, request: dp.Empty, context: grpc.ServicerContext) -> bytes:
        call = self._responses.take("GetDevicePluginOptions", request.SerializeToString())
        if call is None:  # Register has the same options
            return self.options().SerializeToString()
        return self._repeat(call, context)

    def Allocate(self, request: dp.AllocateRequest, context: grpc.ServicerContext) -> bytes:
        return self._respond("Allocate", request.SerializeToString(), context)

    def GetPreferredAllocation(
        self, request: dp.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> bytes:
        return self._respond("GetPreferredAllocation", request.SerializeToString(), context)

    def PreStartContainer(
        self, request: dp.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> bytes:
        return self._respond("PreStartContainer", request.SerializeToString(), context)

    def ListAndWatch(self, request: dp.Empty, context: grpc.ServicerContext) -> Iterator[bytes]:
        stream = self.streams.open(context)
        recorded = self._next_stream()
        sent_at = 0.0
        for entry in recorded.lists:
            self._wait(stream, entry.duration - sent_at)
            if stream.ended():
                return
            sent_at = entry.duration
            yield entry.response_bytes or b""
        end = recorded.end
        if end is None or not self._ends(recorded):
            self._wait(stream, None)
            return
        self._wait(stream, end.duration - sent_at)
        if not stream.ended() and end.ended_by is EndedBy.PLUGIN and end.code != OK:
            context.abort(status_code(end.code), end.message)

    def _ends(self, recorded: RecordedStream) -> bool:
        """True if the replayed stream ends at its recorded time (see the class)."""
        streams, after = self._registration.streams, self._after
        # The last stream of a registration ended because the plugin re-registered, the kubelet
        # restarted or the recording stopped.
        if recorded is streams[-1]:
            if after is None:
                return False
            if after.register.kubelet == self._registration.register.kubelet:
                return True
        return recorded.end is not None and recorded.end.ended_by is EndedBy.PLUGIN

    def _next_stream(self) -> RecordedStream:
        streams = self._registration.streams
        with self._lock:
            number, self._opened = self._opened, self._opened + 1
        if number < len(streams):
            return streams[number]
        return RecordedStream(streams[-1].lists[-1:] if streams else (), None)

    def _wait(self, stream: Stream, seconds: float | None) -> None:
        """Wait for a recorded time in seconds (None: forever), or until the stream has ended."""
        devices = self.plugin._device_list
        if seconds is None:
            # The placeholder plugin never publishes another list, so only the end of the stream
            # ends this wait.
            while devices.wait_newer(devices.current.version, stream.ended) is not None:
                pass
        elif (pause := self._pace(seconds)) > 0:
            devices.pause(pause, stream.ended)

    def _respond(self, rpc: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        call = self._responses.take(rpc, request)
        if call is None:
            miss = self._responses.miss(rpc, request)
            self._missed(miss)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"replay: {miss}")
        return self._repeat(call, context)

    def _repeat(self, call: RecordedCall, context: grpc.ServicerContext) -> bytes:
        # A recorded call can have taken minutes: stop waiting when the kubelet cancels the call.
        gone = threading.Event()
        if not context.add_callback(gone.set):
            gone.set()
        if call.ended_by is not EndedBy.PLUGIN:
            gone.wait()  # the recorded plugin did not respond before the kubelet cancelled
            return b""
        gone.wait(max(self._pace(call.duration), 0))
        if call.code != OK:
            context.abort(status_code(call.code), call.message)
        return call.response_bytes or b""


def status_code(name: str) -> grpc.StatusCode:
    """Return the status code with this name (spelled as in Go); UNKNOWN for an unknown name."""
    return _CODES.get(name, grpc.StatusCode.UNKNOWN)
