"""Simulated DRA drivers of an in-memory node: the states of their devices, and their faults."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

import attrs

from devicemanager.core.errors import RequestError

__all__ = ["ALWAYS", "DriverState", "InMemoryDriver", "NodeDrivers"]

ALWAYS: Final = -1
"""Value of ``DriverState.prepare_failures``: calls fail until the fault is cleared."""


@attrs.frozen
class DriverState:
    """State of one simulated driver on one node: its devices' health, and its injected faults."""

    is_stopped: bool = False
    unhealthy: frozenset[str] = frozenset()
    """Names of unhealthy devices."""
    lost: frozenset[str] = frozenset()
    """Names of devices that the driver does not publish."""
    prepare_failures: int = 0
    """How many of the next NodePrepareResources calls fail; ``ALWAYS`` if all calls fail."""
    fails_unprepare: bool = False
    delay: float = 0.0
    """Seconds until the driver responds to NodePrepareResources."""


DEFAULT: Final = DriverState()


class NodeDrivers:
    """The drivers of one node. They outlive the kubelet's process. Thread-safe."""

    # Slots, and no state before the first change: one process has thousands of nodes.
    __slots__ = ("_lock", "_states", "devices")

    def __init__(self, devices: Mapping[str, Collection[str]] | None = None) -> None:
        self.devices: Mapping[str, Collection[str]] = devices or {}
        """Mapping from driver names to the names of the driver's devices."""
        # Guards _states.
        self._lock = threading.Lock()
        self._states: dict[str, DriverState] = {}

    def state(self, driver: str) -> DriverState:
        """Return the health of a driver's devices and the driver's injected faults."""
        return self._states.get(driver, DEFAULT)

    def change(self, driver: str, change: Callable[[DriverState], DriverState]) -> None:
        """Replace the state of a driver by ``change(state)``. Raises RequestError for an unknown
        driver."""
        if driver not in self.devices:
            known = ", ".join(self.devices) or "none"
            raise RequestError(f"unknown DRA driver {driver}: the node has {known}")
        # A new dict replaces the old one, because ``state`` reads it without the lock.
        with self._lock:
            self._states = {**self._states, driver: change(self.state(driver))}

    def fails_now(self, driver: str) -> bool:
        """Count a NodePrepareResources call of the driver. Return True if the call must fail."""
        # Several pods can call the driver at the same time, and exactly the given number of calls
        # must fail.
        with self._lock:
            state = self.state(driver)
            if state.prepare_failures > 0:
                counted = attrs.evolve(state, prepare_failures=state.prepare_failures - 1)
                self._states = {**self._states, driver: counted}
            return bool(state.prepare_failures)


class InMemoryDriver:
    """A DRA driver of a node. Tests change its devices as they change those of ``InMemoryPlugin``.

    The methods have the same parameters as those of ``InMemoryPlugin``, so that callers can use
    either class. The last parameter of a method is ignored.
    """

    def __init__(self, node: NodeDrivers, name: str, changed: Callable[[str], None]) -> None:
        self.resource = name
        self._node = node
        self._changed = changed

    @property
    def is_connected(self) -> bool:
        """True if the driver is registered."""
        return not self._node.state(self.resource).is_stopped

    def register(self, _: object) -> None:
        """Start the driver."""
        self._change(lambda state: attrs.evolve(state, is_stopped=False))

    def leave(self, _: object) -> None:
        """Stop the driver."""
        self._change(lambda state: attrs.evolve(state, is_stopped=True))

    def set_health(self, id_: str, healthy: bool, _: object) -> None:
        """Change the health of a device. Raises RequestError for an unknown device."""
        named = self._named(id_)
        self._change(
            lambda state: attrs.evolve(
                state, unhealthy=state.unhealthy - named if healthy else state.unhealthy | named
            )
        )

    def lose(self, id_: str, _: object) -> None:
        """Stop publishing a device. Raises RequestError for an unknown device."""
        named = self._named(id_)
        self._change(lambda state: attrs.evolve(state, lost=state.lost | named))

    def lose_all(self, _: object) -> None:
        """Stop publishing all devices."""
        every = frozenset(self._node.devices[self.resource])
        self._change(lambda state: attrs.evolve(state, lost=every))

    def find(self, id_: str | None, _: object) -> None:
        """Publish a lost device again; with ``id_`` None, all lost devices."""
        # A name that is not lost has no effect, as in ``InMemoryPlugin``.
        self._change(
            lambda state: attrs.evolve(
                state, lost=frozenset() if id_ is None else state.lost - {id_}
            )
        )

    def _named(self, id_: str) -> frozenset[str]:
        devices = self._node.devices[self.resource]
        if id_ not in devices:
            known = ", ".join(sorted(devices)) or "none"
            raise RequestError(
                f"unknown device {id_!r} of driver {self.resource}: the driver has {known}"
            )
        return frozenset({id_})

    def _change(self, change: Callable[[DriverState], DriverState]) -> None:
        self._node.change(self.resource, change)
        self._changed(self.resource)
