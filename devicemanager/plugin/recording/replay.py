"""A plugin that answers as a recorded one did."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Self

from devicemanager.plugin.author import Plugin, StaticLister
from devicemanager.plugin.manager import Manager
from devicemanager.plugin.names import check_resource_name
from devicemanager.plugin.recording.answers import Answers, Miss
from devicemanager.plugin.recording.errors import NotRecorded, RecordingError
from devicemanager.plugin.recording.recording import Recording
from devicemanager.plugin.recording.replayservice import ReplayService
from devicemanager.plugin.resource import ResourceStatus
from devicemanager.plugin.service import Service
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.streams import Streams
from devicemanager.plugin.values import ContainerSettings

__all__ = ["ReplayPlugin"]


class _Recorded(Plugin):
    """What the framework needs of a plugin besides its service, which says it all."""

    def devices(self) -> list[str]:
        return []

    def allocate(self, device_ids: Sequence[str]) -> ContainerSettings | None:
        raise NotImplementedError


class ReplayPlugin:
    """The plugin of one resource of a recording, registered with the kubelet of ``directory``.

    ``recording`` is one, or the path of its file. ``resource`` may be left out if the
    recording has one only. ``speed``: how many recorded seconds pass in a second; None: no
    time at all between recorded events. ``start`` serves and goes on in the background,
    across kubelet restarts too: the n-th registration is the n-th recorded one; if there
    were fewer, the last list is sent again. ``stop`` unregisters. A context manager does both.

    A request that was not recorded fails with FAILED_PRECONDITION and is listed in
    ``misses``; ``on_miss`` is called with each. Raises RecordingError for a recording without
    such a resource.
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
            raise RecordingError(f"speed is a number above 0, not {speed}")
        self.speed = speed
        self._on_miss = on_miss
        self._registrations = loaded.registrations(self.resource)
        every = [call for each in self._registrations for call in each.calls]
        self._answers = Answers(every)
        # Guards the two below.
        self._lock = threading.Lock()
        self._served = 0
        self._misses: list[Miss] = []
        check_resource_name(self.resource)
        namespace, _, name = self.resource.partition("/")
        self.manager = Manager(
            StaticLister(namespace, {name: _Recorded()}),
            directory,
            PluginSettings(stop_grace=0.5, stream_delay=self._gap(), stream_settled=0.0),
            socket_name=self._registrations[0].register.plugin or None,
            service=self._service,
        )

    def start(self) -> Self:
        """Serve. Raises ConfigurationError if the directory is none, or not writable."""
        self.manager.start()
        return self

    def stop(self) -> None:
        """Unregister and remove the socket. Stopping twice does nothing."""
        self.manager.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def misses(self) -> tuple[Miss, ...]:
        """The requests that were not recorded, in the order in which they came."""
        with self._lock:
            return tuple(self._misses)

    @property
    def first_lists(self) -> tuple[bytes, ...]:
        """The lists that its first stream sends, as messages."""
        streams = self._registrations[0].streams
        return tuple(each.response_bytes or b"" for each in streams[0].lists) if streams else ()

    @property
    def status(self) -> ResourceStatus | None:
        """State, socket and registrations; None before it has started."""
        return next(iter(self.manager.resources()), None)

    def wait_registered(self, timeout: float = 10.0, *, streaming: bool = True) -> bool:
        """Wait until the kubelet has registered it and, if ``streaming``, opened its list."""
        return self.manager.wait_registered(timeout, streaming=streaming)

    def check(self) -> None:
        """Raise NotRecorded if something was asked that was not recorded."""
        if misses := self.misses:
            raise NotRecorded(f"{self.resource}: " + "\n".join(map(str, misses)))

    def _service(self, plugin: Plugin, settings: PluginSettings, streams: Streams) -> Service:
        with self._lock:
            number, self._served = self._served, self._served + 1
        recorded = self._registrations[number : number + 2]
        registration = recorded[0] if recorded else self._registrations[-1]
        return ReplayService(
            plugin,
            settings,
            streams,
            registration=registration,
            after=recorded[1] if len(recorded) == 2 else None,
            opened=0 if recorded else len(registration.streams),
            answers=self._answers,
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
        """Seconds from the end of a stream to the plugin's next registration."""
        gaps = [
            later.register.time - (end.time + end.duration)
            for earlier, later in zip(self._registrations, self._registrations[1:], strict=False)
            if earlier.streams and (end := earlier.streams[-1].end) is not None
        ]
        return max(self._pace(min(gaps, default=1.0)), 0.02)


def _resource(recording: Recording, wanted: str | None) -> str:
    there = recording.resources
    if wanted is None and len(there) == 1:
        return there[0]
    if not there:
        raise RecordingError(f"{recording.path}: no plugin has registered in this recording")
    if wanted is None:
        raise RecordingError(
            f"{recording.path} has {len(there)} resources, choose one: {', '.join(there)}"
        )
    if wanted not in there:
        raise RecordingError(f"{recording.path} has no {wanted}; it has {', '.join(there)}")
    return wanted
