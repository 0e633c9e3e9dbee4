"""Call the drivers of structured claims: prepare devices before containers start, and unprepare
released devices."""

# Drivers are user code: they can be slow, raise any exception, or call the claim manager. So no
# lock is held during a call. After the call, ``AllocatedClaims.record_prepared`` checks again
# that the pod uses the claim. Preparing must succeed before a container starts; a failure to
# unprepare does not stop a release.

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import attrs

from devicemanager.claims.allocated_claims import AllocatedClaims, ReleasedClaim
from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.drivers import ClaimDriver
from devicemanager.claims.v1alpha1.objects import DeviceClaim
from devicemanager.core.errors import AllocationError
from devicemanager.events.stream import EventKind, EventStream


@attrs.frozen
class _Task:
    """One call to ``prepare``: the devices of a claim that one driver must prepare."""

    claim: DeviceClaim
    name: str
    driver: ClaimDriver
    devices: list[DeviceKey]


class Drivers:
    """Claim drivers by name, and the calls to them. Thread-safe."""

    def __init__(
        self, events: EventStream, allocated: AllocatedClaims, lock: threading.RLock
    ) -> None:
        """Create a registry without drivers.

        ``allocated``: the allocated claims. ``lock``: the lock that guards these claims and the
        registry.
        """
        self._events = events
        self._allocated = allocated
        self._lock = lock
        self._drivers: dict[str, ClaimDriver] = {}

    def set(self, name: str, driver: ClaimDriver | None) -> None:
        """Set the driver with this name; None removes the driver."""
        with self._lock:
            self._drivers.pop(name, None)
            if driver is not None:
                self._drivers[name] = driver

    def is_prepared(self, claim: str) -> bool:
        """True if all devices of a claim are prepared; devices without a driver do not count.

        The caller must hold the lock of the allocated claims.
        """
        prepared = self._allocated.prepared.get(claim, {})
        devices = self._allocated.devices(claim)
        return all(key in prepared or key.driver not in self._drivers for key in devices)

    def prepare(self, pod: str) -> Iterator[bool]:
        """Prepare the devices of a pod's claims, except devices that are already prepared.

        ``pod`` is the UID. After each call of a driver, yield True if the pod still uses the claim
        that the driver has prepared. Raises AllocationError for the first driver that fails.
        """
        for task in self._tasks(pod):
            ids = _prepare(task)
            with self._lock:
                is_used = self._allocated.record_prepared(pod, task.claim.id, ids)
            yield is_used

    def _tasks(self, pod: str) -> list[_Task]:
        with self._lock:
            found = []
            for claim in self._allocated.reservations.claims(pod):
                prepared = self._allocated.prepared.get(claim, {})
                missing = [key for key in self._allocated.devices(claim) if key not in prepared]
                for name, devices in _by_driver(missing).items():
                    if name in self._drivers:
                        # The claim is immutable, so the driver can read it without the lock.
                        current = self._allocated.allocator.claim(claim)
                        found.append(_Task(current, name, self._drivers[name], devices))
            return found

    def unprepare_released(self) -> None:
        """Let drivers unprepare the devices of released claims; publish an event per claim."""
        with self._lock:
            released = self._allocated.take_released()
        for each in released:
            self._unprepare(each)
            self._events.publish(EventKind.CLAIM_RELEASED, f"claim {each.claim.id} released")

    def _unprepare(self, released: ReleasedClaim) -> None:
        for name, devices in _by_driver(released.prepared).items():
            driver = self._drivers.get(name)
            try:
                if driver is not None:
                    driver.unprepare(released.claim, devices)
            # The claim is released already, so a driver's failure can only be reported.
            except Exception as error:
                text = f"claim {released.claim.id}: driver {name} cannot unprepare: {error}"
                self._events.publish(EventKind.CLAIMS_FAILED, text)


def _prepare(task: _Task) -> dict[DeviceKey, tuple[str, ...]]:
    try:
        response = task.driver.prepare(task.claim, task.devices)
        return {key: tuple(response.get(key, ())) for key in task.devices}
    except Exception as error:
        text = f"claim {task.claim.id}: driver {task.name} cannot prepare its devices: {error}"
        raise AllocationError(text) from error


def _by_driver(devices: Iterable[DeviceKey]) -> dict[str, list[DeviceKey]]:
    found: dict[str, list[DeviceKey]] = {}
    for key in sorted(devices):
        found.setdefault(key.driver, []).append(key)
    return found
