"""One resource: run its start hook, serve, register, and repeat when the kubelet restarts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import attrs

from devicemanager.io.retry import retry
from devicemanager.plugin.author import Plugin
from devicemanager.plugin.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.hooks import call_hook
from devicemanager.plugin.modes import registration_mode
from devicemanager.plugin.notifier import Notifier
from devicemanager.plugin.reconcile import Action, Observation, decide
from devicemanager.plugin.server import PluginServer
from devicemanager.plugin.service import Service
from devicemanager.plugin.session import Session
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.sockets import socket_names
from devicemanager.plugin.source import DeviceSource
from devicemanager.plugin.streams import Streams

__all__ = ["Resource", "ResourceState", "ResourceStatus", "ServiceFactory"]

_log = logging.getLogger(__name__)

_CLEARED = 0.02

ServiceFactory = Callable[[Plugin, PluginSettings, Streams], Service]
"""Makes the service of one server."""


class ResourceState(Enum):
    """How far a resource has come."""

    STARTING = "starting"
    WAITING = "waiting for the kubelet"
    SERVING = "serving"
    REGISTERED = "registered"
    FAILED = "failed"
    STOPPED = "stopped"


@attrs.frozen
class ResourceStatus:
    """``registrations`` counts those that the kubelet accepted; ``endpoint`` is the file
    name of the socket, ``streams`` the number of open list streams."""

    name: str
    state: ResourceState
    endpoint: str | None
    registrations: int
    streams: int


class Resource:
    """One plugin under one resource name, on a thread of its own.

    Only that thread uses the session; other threads set a flag and notify it.
    """

    def __init__(
        self,
        name: str,
        plugin: Plugin,
        directory: Path,
        settings: PluginSettings,
        *,
        on_change: Callable[[], None],
        before_look: Callable[[], None],
        socket_name: str | None = None,
        service: ServiceFactory = Service,
    ) -> None:
        """``on_change`` is told of each new state, ``before_look`` of each look at the sockets
        that is about to be taken."""
        self.name = name
        self.plugin = plugin
        self.notifier = Notifier()
        self._directory = directory
        self._mode = registration_mode(directory, name, settings)
        self._settings = settings
        self._on_change = on_change
        self._before_look = before_look
        self._socket_name = socket_name or name
        self._make_service = service
        self._pool = DaemonThreadPoolExecutor(settings.workers, f"calls of {name}")
        self._source = DeviceSource(name, plugin, settings)
        self._thread = threading.Thread(target=self._run, name=f"resource {name}", daemon=True)
        self._session: Session | None = None
        self._registrations = 0
        self._short_lives = 0
        self._state = ResourceState.STARTING
        self._complaint = ""
        # Made here, on one thread, before several can ask for them.
        self._stopping = plugin.stopping
        self._devices = plugin.device_list

    @property
    def status(self) -> ResourceStatus:
        session = self._session
        server = session.server if session else None
        return ResourceStatus(
            name=self.name,
            state=self._state,
            endpoint=server.endpoint if server else None,
            registrations=self._registrations,
            streams=server.service.streams.counts.open if server else 0,
        )

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopping.set()
        self._devices.notify_streams()
        self.notifier.notify()

    def join(self, timeout: float) -> bool:
        """Wait for the end after :meth:`ask_to_stop`. False if it takes longer."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            if self._call_start():
                # Call stop() after a successful start(), even if nothing was served.
                if not self._stopping.is_set():
                    self._source.start()
                    self._live()
                self._call_stop()
                self._enter(ResourceState.STOPPED)
        except Exception:
            _log.exception("%s: given up", self.name)
            self._end_session()
            self._enter(ResourceState.FAILED)
        finally:
            self._pool.close()

    def _live(self) -> None:
        self._devices.wait_published(self._settings.first_list_wait, self._stopping.is_set)
        while not self._stopping.is_set():
            seen = self.notifier.count
            try:
                pause = self._step()
            except FileNotFoundError:
                # A starting kubelet clears the directory, our half-made socket included.
                pause = _CLEARED
            except OSError as error:
                self._complain(str(error))
                pause = self._settings.register_backoff
            if pause:
                self.notifier.wait(seen, pause)
        self._end_session()
        self._source.join(self._settings.stop_grace)

    def _step(self) -> float:
        """Observe, decide and act. Return the seconds until the next observation."""
        self._before_look()
        decision = decide(self._look(), self._settings)
        if decision.step is Action.SERVE:
            _log.info("%s: %s", self.name, decision.reason)
            self._serve()
        elif decision.step is Action.REGISTER:
            self._register()
        elif decision.step is Action.IDLE:
            self._end_session()
            if self._state is not ResourceState.WAITING:
                # Without a logging set-up only warnings appear: warn at the first wait.
                first = self._state is ResourceState.STARTING
                level = logging.WARNING if first else logging.INFO
                text = "%s: waiting for a kubelet: there is no %s"
                _log.log(level, text, self.name, self._mode.path)
            self._enter(ResourceState.WAITING)
        return decision.timeout

    def _look(self) -> Observation:
        if self._session is not None:
            return self._session.look(self._short_lives)
        return Observation(now=time.monotonic(), kubelet=self._mode.kubelet())

    def _serve(self) -> None:
        old = self._session
        self._end_session()
        kubelet = self._mode.kubelet()
        if kubelet is None:
            return
        # A kubelet that still knows our old path may reject it for good (Q2).
        again = old is not None and old.kubelet_identity == kubelet
        self._short_lives = self._short_lives + 1 if again and old and old.was_short else 0
        names = socket_names(
            self._socket_name, str(self._directory), unique=again or self._settings.unique_socket
        )
        streams = Streams(self._settings.max_streams, self._streams_changed)
        service = self._make_service(self.plugin, self._settings, streams)
        server = PluginServer(self._directory, names, service, self._pool, self._mode.add_to)
        self._session = Session(
            self.name, server, self._mode, kubelet, self._settings, self.notifier
        )
        self._complaint = ""
        self._enter(ResourceState.SERVING)

    def _register(self) -> None:
        assert self._session is not None
        if self._session.register(self._stopping.is_set):
            self._registrations += 1
            _log.info("%s: registered as %s", self.name, self._session.server.endpoint)
            self._enter(ResourceState.REGISTERED)

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _streams_changed(self) -> None:
        self._devices.notify_streams()
        self.notifier.notify()
        self._on_change()

    def _call_start(self) -> bool:
        """Run the author's start hook, with the retries of kubevirt's dpm."""
        try:
            retry(
                self._start_once,
                Exception,
                sleep=self._stopping.wait,
                first_wait=self._settings.start_delay,
                longest_wait=self._settings.start_delay,
                attempts=self._settings.start_attempts,
                stopping=self._stopping.is_set,
            )
        except Exception:
            if self._stopping.is_set():
                self._enter(ResourceState.STOPPED)
            else:
                _log.error("%s: start() failed too often: not served", self.name)
                self._enter(ResourceState.FAILED)
            return False
        return True

    def _start_once(self) -> None:
        try:
            call_hook(self.plugin.start)
        except Exception:
            _log.exception("%s: start() failed", self.name)
            raise

    def _call_stop(self) -> None:
        try:
            call_hook(self.plugin.stop)
        except Exception:
            _log.exception("%s: stop() failed", self.name)

    def _enter(self, state: ResourceState) -> None:
        self._state = state
        self._on_change()

    def _complain(self, text: str) -> None:
        # Log each text once: an unwritable directory is tried every second.
        if text != self._complaint:
            self._complaint = text
            _log.error("%s: cannot serve: %s", self.name, text)
