"""Asking the drivers to prepare and unprepare the devices of claims."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import attrs

from devicemanager.claims.allocated_claims import Holdings, Released
from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.drivers import ClaimDriver
from devicemanager.claims.v1alpha1.objects import DeviceClaim
from devicemanager.core.errors import AllocationError
from devicemanager.events.stream import EventKind, EventStream


@attrs.frozen
class _Task:
    """What one driver has to prepare for one claim."""

    claim: DeviceClaim
    name: str
    driver: ClaimDriver
    devices: list[DeviceKey]


class Drivers:
    """The drivers by name. No driver is called while the lock is held."""

    def __init__(self, events: EventStream, holdings: Holdings, lock: threading.RLock) -> None:
        """``lock`` guards the holdings, and the drivers here."""
        self._events = events
        self._holdings = holdings
        self._lock = lock
        self._drivers: dict[str, ClaimDriver] = {}

    def set(self, name: str, driver: ClaimDriver | None) -> None:
        """Who prepares the devices of a driver; None is nobody."""
        with self._lock:
            self._drivers.pop(name, None)
            if driver is not None:
                self._drivers[name] = driver

    def is_ready(self, claim: str) -> bool:
        """With the lock held: whether all devices of a claim that need it are prepared."""
        prepared = self._holdings.prepared.get(claim, {})
        devices = self._holdings.devices(claim)
        return all(key in prepared or key.driver not in self._drivers for key in devices)

    def prepare(self, pod: str) -> bool:
        """Prepare what is not prepared of a pod's claims; whether anything changed. Raises
        AllocationError for the first driver that cannot."""
        changed = False
        for task in self._tasks(pod):
            ids = _prepared(task)
            with self._lock:
                changed |= self._holdings.note_prepared(pod, task.claim.id, ids)
        return changed

    def _tasks(self, pod: str) -> list[_Task]:
        with self._lock:
            found = []
            for claim in self._holdings.reservations.claims(pod):
                prepared = self._holdings.prepared.get(claim, {})
                missing = [key for key in self._holdings.devices(claim) if key not in prepared]
                for name, devices in _by_driver(missing).items():
                    if name in self._drivers:
                        known = self._holdings.allocator.claim(claim)
                        found.append(_Task(known, name, self._drivers[name], devices))
            return found

    def tell_released(self) -> None:
        """Let the drivers unprepare what was released, and say so."""
        with self._lock:
            released = self._holdings.take_released()
        for each in released:
            self._unprepare(each)
            self._events.publish(EventKind.CLAIM_RELEASED, f"claim {each.claim.id} released")

    def _unprepare(self, released: Released) -> None:
        for name, devices in _by_driver(released.prepared).items():
            driver = self._drivers.get(name)
            try:
                if driver is not None:
                    driver.unprepare(released.claim, devices)
            # Whatever somebody's driver raises: the claim is released all the same.
            except Exception as error:
                text = f"claim {released.claim.id}: driver {name} cannot unprepare: {error}"
                self._events.publish(EventKind.CLAIMS_FAILED, text)


def _prepared(task: _Task) -> dict[DeviceKey, tuple[str, ...]]:
    try:
        answer = task.driver.prepare(task.claim, task.devices)
        return {key: tuple(answer.get(key, ())) for key in task.devices}
    except Exception as error:
        text = f"claim {task.claim.id}: driver {task.name} cannot prepare its devices: {error}"
        raise AllocationError(text) from error


def _by_driver(devices: Iterable[DeviceKey]) -> dict[str, list[DeviceKey]]:
    found: dict[str, list[DeviceKey]] = {}
    for key in sorted(devices):
        found.setdefault(key.driver, []).append(key)
    return found
