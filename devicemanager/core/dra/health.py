"""Health of DRA devices, as reported by drivers (``healthInfoCache``,
pkg/kubelet/cm/dra/healthinfo.go)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import attrs

from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.model import DriverName
from devicemanager.core.dra.rules import DraRules
from devicemanager.core.status import Health

DEFAULT_TIMEOUT = 30.0
"""Seconds after which a device's reported health becomes unknown, if the report has no timeout."""
MAX_DEVICES = 16384
"""Maximum number of devices per driver whose health is stored. Further devices are ignored. This
is the limit of kubelet v1.37; here it applies to all versions."""
MAX_MESSAGE = 1024
"""Maximum length of a message in bytes. A longer message is cut to 1021 bytes, followed by
``...``."""
RETRY_PERIOD = 5.0
"""Seconds between the end of a health stream and the next attempt to open it."""


class DeviceKey(NamedTuple):
    """Pool and name of a device; together they identify the device within its driver."""

    pool: str
    device: str


@attrs.frozen
class DeviceHealth:
    """Reported health of one device."""

    health: Health
    message: str = ""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds from ``updated`` until the health becomes unknown."""
    updated: float = attrs.field(default=0.0, eq=False)
    """Time of the report on the kubelet's clock, in seconds. Comparisons ignore this field."""


@attrs.frozen
class ReportedDevice:
    """An entry of a driver's health report."""

    pool: str
    device: str
    health: Health = Health.UNKNOWN
    """Reported health. Values that the kubelet does not know become ``UNKNOWN``."""
    message: str = ""
    timeout: int = 0
    """``health_check_timeout_seconds``; 0 and negative values mean ``DEFAULT_TIMEOUT``."""


_UNKNOWN = DeviceHealth(Health.UNKNOWN)


class HealthCache:
    """Health of all devices by driver. Not thread-safe: the caller holds the lock."""

    def __init__(
        self,
        rules: DraRules,
        devices: Mapping[DriverName, Mapping[DeviceKey, DeviceHealth]] | None = None,
    ) -> None:
        """Create a cache that contains ``devices``, the content of ``dra_health_state``."""
        self._rules = rules
        self._devices = {name: dict(each) for name, each in (devices or {}).items()}
        self.changes = 0
        """Number of times that the stored health has changed. When it increases, the caller must
        write the file ``dra_health_state``."""

    def snapshot(self) -> dict[DriverName, dict[DeviceKey, DeviceHealth]]:
        """Return a copy of all entries, for the file ``dra_health_state``."""
        return {name: dict(each) for name, each in self._devices.items()}

    def get(self, driver: DriverName, pool: str, device: str, now: float) -> DeviceHealth:
        """Return the health of a device at time ``now``. The health is unknown if the device has no
        report, or if its last report has timed out.

        ``message`` of the result is empty if this kubelet version does not show messages.
        """
        found = self._devices.get(driver, {}).get(DeviceKey(pool, device))
        # As in the kubelet, no timer makes health unknown. Staleness is checked when health is read
        # and at the driver's next report.
        if found is None or _is_stale(found, now):
            return _UNKNOWN
        if not self._rules.behaviour.dra_health_messages:
            return attrs.evolve(found, message="")
        return found

    def clear(self, driver: DriverName) -> None:
        """Remove the health of all devices of a driver, because a health stream of the driver has
        ended."""
        # As in the kubelet, also if another instance of the driver still reports health.
        self._devices.pop(driver, None)
        self.changes += 1

    def report(
        self, driver: DriverName, reported: Iterable[ReportedDevice], now: float
    ) -> frozenset[DeviceKey]:
        """Store a driver's health report. Return the devices whose health, message or timeout
        changed.

        The health of a device that is missing in the report becomes unknown after the timeout of
        its last report.
        """
        known = self._devices.setdefault(driver, {})
        forgets = self._rules.behaviour.dra_health_forgets
        changed: set[DeviceKey] = set()
        seen: set[DeviceKey] = set()
        removed = False
        for each in reported:
            key = DeviceKey(each.pool, each.device)
            # At the limit, the health of stored devices is still updated.
            if key not in known and len(known) >= MAX_DEVICES:
                continue
            seen.add(key)
            new = DeviceHealth(each.health, _cut(each.message), _timeout(each.timeout), now)
            if known.get(key) != new:
                changed.add(key)
            # As in the kubelet, the last entry counts if a report has several for one device.
            known[key] = new
        for key, old in list(known.items()):
            if key in seen or not _is_stale(old, now):
                continue
            if old.health is not Health.UNKNOWN:
                changed.add(key)
                known[key] = attrs.evolve(old, health=Health.UNKNOWN, message="", updated=now)
            # If the health was unknown already, no pod needs an update, but the file must change.
            if forgets:
                del known[key]
                removed = True
        self.changes += bool(changed or removed)
        return frozenset(changed)


def holders(
    cache: ClaimCache, driver: DriverName, changed: Collection[DeviceKey]
) -> tuple[str, ...]:
    """Return the UIDs of the pods that use one of the driver's devices in ``changed``, sorted.
    These pods need a status update."""
    found: set[str] = set()
    if changed:
        for claim in cache:
            state = claim.drivers.get(driver)
            devices = () if state is None else state.devices or ()
            if any(DeviceKey(each.pool, each.device) in changed for each in devices):
                found |= claim.pods
    return tuple(sorted(found))


def _is_stale(health: DeviceHealth, now: float) -> bool:
    return now - health.updated > health.timeout


def _timeout(seconds: int) -> float:
    return float(seconds) if seconds > 0 else DEFAULT_TIMEOUT


def _cut(message: str) -> str:
    encoded = message.encode(errors="replace")
    if len(encoded) <= MAX_MESSAGE:
        return message
    # As in Go, bytes are counted, so the cut can split a character.
    return encoded[: MAX_MESSAGE - 3].decode(errors="replace") + "..."
