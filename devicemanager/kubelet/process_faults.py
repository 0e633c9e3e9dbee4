"""Faults that act on ListAndWatch streams, on sockets, and on the kubelet's process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventStream
from devicemanager.faults.injection_point import Effect, FaultContext, implements
from devicemanager.faults.registry import FaultRegistry
from devicemanager.io.clock import Clock
from devicemanager.kubelet.lifecycle import Lifecycle
from devicemanager.kubelet.pod_resources import FaultyResponses, api_profile, prepare
from devicemanager.kubelet.pods_api import PodsFaults
from devicemanager.kubelet.process import FaultEquipment, KubeletProcess
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.core.endpoints import EndpointInfo
    from devicemanager.faults.fault import Fault
    from devicemanager.faults.states import Hold

__all__ = ["FaultActions"]


class _Withdrawn(RequestError):
    """Error of an action that is cancelled because the user has stopped the kubelet."""


class FaultActions:
    """Executor of faults that act on the running process, such as a restart. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        settings: Settings,
        life: Lifecycle,
        plugin_dir: Path,
        resume: Callable[[KubeletProcess], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """``resume`` is called with each kubelet process that a fault has started.

        ``on_error`` is called with the error of a fault whose action runs on another thread.
        """
        self._clock = clock
        self._settings = settings
        self._life = life
        self._plugin_dir = plugin_dir
        self._resume = resume
        self._on_error = on_error
        # Guards _stops and _waits.
        self._lock = threading.Lock()
        self._stops = 0
        self._waits: set[Hold] = set()
        self._keeps_sockets = False  # used only while a process is replaced

    def registry(self, events: EventStream) -> FaultRegistry:
        """Create the fault registry, which calls this object to execute actions.

        Call this method only once.
        """
        self._faults = FaultRegistry(self._clock, events, self)
        self._responses = FaultyResponses(self._faults)
        self._pods_faults = PodsFaults(self._faults)
        return self._faults

    def equipment(self) -> FaultEquipment:
        """Return the fault injection objects and settings for the next kubelet process."""
        keeps, self._keeps_sockets = self._keeps_sockets, False
        return FaultEquipment(self._faults, self._responses, self._pods_faults, keeps)

    def prepare(self, fault: Fault) -> object:
        """Return the data that a fault needs when it fires. Called when the fault is set."""
        process = self._life.process
        source = None if process is None else process.pod_source
        return prepare(fault, source, api_profile(self._settings))

    def execute(self, fault: Fault, context: FaultContext) -> None:
        """Execute the action of a fault on the calling thread.

        Raises RequestError if the kubelet is stopped and the action needs streams or sockets.
        If the action starts or stops the kubelet, errors of that start or stop are also raised.
        """
        _ACTIONS[fault.kind.effect](self, fault, context, self._stops)

    def start(self, fault: Fault, context: FaultContext) -> None:
        """Execute the action of a fault on another thread. Pass errors to ``on_error``."""
        # Read before the thread starts: a stop after this moment cancels the action.
        stops = self._stops
        act = _ACTIONS[fault.kind.effect]
        threading.Thread(
            target=self._guarded,
            args=(lambda: act(self, fault, context, stops),),
            name="fault",
            daemon=True,  # must not delay the exit of the program
        ).start()

    def cancel(self) -> None:
        """Cancel the pending steps of all actions, such as a later start of the kubelet.

        Called when the user stops the kubelet.
        """
        with self._lock:
            self._stops += 1
            waits, self._waits = self._waits, set()
        for wait in waits:
            wait.cancel()

    # -- actions -------------------------------------------------------------------------
    #
    # ``stops`` is the number of stops by the user when the action began. An action does not
    # start a kubelet that the user has stopped since.

    def _end_list_stream(self, fault: Fault, context: FaultContext, stops: int) -> None:
        handler = self._life.serving().manager.plugins
        for endpoint in self._endpoints(fault, context):
            handler.close_connection(endpoint.id)

    def _end_pod_watches(self, fault: Fault, context: FaultContext, stops: int) -> None:
        self._life.serving().end_pod_watches()

    def _delete_plugin_socket(self, fault: Fault, context: FaultContext, stops: int) -> None:
        for endpoint in self._endpoints(fault, context):
            # The name is absolute if the watcher found the plugin.
            (self._plugin_dir / endpoint.name).unlink(missing_ok=True)

    def _recreate_kubelet_socket(self, fault: Fault, context: FaultContext, stops: int) -> None:
        self._life.serving().recreate_socket()

    def _restart(self, fault: Fault, context: FaultContext, stops: int) -> None:
        self._replace(fault.options, stops)

    def _restart_twice(self, fault: Fault, context: FaultContext, stops: int) -> None:
        self._replace(fault.options, stops)
        self._later(fault.options["gap"], lambda: self._replace(fault.options, stops))

    def _stop_and_start(self, fault: Fault, context: FaultContext, stops: int) -> None:
        self._life.stop()
        self._later(fault.options["seconds"], lambda: self._replace(fault.options, stops))

    # -- parts of actions ----------------------------------------------------------------

    def _endpoints(self, fault: Fault, context: FaultContext) -> list[EndpointInfo]:
        resource = fault.resource or context.resource
        plugin = fault.plugin or context.plugin
        state = self._life.serving().manager.state
        with state.lock:
            connected = list(state.endpoints.connected())
        return [
            endpoint
            for endpoint in connected
            if resource in (None, endpoint.resource) and plugin in (None, Path(endpoint.name).name)
        ]

    def _replace(self, options: Mapping[str, Any], stops: int) -> None:
        # Checked by ``replace`` under the lifecycle's lock: no stop can come in between.
        def check() -> None:
            if self._stops != stops:
                raise _Withdrawn("the kubelet was stopped")
            self._keeps_sockets = options["keep_sockets"]

        self._resume(self._life.replace(first=check))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        """Call ``act`` after ``seconds`` of the clock, unless the user stops the kubelet earlier.

        With 0 seconds, ``act`` is called on this thread before the method returns.
        """
        if not seconds:
            return act()
        from devicemanager.faults.states import Hold

        wait = Hold()

        def act_now() -> None:
            with self._lock:
                self._waits.discard(wait)
            self._guarded(act)

        with self._lock:
            self._waits.add(wait)
        wait.on_release(act_now)
        wait.start(self._clock, seconds)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except RequestError:
            pass  # the user has stopped the kubelet: there is nothing left to do
        except BaseException as error:
            self._on_error(error)


_ACTIONS: Mapping[Effect, Callable[[FaultActions, Fault, FaultContext, int], None]] = {
    Effect.END_LIST_STREAM: FaultActions._end_list_stream,
    Effect.END_POD_WATCHES: FaultActions._end_pod_watches,
    Effect.DELETE_PLUGIN_SOCKET: FaultActions._delete_plugin_socket,
    Effect.RECREATE_KUBELET_SOCKET: FaultActions._recreate_kubelet_socket,
    Effect.RESTART: FaultActions._restart,
    Effect.RESTART_TWICE: FaultActions._restart_twice,
    Effect.STOP_AND_START: FaultActions._stop_and_start,
}
implements(None, _ACTIONS)
