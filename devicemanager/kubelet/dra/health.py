"""Health of DRA devices: streams of health reports from drivers, and the file ``dra_health_state``.

A driver instance that reports health has one stream, which is a NodeWatchResources call.

Follows ``WatchResources`` and ``HandleWatchResourcesStream`` (pkg/kubelet/cm/dra/plugin,
pkg/kubelet/cm/dra/manager.go, v1.36).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from google.protobuf.message import DecodeError

import checkpoint
from devicemanager.core.dra.drivers import Instance
from devicemanager.core.dra.health import (
    MAX_DEVICES,
    RETRY_PERIOD,
    DeviceHealth,
    DeviceKey,
    ReportedDevice,
)
from devicemanager.core.dra.model import DriverName
from devicemanager.core.errors import RpcError
from devicemanager.core.status import Health
from devicemanager.io.clock import Cancel, Clock
from devicemanager.kubelet.dra.connection import DriverConnection
from protos import drahealth_v1

__all__ = ["HEALTH_STATE_NAME", "HealthFile", "HealthSink", "HealthStream"]

HEALTH_STATE_NAME = "dra_health_state"
"""Name of the health file, which is in the kubelet's root directory (pkg/kubelet/cm/dra/manager.go,
v1.34)."""

_HEALTH = {
    drahealth_v1.HealthStatus.Value("HEALTHY"): Health.HEALTHY,
    drahealth_v1.HealthStatus.Value("UNHEALTHY"): Health.UNHEALTHY,
}
_NANOSECONDS = 1_000_000_000
_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""Latest time in the file, in seconds since the epoch. Later times cannot be formatted."""
_INVALID = ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError
"""Exceptions of the JSON and time parsers for arbitrary file contents."""
_MAX_REPORTED = 4 * MAX_DEVICES
"""Maximum number of entries to read from a report, which can have millions. The kubelet reads all
entries."""
_MAX_NAME = 1024
"""Maximum length of a pool or device name. In ResourceSlices, the names have up to 253
characters."""
Devices = Mapping[DriverName, Mapping[DeviceKey, DeviceHealth]]


class HealthSink(Protocol):
    """Receiver of the device health that drivers report on health streams."""

    def report(self, instance: Instance, devices: tuple[ReportedDevice, ...], ignored: int) -> None:
        """Store the health of ``devices``, which a driver instance has reported.

        ``ignored`` is the number of reported devices that were left out of ``devices``: the report
        had too many devices, or their names were too long.
        """

    def stream_ended(self, instance: Instance) -> None:
        """Remove the stored health of all devices of the instance's driver."""


class HealthStream:
    """Health stream of one driver instance. Thread-safe.

    If the stream ends, it is opened again after 5 s.
    """

    def __init__(
        self,
        instance: Instance,
        connection: DriverConnection,
        sink: HealthSink,
        clock: Clock,
        on_error: Callable[[BaseException], None],
        *,
        stops_if_unimplemented: bool,
    ) -> None:
        """``stops_if_unimplemented``: do not open the stream again if the driver does not
        implement NodeWatchResources, as in kubelets since v1.37."""
        assert instance.health_service is not None
        self._instance = instance
        self._service = instance.health_service
        self._connection = connection
        self._sink = sink
        self._clock = clock
        self._on_error = on_error
        self._stops = stops_if_unimplemented
        # Guards the fields below.
        self._lock = threading.Lock()
        self._closed = False
        self._cancel: Cancel | None = None

    def start(self) -> None:
        """Open the stream, and read it on a new thread."""
        with self._lock:
            # After a retry, this is the timer's own call. The timer cannot be canceled any more.
            self._cancel = None
            if self._closed:
                return
        name = f"health-{self._instance.driver}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            is_over = self._follow()
            self._sink.stream_ended(self._instance)
        except BaseException as error:
            self._on_error(error)
            return
        if not is_over:
            self._start_later()

    def _follow(self) -> bool:
        """Read the stream to its end. Return False if it must be opened again."""
        try:
            for message in self._connection.watch_health(self._service):
                self._sink.report(self._instance, *_devices(message))
        except RpcError as error:
            # Since v1.37, this code ends the watch for good. In v1.36, the kubelet tries again
            # after 5 s.
            return self._stops and error.code == "Unimplemented"
        except (DecodeError, UnicodeDecodeError):
            # As in gRPC for Go, an undecodable message ends the stream.
            return False
        return False

    def _start_later(self) -> None:
        with self._lock:
            if not self._closed:
                when = self._clock.monotonic() + RETRY_PERIOD
                self._cancel = self._clock.call_at(when, self.start)

    def close(self) -> None:
        """Stop reopening the stream.

        A stream that is open now stays open until the driver's connection is closed.
        """
        with self._lock:
            self._closed = True
            cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()


def _devices(message: bytes) -> tuple[tuple[ReportedDevice, ...], int]:
    """Return the devices in a report, and the number of ignored entries."""
    entries = drahealth_v1.NodeWatchResourcesResponse.FromString(message).devices
    devices = tuple(map(_device, filter(_is_nameable, islice(entries, _MAX_REPORTED))))
    return devices, len(entries) - len(devices)


def _is_nameable(entry: Any) -> bool:
    """True if neither the pool name nor the device name is longer than 1024 characters."""
    return max(len(entry.device.pool_name), len(entry.device.device_name)) <= _MAX_NAME


def _device(entry: Any) -> ReportedDevice:
    return ReportedDevice(
        entry.device.pool_name,
        entry.device.device_name,
        # As in the kubelet, a value that it does not know counts as Unknown.
        _HEALTH.get(entry.health, Health.UNKNOWN),
        entry.message,
        entry.health_check_timeout_seconds,
    )


class HealthFile:
    """The file ``dra_health_state``: plain JSON without a checksum, written after every change."""

    def __init__(self, root: Path, clock: Clock) -> None:
        # The kubelet does not flush this file either.
        self._store = checkpoint.FileStore(
            root, HEALTH_STATE_NAME, durability=checkpoint.Durability.PROCESS
        )
        self._clock = clock
        self._lock = threading.Lock()
        """Serializes writes, so that the last write has the newest state."""

    def load(self) -> dict[DriverName, dict[DeviceKey, DeviceHealth]]:
        """Return the contents of the file. As in the kubelet, a missing or invalid file counts as
        empty."""
        try:
            return _parsed(json.loads(self._store.read()), self._offset())
        except (checkpoint.CheckpointError, *_INVALID):
            return {}

    def write(self, devices: Callable[[], Devices]) -> None:
        """Call ``devices``, and replace the contents of the file with the result. Thread-safe.

        Raises CheckpointWriteError.
        """
        with self._lock:
            self._store.write(self._text(devices()))

    def _text(self, devices: Devices) -> bytes:
        offset = self._offset()
        content = {
            driver: {
                "Devices": {
                    f"{key.pool}/{key.device}": _entry(key, each, offset)
                    for key, each in sorted(of_driver.items())
                }
            }
            for driver, of_driver in sorted(devices.items())
        }
        return json.dumps(content, separators=(",", ":")).encode()

    def _offset(self) -> float:
        """File time minus cache time, in seconds. The cache uses the clock's monotonic time."""
        return self._clock.time() - self._clock.monotonic()


def _entry(key: DeviceKey, health: DeviceHealth, offset: float) -> dict[str, Any]:
    # The time can come from a damaged file, and then lie outside of what can be formatted.
    updated = datetime.fromtimestamp(min(max(health.updated + offset, 0.0), _LATEST), UTC)
    return {
        "PoolName": key.pool,
        "DeviceName": key.device,
        "Health": str(health.health),
        # Go writes UTC as Z.
        "LastUpdated": updated.isoformat().replace("+00:00", "Z"),
        "HealthCheckTimeout": int(health.timeout * _NANOSECONDS),
        "Message": health.message,
    }


def _parsed(content: Any, offset: float) -> dict[DriverName, dict[DeviceKey, DeviceHealth]]:
    return {
        str(driver): {
            DeviceKey(str(each["PoolName"]), str(each["DeviceName"])): DeviceHealth(
                Health(each["Health"]),
                str(each.get("Message", "")),
                int(each["HealthCheckTimeout"]) / _NANOSECONDS,
                datetime.fromisoformat(each["LastUpdated"]).timestamp() - offset,
            )
            for each in of_driver["Devices"].values()
        }
        for driver, of_driver in content.items()
    }
