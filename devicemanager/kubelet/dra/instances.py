"""The registered instances of drivers, with their connections and health streams.

The ResourceSlices of a driver are deleted when the driver has had no usable instance for 30 s.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import attrs

from devicemanager.core.dra import messages
from devicemanager.core.dra.drivers import Instance
from devicemanager.core.dra.effects import Answer, CallDriver
from devicemanager.core.dra.model import InstanceId
from devicemanager.core.errors import RpcError
from devicemanager.events.calls.log import CallLog
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.faults.registry import FaultRegistry
from devicemanager.io.clock import Cancel, Clock
from devicemanager.kubelet.dra.connection import DriverConnection
from devicemanager.kubelet.dra.health import HealthSink, HealthStream
from devicemanager.kubelet.dra.state import DraState
from devicemanager.kubelet.dra.wiping import Wiper
from devicemanager.kubelet.registration.registrar import check_registrations
from devicemanager.kubelet.settings import Settings

__all__ = ["Instances"]


@attrs.frozen(eq=False, repr=False)
class _Open:
    """A registered instance with its connection and health stream."""

    instance: Instance
    connection: DriverConnection
    stream: HealthStream | None
    pid: int


class Instances:
    """The registered instances of all drivers. Thread-safe."""

    def __init__(
        self,
        state: DraState,
        settings: Settings,
        clock: Clock,
        events: EventStream,
        calls: CallLog,
        faults: FaultRegistry,
        wiper: Wiper,
        health: HealthSink,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._state = state
        self._settings = settings
        self._clock = clock
        self._events = events
        self._calls = calls
        self._faults = faults
        self._wiper = wiper
        self._health = health
        self._on_error = on_error
        # Runs blocking work, such as closing connections and event callbacks, outside the event
        # loop.
        self._background = ThreadPoolExecutor(1, thread_name_prefix="dra")
        # Guards the fields below.
        self._lock = threading.Lock()
        self._open: dict[InstanceId, _Open] = {}
        self._cancel_wipe: Cancel | None = None
        self._gone: dict[str, float] = {}
        """Mapping from driver names to the time when an instance of the driver last deregistered.
        Times are in seconds, by the clock's ``monotonic``."""
        self._closed = False

    def absent(self) -> dict[str, str]:
        """Return a mapping from driver names to texts, such as ``it deregistered 5 s ago``.

        A driver is included if one of its instances has deregistered, even if the driver has
        registered again since.
        """
        now = self._clock.monotonic()
        with self._lock:
            return {
                driver: f"it deregistered {now - at:.0f} s ago" for driver, at in self._gone.items()
            }

    def register(self, driver: str, endpoint: str, services: tuple[str, ...], pid: int) -> Instance:
        """Register an instance and connect to it in the background.

        Raises DriverRejected with the kubelet's text. Raises LimitReached if the process ``pid``
        has too many registrations, or if all processes together have too many.
        """
        self._check_limit(pid)
        with self._state.lock:
            drivers = self._state.drivers
            # As in the kubelet, this comes first: the stage of an error decides its text, and
            # whether the registration is retried.
            drivers.validate(driver, endpoint, services)
            # Before v1.33, a new instance replaces the driver's old instance, whose connection must
            # then be closed.
            replaced = [each for each in drivers if each.driver == driver]
            instance = drivers.register(driver, endpoint, services, self._clock.monotonic())
            replaced = [each for each in replaced if drivers.get(each.id) is None]
        for each in replaced:
            self._close(each.id)
        self._connect(instance, pid)
        self._events.publish(
            EventKind.DRIVER_REGISTERED,
            f"DRA driver {driver} registered {endpoint} with {instance.service}",
            resource=driver,
        )
        # The registration can plan a deletion of slices, which happens if the instance never
        # connects.
        self._follow_wipes()
        return instance

    def _check_limit(self, pid: int) -> None:
        # Each instance needs a connection and threads, so limit them. Drivers in the kubelet's own
        # process, as in tests, are not limited.
        if pid == os.getpid():
            return
        with self._lock:
            processes = Counter(each.pid for each in self._open.values())
        check_registrations(processes, pid, self._settings)

    def _connect(self, instance: Instance, pid: int) -> None:
        def changed(connected: bool) -> None:
            self._connection_changed(instance, connected)

        connection = DriverConnection(instance, self._settings, self._calls, self._faults, changed)
        stream = None
        if instance.health_service is not None:
            stream = HealthStream(
                instance,
                connection,
                self._health,
                self._clock,
                self._on_error,
                stops_if_unimplemented=bool(self._settings.behaviour.dra_health_services),
            )
        # Stored before the connection starts. Otherwise, ``close`` could miss a connection that
        # starts at the same time.
        with self._lock:
            is_closed = self._closed
            if not is_closed:
                self._open[instance.id] = _Open(instance, connection, stream, pid)
        if is_closed:
            connection.close()
            return
        connection.start()
        if stream is not None:
            stream.start()

    def _connection_changed(self, instance: Instance, connected: bool) -> None:
        with self._state.lock:
            if self._state.drivers.get(instance.id) is None:
                # The instance has deregistered in the meantime, so its connection does not matter
                # any more.
                return
            now = self._clock.monotonic()
            self._state.drivers.set_connected(instance.id, connected, now)
        if connected:
            self._wiper.cancel(instance.driver)
        kind = EventKind.DRIVER_CONNECTED if connected else EventKind.DRIVER_DISCONNECTED
        what = "connected to" if connected else "lost the connection to"
        self._events.publish(
            kind,
            f"{what} DRA driver {instance.driver} at {instance.endpoint}",
            resource=instance.driver,
        )
        self._follow_wipes()

    def deregister(self, instance: Instance) -> None:
        """Remove an instance whose registration socket is gone. Does not block."""
        with self._state.lock:
            # Compare by number: the same endpoint can have been registered again.
            if self._state.drivers.get(instance.id) is not None:
                now = self._clock.monotonic()
                self._state.drivers.deregister(instance.driver, instance.endpoint, now)
                self._gone[instance.driver] = now
        try:
            self._background.submit(self._deregistered, instance)
        except RuntimeError:
            return  # the kubelet stops, and closes all connections

    def _deregistered(self, instance: Instance) -> None:
        try:
            self._close(instance.id)
            self._events.publish(
                EventKind.DRIVER_DEREGISTERED,
                f"DRA driver {instance.driver} deregistered {instance.endpoint}",
                resource=instance.driver,
            )
            self._follow_wipes()
        except BaseException as error:
            self._on_error(error)

    def _close(self, number: InstanceId) -> None:
        with self._lock:
            found = self._open.pop(number, None)
        if found is not None:
            if found.stream is not None:
                found.stream.close()
            found.connection.close()

    # -- calls -----------------------------------------------------------------------

    def call(self, effect: CallDriver) -> Answer:
        """Call NodePrepareResources or NodeUnprepareResources.

        ``effect`` names the driver instance, the method and the claims.

        Returns a mapping from each claim's UID to the driver's result for the claim.

        Raises RpcError if the call fails or the instance is not registered.
        """
        with self._lock:
            found = self._open.get(effect.instance)
        if found is None:
            # The error with which gRPC for Go ends a call when the instance deregisters.
            raise RpcError("Canceled", messages.CONNECTION_CLOSING)
        return found.connection.call(effect)

    # -- wiping ----------------------------------------------------------------------

    def _follow_wipes(self) -> None:
        """Delete the slices of drivers that have been unusable for long enough. Set a timer for the
        driver whose slices must be deleted next."""
        with self._state.lock:
            due = self._state.drivers.due_wipes(self._clock.monotonic())
            when = self._state.drivers.next_wipe()
        for driver in due:
            self._wiper.wipe(driver)
        with self._lock:
            cancel, self._cancel_wipe = self._cancel_wipe, None
            if when is not None and not self._closed:
                self._cancel_wipe = self._clock.call_at(when, self._follow_wipes)
        if cancel is not None:
            cancel()

    def close(self) -> None:
        """Close all connections, and cancel all timers."""
        with self._lock:
            self._closed = True
            # A copy, because ``_close`` removes the instances one by one.
            numbers = list(self._open)
            cancel, self._cancel_wipe = self._cancel_wipe, None
        if cancel is not None:
            cancel()
        for number in numbers:
            self._close(number)
        self._background.shutdown()
