"""Stands between a kubelet and its plugins, passes everything on, and writes it down."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, Self

import grpc
from google.protobuf.message import DecodeError

from devicemanager.core.api.deviceplugin import PLUGIN_DIRECTORY
from devicemanager.io.temporary import ADVICE, NoDirectory, short_directory
from devicemanager.io.watch import ChangeKind, DirectoryWatch
from devicemanager.plugin.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.notifier import Notifier
from devicemanager.plugin.recording.calls import EndedBy
from devicemanager.plugin.recording.errors import RecordingError
from devicemanager.plugin.recording.forwarding import (
    CHANNEL_OPTIONS,
    SERVER_OPTIONS,
    Handlers,
    forward,
)
from devicemanager.plugin.recording.messages import REGISTER
from devicemanager.plugin.recording.places import InPlace, Place, PrivateDirectory
from devicemanager.plugin.recording.redaction import Redaction
from devicemanager.plugin.recording.relay import Relay
from devicemanager.plugin.recording.relays import Relays
from devicemanager.plugin.recording.writer import (
    CallInProgress,
    RecordingWriter,
    Registered,
    open_new,
)
from podresources import sockets
from podresources.errors import PodResourcesError
from podresources.sockets import FileIdentity
from protos import deviceplugin_v1beta1 as dp

__all__ = ["Recorder"]

_log = logging.getLogger(__name__)

_RECHECK = 2.0
_SOON = 0.1
_WORKERS = 16
_GRACE = 0.2
_SERVED_SECONDS = 1.0
"""How long a registration waits for the plugin to serve before the kubelet hears of it."""
_SOCKET_CHANGES = (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED)


class Recorder:
    """Records what a kubelet and the plugins of ``plugin_dir`` say to each other.

    Plugins that register in ``plugin_dir`` are registered with the kubelet of
    ``kubelet_dir``, which finds them under the same names. Without ``plugin_dir`` that is a
    new directory, which goes with ``stop``. With ``in_place`` there is none: the recorder
    takes the place of the kubelet's socket, and every plugin of the node registers anew, with
    it; at the end the kubelet's socket is put back. ``file`` is a path that must not exist
    yet, or a text file. ``resources``: only these are recorded; the others are passed on all
    the same. ``redact_env``: regular expressions; values of environment variables whose names
    match one are not written. ``report`` is called with a line for people about what happens.

    Both sides may restart at any time: what the kubelet does to its directory the plugins see
    in theirs, and the other way round. A context manager: entering starts, leaving stops.
    Raises RecordingError.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | IO[str],
        kubelet_dir: str | os.PathLike[str] = PLUGIN_DIRECTORY,
        plugin_dir: str | os.PathLike[str] | None = None,
        *,
        in_place: bool = False,
        resources: Collection[str] = (),
        redact_env: Iterable[str] = (),
        report: Callable[[str], object] = _log.info,
    ) -> None:
        directory = Path(kubelet_dir).absolute()
        private = None if plugin_dir is None else Path(plugin_dir).absolute()
        if in_place and private is not None:
            raise RecordingError("a recorder is in place, or plugins have a directory: not both")
        for path in filter(None, (directory, private)):
            if not path.is_dir():
                raise RecordingError(f"{path} is not a directory: name one that kubelets serve")
        if private == directory:
            raise RecordingError(f"{directory} is the kubelet's own: plugins need another one")
        self._temporary = None
        if private is None and not in_place:
            try:
                private = self._temporary = short_directory()
            except NoDirectory as error:
                text = f"{error}: give the plugins a directory, or {ADVICE}"
                raise RecordingError(text) from error
        self._kubelet_dir = directory
        self._resources = frozenset(resources)
        self._redaction = Redaction(redact_env)
        self._report = report
        self._file = file
        try:
            self._place: Place = (
                InPlace(directory) if private is None else PrivateDirectory(directory, private)
            )
        except (PodResourcesError, OSError) as error:
            raise RecordingError(str(error)) from error
        self._numbers = itertools.count(1)
        self._changed = Notifier()
        self._watches = [
            DirectoryWatch(path, lambda _change: self._changed.notify(), _SOCKET_CHANGES)
            for path in sorted({directory, self._place.plugin_dir})
        ]
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="recorder", daemon=True)
        self._pool = DaemonThreadPoolExecutor(_WORKERS, "registrations")
        # Only the keeper, and who starts and stops it, use the three below.
        self._server: grpc.Server | None = None
        self._kubelet: FileIdentity | None = None
        self._kubelets = 0
        self._relays = Relays(removes_plugins=self._place.removes_plugins)

    @property
    def plugin_dir(self) -> Path:
        """Where plugins register to be recorded."""
        return self._place.plugin_dir

    @property
    def calls(self) -> int:
        """How many lines were recorded: calls, lists, and ends of streams."""
        return self._writer.calls

    def start(self) -> Self:
        """Record from now on. Raises RecordingError: the file is there already or cannot be
        made, or the directory cannot be written to."""
        if isinstance(self._file, (str, os.PathLike)):
            try:
                self._stream: IO[str] = open_new(self._file)
            except FileExistsError as error:
                raise RecordingError(f"{self._file} exists: name another file") from error
            except OSError as error:
                raise RecordingError(f"cannot write {self._file}: {error.strerror}") from error
        else:
            self._stream = self._file
        self._writer = RecordingWriter(
            self._stream, str(self._kubelet_dir), self._redaction, self._cannot_write
        )
        for watch in self._watches:
            watch.ensure()
        try:
            self._look()
        except (RecordingError, PodResourcesError, OSError, RuntimeError) as error:
            self._end()
            raise RecordingError(f"cannot stand in for the kubelet: {error}") from error
        if self._kubelet is None:
            self._report(f"waiting for a kubelet that serves {self._kubelet_dir}")
        self._keeper.start()
        return self

    def stop(self) -> None:
        """Leave: the plugins' streams end, and what was under way is written. Stopping twice
        does nothing. Raises RecordingError if the recording could not be written whole."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._changed.notify()
        self._keeper.join()
        self._end()
        if self._writer.error is not None:
            raise RecordingError(
                f"the recording is not whole: {self._writer.error.strerror or self._writer.error}"
            )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    # -- the kubelet's comings and goings ------------------------------------------------

    def _keep(self) -> None:
        complaint = ""
        while not self._stopping.is_set():
            seen = self._changed.count
            pause = _RECHECK
            try:
                for watch in self._watches:
                    watch.ensure()
                self._look()
                complaint = ""
            except (RecordingError, PodResourcesError, OSError, RuntimeError) as error:
                pause = _SOON
                if str(error) != complaint:
                    complaint = str(error)
                    self._report(f"cannot stand in for the kubelet now: {error}")
            if self._kubelet is None:
                # A socket that is there and not served yet brings no further event.
                pause = _SOON
            self._changed.wait(seen, pause)

    def _look(self) -> None:
        kubelet = self._place.kubelet()
        if kubelet != self._kubelet:
            self._leave()
            self._relays.mirror()
            if kubelet is not None:
                self._kubelets += 1
                self._serve()
            self._kubelet = kubelet
            self._report(
                f"the kubelet of {self._kubelet_dir} "
                + ("has gone" if kubelet is None else f"serves; plugins: {self.plugin_dir}")
            )
        self._relays.mirror()

    def _serve(self) -> None:
        server = grpc.server(
            self._pool.for_grpc(), handlers=[Handlers(self._answer)], options=SERVER_OPTIONS
        )
        try:
            self._place.serve(server)
        except BaseException:
            server.stop(None)
            raise
        self._server = server

    def _leave(self) -> None:
        server, self._server = self._server, None
        self._relays.kubelet_leaves()
        self._place.leave()
        if server is not None:
            server.stop(_GRACE).wait()

    def _end(self) -> None:
        # Before the plugins notice: what they do because we leave is no part of it.
        self._writer.close()
        self._leave()
        for watch in self._watches:
            watch.stop()
        self._relays.close()
        self._pool.close()
        if self._stream is not self._file:
            self._stream.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    # -- registrations ---------------------------------------------------------------

    def _answer(
        self, method: str, request: bytes, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        rpc = method.rpartition("/")[2]
        message = _register_request(request) if rpc == REGISTER else dp.RegisterRequest()
        plugin = Registered(
            self._kubelets, next(self._numbers), message.resource_name, message.endpoint
        )
        recorded = not self._resources or plugin.resource in self._resources
        call = self._writer.begin(plugin, rpc, request) if recorded else None
        if _is_file_name(message.endpoint):
            message.endpoint = self._stand_in(plugin, recorded)
            if message.endpoint != plugin.plugin:
                request = message.SerializeToString()
        self._report(f"{plugin.resource or rpc} registers as {plugin.plugin}")
        channel = grpc.insecure_channel(sockets.target(self._place.upward), options=CHANNEL_OPTIONS)
        try:
            yield from forward(
                channel,
                method,
                request,
                context,
                call,
                lambda: EndedBy.KUBELET,
                EndedBy.PLUGIN,
            )
        finally:
            channel.close()

    def _stand_in(self, plugin: Registered, recorded: bool) -> str:
        """Serve the plugin's front; returns the endpoint that the kubelet is told."""
        front = self._place.front(plugin.plugin)

        def begin(rpc: str, request: bytes) -> CallInProgress | None:
            return self._writer.begin(plugin, rpc, request) if recorded else None

        relay = Relay(self.plugin_dir / plugin.plugin, front, begin)
        self._relays.add(relay)
        relay.open()
        relay.opened.wait(_SERVED_SECONDS)
        if relay.error:
            self._report(f"{plugin.resource} cannot be recorded: {relay.error}")
        return front.name

    def _cannot_write(self, error: OSError) -> None:
        self._report(f"the recording cannot be written any more: {error.strerror or error}")


def _register_request(request: bytes) -> dp.RegisterRequest:
    try:
        return dp.RegisterRequest.FromString(request)
    except DecodeError:
        return dp.RegisterRequest()


def _is_file_name(endpoint: str) -> bool:
    return (
        bool(endpoint)
        and "/" not in endpoint
        and "\0" not in endpoint
        and endpoint not in (".", "..")
    )
