"""Executing the faults that are actions: on plugins' streams and sockets, on kubelet.sock,
and on the kubelet's process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventStream
from devicemanager.faults.injection_point import FaultContext
from devicemanager.faults.registry import FaultRegistry
from devicemanager.io.clock import Clock
from devicemanager.kubelet.apiprofile import api_profile
from devicemanager.kubelet.faultyanswers import FaultyAnswers, past_answers
from devicemanager.kubelet.lifecycle import Lifecycle
from devicemanager.kubelet.process import FaultEquipment, KubeletProcess
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.endpoints import EndpointInfo
    from devicemanager.faults.fault import Fault
    from devicemanager.faults.holds import Hold

__all__ = ["FaultActions"]


class _Withdrawn(RequestError):
    """The kubelet was stopped by somebody else meanwhile."""


class FaultActions:
    """Executes actions on whichever process serves. May be called from any thread."""

    def __init__(
        self,
        clock: Clock,
        settings: Settings,
        life: Lifecycle,
        plugin_dir: Path,
        resume: Callable[[KubeletProcess], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """``resume`` is what follows the start of a process that replaces another."""
        self._clock = clock
        self._settings = settings
        self._life = life
        self._plugin_dir = plugin_dir
        self._resume = resume
        self._on_error = on_error
        # Guards the two below.
        self._lock = threading.Lock()
        self._stops = 0
        self._waits: set[Hold] = set()
        self._keeps_sockets = False  # only touched while a process is replaced

    def registry(self, events: EventStream) -> FaultRegistry:
        """The registry whose actions are executed here. Called once."""
        self._faults = FaultRegistry(self._clock, events, self)
        self._answers = FaultyAnswers(self._faults)
        return self._faults

    def equipment(self) -> FaultEquipment:
        """What the process that starts now needs."""
        keeps, self._keeps_sockets = self._keeps_sockets, False
        return FaultEquipment(self._faults, self._answers, keeps)

    def prepare(self, fault: Fault) -> object:
        """As in ``faults.Actions``."""
        if fault.kind.name != "stale-pod-resources":
            return None
        process = self._life.process
        source = None if process is None else process.pod_source
        return past_answers(source, api_profile(self._settings))

    def execute(self, fault: Fault, occasion: FaultContext) -> None:
        """As in ``faults.Actions``. Raises RequestError if no kubelet serves whose streams or
        sockets are meant, and what a start or a stop raises."""
        self._execute(fault, occasion, self._stops)

    def start(self, fault: Fault, occasion: FaultContext) -> None:
        """As in ``faults.Actions``."""
        stops = self._stops
        threading.Thread(
            target=self._guarded,
            args=(lambda: self._execute(fault, occasion, stops),),
            name="fault",
            daemon=True,
        ).start()

    def _execute(self, fault: Fault, occasion: FaultContext, stops: int) -> None:
        """``stops`` is how often the kubelet had been stopped when that began: once it is
        stopped again, it is not started any more."""
        options = fault.options
        match fault.kind.name:
            case "end-list-stream":
                handler = self._life.serving().manager.plugins
                for endpoint in self._endpoints(fault, occasion):
                    handler.close_connection(endpoint.id)
            case "delete-plugin-socket":
                for endpoint in self._endpoints(fault, occasion):
                    # Absolute if the watcher found it.
                    (self._plugin_dir / endpoint.name).unlink(missing_ok=True)
            case "recreate-kubelet-socket":
                self._life.serving().recreate_socket()
            case "restart":
                self._restart(options, stops)
            case "restart-twice":
                self._restart(options, stops)
                self._later(options["gap"], lambda: self._restart(options, stops))
            case "away":
                self._life.stop()
                self._later(options["seconds"], lambda: self._restart(options, stops))

    def cancel(self) -> None:
        """The kubelet is stopped for good: what an action was to do later is not done."""
        with self._lock:
            self._stops += 1
            waits, self._waits = self._waits, set()
        for wait in waits:
            wait.cancel()

    def _endpoints(self, fault: Fault, occasion: FaultContext) -> list[EndpointInfo]:
        resource = fault.resource or occasion.resource
        plugin = fault.plugin or occasion.plugin
        state = self._life.serving().manager.state
        with state.lock:
            connected = list(state.endpoints.connected())
        return [
            each
            for each in connected
            if resource in (None, each.resource) and plugin in (None, Path(each.name).name)
        ]

    def _restart(self, options: Mapping[str, Any], stops: int) -> None:
        def decide() -> None:
            if self._stops != stops:
                raise _Withdrawn("the kubelet was stopped")
            self._keeps_sockets = options["keep_sockets"]

        self._resume(self._life.replace(first=decide))

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        """By the clock, unless the kubelet is stopped before; at once for 0."""
        if not seconds:
            return what()
        from devicemanager.faults.holds import Hold

        wait = Hold()

        def act() -> None:
            with self._lock:
                self._waits.discard(wait)
            self._guarded(what)

        with self._lock:
            self._waits.add(wait)
        wait.then(act)
        wait.start(self._clock, seconds)

    def _guarded(self, what: Callable[[], None]) -> None:
        try:
            what()
        except RequestError:
            pass  # somebody else has stopped the kubelet, which is all that was wanted
        except BaseException as error:
            self._on_error(error)
