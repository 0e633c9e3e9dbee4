"""Recorder: a proxy that records all calls between a kubelet and its plugins.

One thread (``_run``) checks the sockets of the kubelet and the plugins. While a kubelet runs, the
thread serves the Registration service for the plugins. If a socket was removed on one side, it
removes the socket on the other side, too. File events only wake this thread; it also checks the
sockets every two seconds. Calls run on gRPC's threads.
"""

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
from devicemanager.plugin.common.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.common.notifier import Notifier
from devicemanager.plugin.recording.calls import REGISTER, EndedBy
from devicemanager.plugin.recording.errors import RecordingError
from devicemanager.plugin.recording.layout import InPlace, PrivateDirectory, SocketLayout
from devicemanager.plugin.recording.proxy import (
    CHANNEL_OPTIONS,
    SERVER_OPTIONS,
    AnyMethodHandler,
    PluginProxies,
    PluginProxy,
    forward,
)
from devicemanager.plugin.recording.redaction import Redaction
from devicemanager.plugin.recording.writer import (
    CallInProgress,
    RecordingWriter,
    Registered,
)
from podresources import sockets
from podresources.errors import PodResourcesError
from podresources.sockets import FileIdentity
from protos import deviceplugin_v1beta1 as dp

__all__ = ["Recorder"]

_log = logging.getLogger(__name__)

_RECHECK = 2.0
_RETRY = 0.1
_WORKERS = 16
_GRACE = 0.2
_SERVED_SECONDS = 1.0
"""Maximum seconds that a registration waits for the plugin's socket before it is forwarded."""
_SOCKET_CHANGES = (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED)


class Recorder:
    """Recorder of all calls between a kubelet and the plugins that register in ``plugin_dir``.

    The recorder registers these plugins with the kubelet of ``kubelet_dir``, under the same
    resource names. With ``in_place``, the recorder replaces the kubelet's socket until ``stop``,
    and all plugins of the node register with the recorder. Without ``plugin_dir`` and ``in_place``,
    the recorder creates a plugin directory and removes it in ``stop``.

    ``file`` is the path of a file to create, or an open text file. ``resources`` are the names of
    the resources whose plugins are recorded (default: all); calls of other plugins are only
    forwarded. ``redact_env``: regular expressions; values of environment variables with a matching
    name are not written. ``report`` is called with a line of text for each start and stop of the
    kubelet, each registration and each problem.

    Kubelet and plugins can restart at any time: sockets that are removed on one side are removed on
    the other side. A context manager: entering it starts recording, leaving it stops. The
    constructor raises RecordingError for invalid arguments.
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
        # Check everything before a directory or file is created, so that an error leaves none
        # behind.
        if in_place and private is not None:
            raise RecordingError("use either in_place or plugin_dir, not both")
        for path in filter(None, (directory, private)):
            if not path.is_dir():
                raise RecordingError(f"{path} is not a directory: use an existing plugin directory")
        if private == directory:
            raise RecordingError(
                f"{directory} is the kubelet's directory: use another directory for plugin_dir"
            )
        # Use a short path, because the path of a socket can have at most 107 bytes.
        self._temporary = None
        if private is None and not in_place:
            try:
                private = self._temporary = short_directory()
            except NoDirectory as error:
                raise RecordingError(f"{error}: set a plugin directory, or {ADVICE}") from error
        self._kubelet_dir = directory
        self._resources = frozenset(resources)
        self._report = report
        try:
            self._layout: SocketLayout = (
                InPlace(directory) if private is None else PrivateDirectory(directory, private)
            )
        except (PodResourcesError, OSError) as error:
            raise RecordingError(str(error)) from error
        self._numbers = itertools.count(1)
        self._changed = Notifier()
        self._watches = [
            DirectoryWatch(path, lambda _change: self._changed.notify(), _SOCKET_CHANGES)
            # With `in_place`, both directories are the same and need only one watch.
            for path in sorted({directory, self._layout.plugin_dir})
        ]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._pool = DaemonThreadPoolExecutor(_WORKERS, "registrations")
        # Used by the recorder's thread, and by start() and stop() while that thread does not run.
        self._server: grpc.Server | None = None
        self._kubelet: FileIdentity | None = None
        self._kubelets = 0
        self._writer = RecordingWriter(
            file, str(directory), Redaction(redact_env), self._cannot_write
        )
        self._proxies = PluginProxies(removes_plugins=self._layout.removes_plugins)

    @property
    def plugin_dir(self) -> Path:
        """Directory in which plugins must register to be recorded."""
        return self._layout.plugin_dir

    @property
    def calls(self) -> int:
        """Number of recorded entries so far: unary calls, stream messages and ends of streams."""
        return self._writer.calls

    def start(self) -> Self:
        """Start to record, and return this recorder.

        Raises RecordingError if the file exists or cannot be created, if the plugin directory is
        not writable, or if the recorder was started or stopped before.
        """
        self._writer.check_new()
        try:
            self._writer.open()
        except BaseException:
            self._end()
            raise
        for watch in self._watches:
            watch.ensure()
        try:
            # Run on the caller's thread, so that `start` raises an error for a directory that is
            # not writable. Later, such an error is only reported, because it can be temporary.
            self._follow_kubelet()
        except (RecordingError, PodResourcesError, OSError, RuntimeError) as error:
            # The recorder's thread does not run yet, so this method must clean up.
            self._end()
            raise RecordingError(f"cannot serve the recorder's socket: {error}") from error
        if self._kubelet is None:
            self._report(f"waiting for a kubelet in {self._kubelet_dir}")
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop recording: write the calls in progress, then end the plugins' streams. Idempotent.

        Raises RecordingError if the recording is incomplete.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._end()
        self._writer.check_complete()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    # -- starts and stops of the kubelet -------------------------------------------------

    def _run(self) -> None:
        reported = ""
        while not self._stopping.is_set():
            # Read before the observation, so that a change during the observation ends the wait.
            seen = self._changed.count
            pause = _RECHECK
            try:
                for watch in self._watches:
                    watch.ensure()
                self._follow_kubelet()
                reported = ""
            except (RecordingError, PodResourcesError, OSError, RuntimeError) as error:
                pause = _RETRY
                # Report each problem once, although the attempt is repeated ten times per second.
                if str(error) != reported:
                    reported = str(error)
                    self._report(f"cannot serve the recorder's socket now: {error}")
            if self._kubelet is None:
                # A socket exists before it is served, and serving it causes no file event.
                pause = _RETRY
            self._changed.wait(seen, pause)

    def _follow_kubelet(self) -> None:
        kubelet = self._layout.kubelet()
        if kubelet != self._kubelet:
            # If a new kubelet has already replaced the socket, plugins must still see that the old
            # kubelet stopped. Otherwise they would keep their connections to the old kubelet.
            self._leave()
            self._proxies.mirror()
            if kubelet is not None:
                self._kubelets += 1
                self._serve()
            self._kubelet = kubelet
            self._report(
                f"the kubelet of {self._kubelet_dir} "
                + ("has stopped" if kubelet is None else f"runs; plugins: {self.plugin_dir}")
            )
        self._proxies.mirror()

    def _serve(self) -> None:
        server = grpc.server(
            self._pool.for_grpc(),
            handlers=[AnyMethodHandler(self._register)],
            options=SERVER_OPTIONS,
        )
        # Even a server that was not started has threads, which only `stop` ends.
        try:
            self._layout.serve(server)
        except BaseException:
            server.stop(None)
            raise
        self._server = server

    def _leave(self) -> None:
        server, self._server = self._server, None
        # Call this before the sockets change, because plugins react to the change immediately.
        self._proxies.kubelet_leaves()
        self._layout.leave()
        if server is not None:
            server.stop(_GRACE).wait()

    def _end(self) -> None:
        # After a failed start, too: the pool and the temporary directory are gone.
        self._stopping.set()
        # Close the writer first: calls that plugins make because the recorder stops must not be
        # recorded.
        self._writer.close()
        self._leave()
        for watch in self._watches:
            watch.stop()
        self._proxies.close()
        self._pool.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    # -- registrations ---------------------------------------------------------------

    def _register(
        self, method: str, request: bytes, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """Forward a plugin's call to the kubelet; replace the endpoint in Register by a proxy's."""
        rpc = method.rpartition("/")[2]
        # Forward all methods: a later API version can have more methods than Register.
        message = _register_request(request) if rpc == REGISTER else dp.RegisterRequest()
        plugin = Registered(
            self._kubelets, next(self._numbers), message.resource_name, message.endpoint
        )
        recorded = not self._resources or plugin.resource in self._resources
        call = self._writer.begin(plugin, rpc, request) if recorded else None
        if _is_file_name(message.endpoint):
            message.endpoint = self._serve_proxy(plugin, recorded)
            # Without a change, forward the original bytes, which can have fields of a later API.
            if message.endpoint != plugin.plugin:
                request = message.SerializeToString()
        self._report(f"{plugin.resource or rpc} registers as {plugin.plugin}")
        # Create a channel for each registration: after a kubelet restart, an old channel would
        # wait for its reconnect backoff.
        channel = grpc.insecure_channel(
            sockets.target(self._layout.kubelet_socket), options=CHANNEL_OPTIONS
        )
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

    def _serve_proxy(self, plugin: Registered, recorded: bool) -> str:
        """Start a proxy for the plugin; return the proxy's endpoint for the Register call."""
        path = self._layout.proxy_path(plugin.plugin)

        def begin(rpc: str, request: bytes) -> CallInProgress | None:
            return self._writer.begin(plugin, rpc, request) if recorded else None

        proxy = PluginProxy(self.plugin_dir / plugin.plugin, path, begin)
        self._proxies.add(proxy)
        proxy.open()
        # The kubelet dials the proxy for up to 10 s. Waiting for a second avoids its log lines
        # about a plugin that is not served yet.
        proxy.opened.wait(_SERVED_SECONDS)
        if proxy.error:
            self._report(f"{plugin.resource} cannot be recorded: {proxy.error}")
        return path.name

    def _cannot_write(self, error: OSError) -> None:
        self._report(f"cannot write the recording: {error.strerror or error}; recording stops")


def _register_request(request: bytes) -> dp.RegisterRequest:
    try:
        return dp.RegisterRequest.FromString(request)
    except DecodeError:
        # Forward the request unchanged, so that the kubelet rejects it with its own text.
        return dp.RegisterRequest()


def _is_file_name(endpoint: str) -> bool:
    # An endpoint such as `../x` would be outside the directory. Forward it without a proxy: the
    # kubelet checks endpoints.
    return (
        bool(endpoint)
        and "/" not in endpoint
        and "\0" not in endpoint
        and endpoint not in (".", "..")
    )
