"""Maintain a driver's sockets: serve them again if a socket file was removed.

A restarted kubelet finds the existing sockets without help. But the kubelet's directory can be
recreated, and another program can remove a socket.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from devicemanager.driver.sockets import DriverSockets
from devicemanager.io.watch import ChangeKind, DirectoryWatch
from devicemanager.plugin.common.notifier import Notifier
from devicemanager.plugin.common.stepping import repeat_step
from devicemanager.plugin.reconcile import Action, Observation, decide
from devicemanager.plugin.settings import PluginSettings
from podresources.sockets import FileIdentity

__all__ = ["SocketKeeper"]

_log = logging.getLogger(__name__)

# A constant, because the real identity of the directory changes with each file in it.
_KUBELET = FileIdentity(0, 0, 0)
_CHANGES = (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED)


class SocketKeeper:
    """Thread that serves the sockets of a driver, and serves them again if they are removed."""

    def __init__(
        self, sockets: DriverSockets, registrar_dir: Path, stopping: threading.Event
    ) -> None:
        self._sockets = sockets
        self._registrar_dir = registrar_dir
        self._stopping = stopping
        # A driver has no ListAndWatch streams, so only check the sockets.
        self._settings = PluginSettings(stream_wait=None)
        self._notifier = Notifier()
        self._watch = DirectoryWatch(
            registrar_dir, lambda change: self._notifier.notify(), _CHANGES
        )
        self._is_served = False
        self._logged = ""
        self._thread = threading.Thread(target=self._run, name="driver sockets", daemon=True)

    def start(self) -> None:
        """Serve the sockets, now or as soon as the kubelet's directory exists."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, and wait for the thread.

        The caller must first set the event ``stopping`` that it passed to the constructor.
        """
        # The thread waits for the notifier, and not for the event ``stopping``.
        self._notifier.notify()
        # Wait before the sockets are stopped: the thread could serve them again.
        if self._thread.is_alive():
            self._thread.join()
        self._watch.stop()
        self._sockets.stop()

    def _run(self) -> None:
        repeat_step(self._step, self._notifier, self._stopping.is_set, self._cannot_serve)

    def _step(self) -> float:
        # Watch before looking: a removal between these two lines then causes another step.
        self._watch.ensure()
        decision = decide(self._observe(), self._settings)
        if decision.step is Action.SERVE:
            self._serve(decision.reason)
        elif decision.step is Action.IDLE:
            self._complain(f"waiting for a kubelet: there is no {self._registrar_dir}")
        return decision.timeout

    def _observe(self) -> Observation:
        now = time.monotonic()
        return Observation(
            now=now,
            kubelet=_KUBELET if self._registrar_dir.is_dir() else None,
            served_kubelet=_KUBELET if self._is_served else None,
            own_socket=self._sockets.are_reachable(),
            # The kubelet registers the driver. Nothing remains to do after serving.
            registered_at=now,
        )

    def _serve(self, reason: str) -> None:
        _log.info("%s: serving: %s", self._sockets.driver, reason)
        self._sockets.stop()
        self._sockets.start()
        self._is_served = True
        self._logged = ""

    def _cannot_serve(self, error: OSError) -> float:
        self._complain(f"cannot serve: {error}")
        return self._settings.register_backoff

    def _complain(self, text: str) -> None:
        """Log a text, unless it was the last one logged."""
        if text != self._logged:
            self._logged = text
            _log.warning("%s: %s", self._sockets.driver, text)
