"""Recorder: puts a proxy in front of each driver of a kubelet.

One thread watches ``plugins_registry``. File events wake it, and it also checks the sockets every
two seconds. Calls run on gRPC's threads.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import IO, Self

import grpc

from devicemanager.core.api.deviceplugin import PLUGINS_REGISTRY_DIRECTORY
from devicemanager.driver.recording.recorded_driver import RecordedDriver, restore_after_crash
from devicemanager.driver.sockets import DRA_PLUGIN
from devicemanager.io.watch import ChangeKind, DirectoryWatch
from devicemanager.plugin.common.notifier import Notifier
from devicemanager.plugin.common.stepping import repeat_step
from devicemanager.plugin.recording.errors import RecordingError
from devicemanager.plugin.recording.redaction import Redaction
from devicemanager.plugin.recording.writer import RecordingWriter, Registered
from podresources.sockets import CHANNEL_OPTIONS, FileIdentity, target
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc

__all__ = ["DriverRecorder"]

_log = logging.getLogger(__name__)

_RECHECK, _RETRY = 2.0, 0.1
_INFO_SECONDS = 1.0
"""The kubelet's timeout for GetInfo, in seconds."""
_SOCKET_CHANGES = (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED)


class DriverRecorder:
    """Recorder of all calls between a kubelet and its DRA drivers. A context manager.

    ``file`` is a path that must not exist, or an open text file. ``registrar_dir`` is the
    kubelet's directory ``plugins_registry``. Only ``drivers`` are recorded (default: all).
    ``report`` is called with a line of text when a driver registers or stops, and for each error.

    Kubelet and drivers can restart at any time. The constructor raises RecordingError for a
    missing directory.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | IO[str],
        registrar_dir: str | os.PathLike[str] = PLUGINS_REGISTRY_DIRECTORY,
        *,
        drivers: Collection[str] = (),
        report: Callable[[str], object] = _log.info,
    ) -> None:
        self._directory = Path(registrar_dir).absolute()
        if not self._directory.is_dir():
            raise RecordingError(
                f"{self._directory} is not a directory: use the kubelet's plugins_registry"
            )
        self._drivers = frozenset(drivers)
        self._report = report
        self._numbers = itertools.count(1)
        self._changed = Notifier()
        self._watch = DirectoryWatch(
            self._directory, lambda change: self._changed.notify(), _SOCKET_CHANGES
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._writer = RecordingWriter(
            file, str(self._directory), Redaction(()), self._cannot_write
        )
        self._recorded: dict[Path, RecordedDriver] = {}
        self._ignored: dict[Path, FileIdentity | None] = {}
        """Identity of each socket that is not recorded, by path: sockets of device plugins, and of
        DRA drivers that the caller did not select."""

    @property
    def calls(self) -> int:
        """Number of recorded calls, health reports and ends of streams so far."""
        return self._writer.calls

    def start(self) -> Self:
        """Start recording.

        Raises RecordingError if the file exists or cannot be created, if the sockets that a killed
        recorder renamed cannot be renamed back, or if the recorder was started or stopped before.
        """
        self._writer.check_new()
        try:
            # Before the file is created, so that an error leaves none behind.
            self._restore()
            self._writer.open()
            self._thread.start()
        except BaseException:
            self._end()
            raise
        return self

    def _restore(self) -> None:
        try:
            restore_after_crash(self._directory)
        except OSError as error:
            raise RecordingError(
                f"cannot restore the sockets of {self._directory}: {error.strerror or error}"
            ) from error

    def stop(self) -> None:
        """Stop recording, and rename the drivers' registration sockets back. Idempotent.

        Raises RecordingError if the recording is incomplete.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._changed.notify()
        # Wait for the thread: it could add a driver while ``_end`` closes them.
        if self._thread.is_alive():
            self._thread.join()
        self._end()
        self._writer.check_complete()

    def _end(self) -> None:
        # After a failed start, too: the watch has ended.
        self._stopping.set()
        self._watch.stop()
        # Do this first: calls that the kubelet makes because the recorder stops must not be
        # recorded.
        self._writer.close()
        for driver in self._recorded.values():
            driver.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    # -- sockets ---------------------------------------------------------------------

    def _run(self) -> None:
        repeat_step(self._step, self._changed, self._stopping.is_set, self._failed)

    def _failed(self, error: OSError) -> float:
        self._report(f"cannot record: {error}")
        return _RECHECK

    def _step(self) -> float:
        self._watch.ensure()
        # First remove drivers that have stopped. If a driver has restarted, the second loop can
        # then add its new socket under the same path.
        for path, driver in list(self._recorded.items()):
            if driver.is_gone():
                del self._recorded[path]
                driver.close()
                self._report(f"{driver.name} has stopped")
        for path in sorted(self._directory.iterdir()):
            # A leading dot marks renamed sockets, and sockets without their final name.
            if path not in self._recorded and not path.name.startswith(".") and path.is_socket():
                self._add(path)
        return _RECHECK

    def _add(self, path: Path) -> None:
        identity = FileIdentity.of(path)
        # Do not call this socket again in each step. A new socket at the path has another identity.
        if self._ignored.get(path) == identity:
            return
        info = _info(path)
        if info is None:
            # The socket is not served yet, or not any more.
            return
        if info.type != DRA_PLUGIN or (self._drivers and info.name not in self._drivers):
            self._ignored[path] = identity
            return
        registered = Registered(1, next(self._numbers), info.name, path.name)
        self._recorded[path] = RecordedDriver(path, info, partial(self._writer.begin, registered))
        self._report(f"{info.name} registers as {path.name}")

    def _cannot_write(self, error: OSError) -> None:
        self._report(f"cannot write the recording: {error.strerror or error}; recording stops")


def _info(path: Path) -> pr.PluginInfo | None:
    """Return a registration socket's response to GetInfo; None without a response."""
    with grpc.insecure_channel(target(path), options=CHANNEL_OPTIONS) as channel:
        stub = pluginregistration_v1_grpc.RegistrationStub(channel)
        with contextlib.suppress(grpc.RpcError):
            return stub.GetInfo(pr.InfoRequest(), timeout=_INFO_SECONDS)
    return None
