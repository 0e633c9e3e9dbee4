"""Run the plugin of one resource: call its ``start``, then serve and register it.

The plugin gets a new server and registration for each kubelet instance (``Session``).

The resource's thread repeats three steps: observe the sockets and streams, choose the next action
(``reconcile.decide``), and execute the action. Only this thread changes the session. Other threads
set a flag and notify this thread.
"""

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
from devicemanager.plugin.common.consume import consume
from devicemanager.plugin.common.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.common.hooks import call_hook
from devicemanager.plugin.common.notifier import Notifier
from devicemanager.plugin.common.sockets import socket_names
from devicemanager.plugin.common.stepping import repeat_step
from devicemanager.plugin.reconcile import Action, Observation, decide
from devicemanager.plugin.registration import registration_mode
from devicemanager.plugin.server import PluginServer
from devicemanager.plugin.service import Service
from devicemanager.plugin.session import Session
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.streams import Streams

__all__ = ["Resource", "ResourceState", "ResourceStatus", "ServiceFactory"]

_log = logging.getLogger(__name__)

ServiceFactory = Callable[[Plugin, PluginSettings, Streams], Service]
"""Function that creates the DevicePlugin service of one server."""


class ResourceState(Enum):
    """State of a resource that a plugin serves, such as waiting for the kubelet, or registered."""

    STARTING = "starting"
    WAITING = "waiting for the kubelet"
    SERVING = "serving"
    REGISTERED = "registered"
    FAILED = "failed"
    STOPPED = "stopped"


@attrs.frozen
class ResourceStatus:
    """Current status of a resource that a plugin serves: its state, socket and counters.

    ``registrations`` counts the registrations that kubelets accepted. ``endpoint`` is the file
    name of the socket; None: the resource is not served. ``streams`` is the number of open
    ListAndWatch streams.
    """

    name: str
    state: ResourceState
    endpoint: str | None
    registrations: int
    streams: int


class Resource:
    """Plugin that is served under one resource name, on its own thread."""

    def __init__(
        self,
        name: str,
        plugin: Plugin,
        directory: Path,
        settings: PluginSettings,
        *,
        on_change: Callable[[], None],
        before_observation: Callable[[], None],
        socket_name: str | None = None,
        service: ServiceFactory = Service,
    ) -> None:
        """Create the resource without starting it.

        ``on_change`` is called after each change of state. ``before_observation`` is called before
        each check of the kubelet's and the plugin's socket.
        """
        self.name = name
        self.plugin = plugin
        self.notifier = Notifier()
        self._directory = directory
        self._mode = registration_mode(directory, name, settings)
        self._settings = settings
        self._on_change = on_change
        self._before_observation = before_observation
        self._socket_name = socket_name or name
        self._make_service = service
        self._pool = DaemonThreadPoolExecutor(settings.workers, f"calls of {name}")
        self._thread = threading.Thread(target=self._run, name=f"resource {name}", daemon=True)
        # Read by `status` on other threads, written only by the resource's thread.
        self._session: Session | None = None
        self._registrations = 0
        self._short_streams = 0
        self._state = ResourceState.STARTING
        self._logged = ""
        # Both are cached properties: create them on this thread, before other threads use them.
        self._stopping = plugin.stopping
        self._devices = plugin._device_list
        # This thread outlives kubelets and streams. It is a daemon thread, because the author's
        # generator can ignore `stopping`.
        self._lists = threading.Thread(
            target=consume,
            name=f"devices of {name}",
            args=(
                f"{name}: devices()",
                plugin.devices,
                plugin.update,
                self._stopping,
                settings.list_backoff,
            ),
            daemon=True,
        )

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
        """Ask the resource's thread to stop, without waiting; :meth:`join` waits."""
        self._stopping.set()
        self._devices.notify_streams()
        self.notifier.notify()

    def join(self, timeout: float) -> bool:
        """Wait until the resource's thread has ended; return False after ``timeout`` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            # `_call_start` and `_call_stop` handle exceptions of the author's code. Any other
            # exception is a bug of the framework, which must not affect other resources.
            if self._call_start():
                # Call stop() after a successful start(), even if nothing was served.
                if not self._stopping.is_set():
                    self._lists.start()
                    self._serve_until_stopped()
                self._call_stop()
                self._enter(ResourceState.STOPPED)
        except Exception:
            _log.exception("%s: failed", self.name)
            self._end_session()
            self._enter(ResourceState.FAILED)
        finally:
            self._pool.close()

    def _serve_until_stopped(self) -> None:
        # Without this wait, the kubelet would first see the resource with 0 devices, and reject
        # pods until the real list arrives.
        self._devices.wait_published(self._settings.first_list_wait, self._stopping.is_set)
        repeat_step(self._step, self.notifier, self._stopping.is_set, self._cannot_serve)
        # End the session first, so that the kubelet notices the end of the stream before a slow
        # hook returns.
        self._end_session()
        self._lists.join(self._settings.stop_grace)
        if self._lists.is_alive():
            _log.warning("%s: devices() ignores self.stopping and keeps running", self.name)

    def _step(self) -> float:
        """Observe, decide and act once. Return the seconds until the next observation."""
        self._before_observation()
        decision = decide(self._observe(), self._settings)
        if decision.step is Action.SERVE:
            _log.info("%s: %s", self.name, decision.reason)
            self._serve()
        elif decision.step is Action.REGISTER:
            self._register()
        elif decision.step is Action.IDLE:
            self._end_session()
            if self._state is not ResourceState.WAITING:
                # Logging without configuration shows only warnings, so warn at the first wait.
                first = self._state is ResourceState.STARTING
                level = logging.WARNING if first else logging.INFO
                text = "%s: waiting for a kubelet: there is no %s"
                _log.log(level, text, self.name, self._mode.path)
            self._enter(ResourceState.WAITING)
        return decision.timeout

    def _observe(self) -> Observation:
        if self._session is not None:
            return self._session.observe(self._short_streams)
        return Observation(now=time.monotonic(), kubelet=self._mode.kubelet())

    def _serve(self) -> None:
        # Stop the old server before the new one starts. Otherwise the plain socket name would be
        # in use, and each restart of the kubelet would lead to another random suffix.
        old = self._session
        self._end_session()
        kubelet = self._mode.kubelet()
        if kubelet is None:
            return
        # With the same kubelet, the plugin re-registers because its socket or stream was lost. The
        # kubelet may still know the old path and reject it permanently (Q2), so use a new path.
        again = old is not None and old.kubelet_identity == kubelet
        self._short_streams = self._short_streams + 1 if again and old and old.was_short else 0
        names = socket_names(
            self._socket_name, str(self._directory), unique=again or self._settings.unique_socket
        )
        # Create streams and service for each server, so that a late end of an old stream does not
        # count as the end of a new one.
        streams = Streams(self._settings.max_streams, self._streams_changed)
        service = self._make_service(self.plugin, self._settings, streams)
        server = PluginServer(self._directory, names, service, self._pool, self._mode.add_to)
        self._session = Session(
            self.name, server, self._mode, kubelet, self._settings, self.notifier
        )
        self._logged = ""
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
        # gRPC threads call this method, so it only wakes the threads that must react.
        self._devices.notify_streams()
        self.notifier.notify()
        self._on_change()

    def _call_start(self) -> bool:
        """Call the author's ``start`` method, up to ``start_attempts`` times.

        Return False if all attempts fail or the resource stops.
        """
        try:
            retry(
                # `call_hook` raises HookEnded for errors that are not Exceptions, so one type is
                # enough.
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
                _log.error("%s: not served, because start() keeps failing", self.name)
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

    def _cannot_serve(self, error: OSError) -> float:
        """Log an error and return the pause before the next attempt."""
        text = str(error)
        # Log a repeated text only once: serving in an unwritable directory is retried every second.
        if text != self._logged:
            self._logged = text
            _log.error("%s: cannot serve: %s", self.name, text)
        return self._settings.register_backoff
