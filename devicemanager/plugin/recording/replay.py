"""Plugin that replays a recording: it responds as the recorded plugin did."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from devicemanager.plugin.author import Plugin, StaticLister
from devicemanager.plugin.manager import ManagedPlugin, Manager
from devicemanager.plugin.names import check_resource_name
from devicemanager.plugin.recording.errors import NotRecorded, RecordingError
from devicemanager.plugin.recording.recording import Recording
from devicemanager.plugin.recording.replay_service import ReplayService
from devicemanager.plugin.recording.responses import Miss, RecordedResponses
from devicemanager.plugin.service import Service
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.streams import Streams
from devicemanager.plugin.values import ContainerSettings

__all__ = ["ReplayPlugin"]


class _Recorded(Plugin):
    """Placeholder that the framework requires; ``ReplayService`` responds to all calls."""

    def devices(self) -> list[str]:
        return []

    def allocate(self, device_ids: Sequence[str]) -> ContainerSettings | None:
        raise NotImplementedError


class ReplayPlugin(ManagedPlugin):
    """Plugin that replays one resource of a recording. ``directory``: the plugin directory.

    ``recording`` is a ``Recording`` or its path. ``resource`` is optional if the recording has only
    one resource. ``speed``: how many recorded seconds pass per second; None: replay without pauses.

    ``start`` serves in the background and re-registers after kubelet restarts. The n-th
    registration replays the n-th recorded registration. If the plugin registers more often than in
    the recording, it then sends only the last recorded list. ``stop`` stops serving. A context
    manager: entering it starts serving, leaving it stops.

    A request that was not recorded fails with FAILED_PRECONDITION. It is added to ``misses``, and
    ``on_miss`` is called. The constructor raises RecordingError if the recording is invalid or does
    not have the resource.
    """

    def __init__(
        self,
        recording: Recording | str | os.PathLike[str],
        directory: str | os.PathLike[str] | None = None,
        *,
        resource: str | None = None,
        speed: float | None = None,
        on_miss: Callable[[Miss], object] = lambda _miss: None,
    ) -> None:
        loaded = recording if isinstance(recording, Recording) else Recording.load(recording)
        self.recording = loaded
        self.resource = _resource(loaded, resource)
        if speed is not None and not speed > 0:
            raise RecordingError(f"invalid speed {speed}: expected a number above 0")
        self.speed = speed
        self._on_miss = on_miss
        self._registrations = loaded.registrations(self.resource)
        self._responses = RecordedResponses(
            [call for each in self._registrations for call in each.calls]
        )
        # Guards the two fields below.
        self._lock = threading.Lock()
        self._served = 0
        self._misses: list[Miss] = []
        check_resource_name(self.resource)
        namespace, _, name = self.resource.partition("/")
        self.manager = Manager(
            StaticLister(namespace, {name: _Recorded()}),
            directory,
            # The framework re-registers when a stream ends. `stream_delay` makes it re-register
            # after the recorded time; `stream_settled` prevents longer pauses after short streams.
            PluginSettings(stop_grace=0.5, stream_delay=self._gap(), stream_settled=0.0),
            socket_name=self._registrations[0].register.plugin or None,
            _service=self._service,
        )

    @property
    def misses(self) -> tuple[Miss, ...]:
        """Requests that were not recorded, oldest first."""
        with self._lock:
            return tuple(self._misses)

    @property
    def first_lists(self) -> tuple[bytes, ...]:
        """Serialized lists of the first recorded ListAndWatch stream."""
        streams = self._registrations[0].streams
        return tuple(each.response_bytes or b"" for each in streams[0].lists) if streams else ()

    def check(self) -> None:
        """Raise NotRecorded if the kubelet sent requests that are not in the recording."""
        if misses := self.misses:
            raise NotRecorded(f"{self.resource}: " + "\n".join(map(str, misses)))

    def _service(self, plugin: Plugin, settings: PluginSettings, streams: Streams) -> Service:
        # The framework creates one service per registration, in order.
        with self._lock:
            number, self._served = self._served, self._served + 1
        recorded = self._registrations[number : number + 2]
        # After all recorded registrations, repeat the last one with all its streams used up.
        registration = recorded[0] if recorded else self._registrations[-1]
        return ReplayService(
            plugin,
            settings,
            streams,
            registration=registration,
            after=recorded[1] if len(recorded) == 2 else None,
            opened=0 if recorded else len(registration.streams),
            responses=self._responses,
            pace=self._pace,
            missed=self._missed,
        )

    def _pace(self, seconds: float) -> float:
        return seconds / self.speed if self.speed else 0.0

    def _missed(self, miss: Miss) -> None:
        with self._lock:
            self._misses.append(miss)
        self._on_miss(miss)

    def _gap(self) -> float:
        """Return the pause in seconds between the end of a stream and the next registration."""
        # Use the shortest recorded pause: a plugin that registers too late would miss a recorded
        # kubelet instance.
        gaps = [
            later.register.time - (end.time + end.duration)
            for earlier, later in zip(self._registrations, self._registrations[1:], strict=False)
            if earlier.streams and (end := earlier.streams[-1].end) is not None
        ]
        return max(self._pace(min(gaps, default=1.0)), 0.02)


def _resource(recording: Recording, requested: str | None) -> str:
    recorded = recording.resources
    if requested is None and len(recorded) == 1:
        return recorded[0]
    if not recorded:
        raise RecordingError(
            f"{recording.path}: no plugin has registered in this recording: use another recording"
        )
    if requested is None:
        raise RecordingError(
            f"{recording.path} has {len(recorded)} resources: use one of {', '.join(recorded)}"
        )
    if requested not in recorded:
        raise RecordingError(
            f"{recording.path} does not have {requested}: use one of {', '.join(recorded)}"
        )
    return requested
