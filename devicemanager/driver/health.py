"""Health of a driver's devices: call the author's method, and report the result to the kubelet.

Each call of the method leads to a report, even without a change: in the kubelet, old reports
expire. While the method fails or hangs, no report is sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

import grpc

from devicemanager.driver.services import Report
from devicemanager.driver.values import DeviceHealth
from devicemanager.plugin.common.hooks import call_hook
from protos import drahealth_v1 as health_api

__all__ = ["HealthReports", "health_message"]

_CODES = {
    "Healthy": health_api.HealthStatus.Value("HEALTHY"),
    "Unhealthy": health_api.HealthStatus.Value("UNHEALTHY"),
    "Unknown": health_api.HealthStatus.Value("UNKNOWN"),
}
_DEFAULT_TIMEOUT = 30
"""The kubelet's timeout for a device without its own timeout, in seconds."""


def health_message(device: DeviceHealth, pool: str, seconds: float) -> health_api.DeviceHealth:
    """Return the protobuf message with the health of a device.

    ``pool``: name of the default pool, for a device without a pool name. ``seconds``: Unix time of
    the health check.
    """
    return health_api.DeviceHealth(
        device=health_api.DeviceIdentifier(
            pool_name=device.pool or pool, device_name=device.device
        ),
        health=_CODES[device.health],
        last_updated_time=int(seconds),
        health_check_timeout_seconds=device.timeout,
        message=device.message,
    )


class HealthReports:
    """Thread that calls the driver's ``health`` periodically and sends the results to all health
    streams."""

    unhealthy: frozenset[tuple[str, str]] = frozenset()
    """Pool and name of each device that is Unhealthy in the last report."""

    def __init__(
        self,
        check: Callable[[], Iterable[DeviceHealth]],
        interval: float,
        pool: str,
        stopping: threading.Event,
        report: Callable[[Exception, str], object],
        changed: Callable[[], object],
    ) -> None:
        """Create the thread; ``start`` starts it.

        ``report`` is called with each error of ``health``. ``changed`` is called after each change
        of ``unhealthy``.
        """
        self._check = check
        self._interval = interval
        self._pool = pool
        self._stopping = stopping
        self._report = report
        self._call_changed = changed
        self._changed = threading.Condition()
        """Condition variable that guards ``_newest`` and ``_number``."""
        self._newest: Report | None = None
        self._number = 0

    def start(self) -> None:
        """Start the thread. It ends after the constructor's event ``stopping`` is set."""
        threading.Thread(target=self._run, name="health of devices", daemon=True).start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._publish(call_hook(lambda: tuple(self._check())))
            except Exception as error:
                # No report is sent, so the kubelet sets each device to Unknown when its timeout has
                # passed.
                self._report(error, "health()")
            self._stopping.wait(self._interval)
        # Open streams wait for the condition variable, and not for the event ``stopping``.
        self.wake()

    def _publish(self, devices: Iterable[DeviceHealth]) -> None:
        now = time.time()
        report = Report(devices=[health_message(each, self._pool, now) for each in devices])
        with self._changed:
            self._newest = report
            self._number += 1
            self._changed.notify_all()
        # The callback below is called without the lock, so a slow callback cannot delay the
        # streams.
        unhealthy = frozenset(
            (each.device.pool_name, each.device.device_name)
            for each in report.devices
            if each.health == _CODES["Unhealthy"]
        )
        if unhealthy != self.unhealthy:
            # A new set replaces the old set, so other threads can read it without a lock.
            self.unhealthy = unhealthy
            self._call_changed()

    def wake(self) -> None:
        """Wake all open health streams, so that each checks whether it must end."""
        with self._changed:
            self._changed.notify_all()

    def watch(self, context: grpc.ServicerContext) -> Iterator[Report]:
        """Yield the newest report, then each later report, until the call ends or the driver stops.

        A slow client gets only the newest of several reports. In the first report, devices whose
        timeout has passed are Unknown.
        """
        # The end of a call does not wake a thread that waits for the condition variable.
        context.add_callback(self.wake)
        seen = 0

        def is_over() -> bool:
            return self._stopping.is_set() or not context.is_active()

        while True:
            with self._changed:
                self._changed.wait_for(lambda: is_over() or self._number != seen)  # noqa: B023
                if is_over() or self._newest is None:
                    return
                first, seen, report = not seen, self._number, self._newest
            # Only the first report can be old: ``health`` may have failed or hung since then. Later
            # reports are sent as soon as they exist.
            yield without_old(report, time.time()) if first else report


def without_old(report: Report, now: float) -> Report:
    """Return a copy of a report in which devices whose timeout has passed are Unknown.

    ``now`` is the Unix time in seconds.
    """
    made = Report()
    for device in report.devices:
        copied = made.devices.add()
        copied.CopyFrom(device)
        timeout = device.health_check_timeout_seconds
        if timeout <= 0:
            timeout = _DEFAULT_TIMEOUT
        if now - device.last_updated_time > timeout:
            copied.health = _CODES["Unknown"]
            # The message describes the health that is no longer known.
            copied.message = ""
    return made
