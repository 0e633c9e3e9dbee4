"""Table of the virtual devices of a simulated plugin."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping

import attrs

from devicemanager.core.api.deviceplugin import HEALTHY, UNHEALTHY
from devicemanager.plugin.errors import UnknownDevice
from devicemanager.plugin.simulated.settings import SimulationSettings
from devicemanager.plugin.values import Device

__all__ = ["GONE", "HEALTH", "DeviceTable"]

GONE = "gone"
HEALTH = {HEALTHY: True, UNHEALTHY: False}
"""Mapping from each health state of the API to a bool: True means healthy."""


class DeviceTable:
    """Table of devices by ID; iteration yields the devices with current health. Thread-safe.

    States in the control file override the effects of ``put``, ``set_health`` and ``remove``.
    """

    def __init__(self, settings: SimulationSettings) -> None:
        self._numa = settings.numa
        # Guards all fields below.
        self._lock = threading.Lock()
        self._indexes: dict[str, int] = {}
        self._devices: dict[str, Device] = {}
        self._controlled: Mapping[str, str] = {}
        for index in range(settings.number_devices):
            self.put(settings.device_id(index))

    def __iter__(self) -> Iterator[Device]:
        with self._lock:
            devices = dict(self._devices)
            for id_, state in self._controlled.items():
                # `gone` for an unknown ID is not an error: the file can outlive the device.
                if state == GONE:
                    devices.pop(id_, None)
                else:
                    device = devices.get(id_) or self._make(id_)
                    devices[id_] = attrs.evolve(device, healthy=HEALTH[state])
        return iter(devices.values())

    def put(self, id_: str, *, healthy: bool = True, numa: tuple[int, ...] | None = None) -> None:
        """Add a device. If a device already has this ID, the new device replaces it."""
        with self._lock:
            self._devices[id_] = self._make(id_, numa, healthy)

    def set_health(self, id_: str, healthy: bool) -> None:
        with self._lock:
            self._devices[id_] = attrs.evolve(self._get(id_), healthy=healthy)

    def remove(self, id_: str) -> None:
        with self._lock:
            del self._devices[self._get(id_).id]

    def control(self, states: Mapping[str, str]) -> None:
        """Apply the states in the control file, and drop all states that it contained earlier.

        ``states`` maps device IDs to Healthy, Unhealthy or gone.
        """
        with self._lock:
            self._controlled = dict(states)

    def indexes(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the index of each device, by ID: 0 for the device that was added first.

        An index never changes, even if the device is removed and added again.
        """
        with self._lock:
            return {id_: self._index(id_) for id_ in ids}

    def _get(self, id_: str) -> Device:
        if id_ not in self._devices:
            known = ", ".join(self._devices)
            hint = f"use one of {known}" if known else "the plugin has no devices"
            raise UnknownDevice(f"unknown device {id_}: {hint}")
        return self._devices[id_]

    def _make(self, id_: str, numa: tuple[int, ...] | None = None, healthy: bool = True) -> Device:
        index = self._index(id_)
        if numa is None:
            numa = (self._numa[index % len(self._numa)],) if self._numa else ()
        return Device(id_, healthy, numa)

    def _index(self, id_: str) -> int:
        # Variables and paths contain the index, so it must not change while containers run.
        return self._indexes.setdefault(id_, len(self._indexes))
