"""Checks of family DH: the health stream of a driver."""

from __future__ import annotations

import time

from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.drivers.client import HEALTH_SERVICES
from devicemanager.conformance.drivers.described import driver_check
from devicemanager.conformance.drivers.run import DriverRun
from devicemanager.conformance.outcomes import Failed, Skipped
from devicemanager.core.printable import counted
from protos import drahealth_v1 as health

_HEALTHY = health.HealthStatus.Value("HEALTHY")
_KNOWN = (_HEALTHY, health.HealthStatus.Value("UNHEALTHY"))
"""The kubelet treats all other values as unknown."""


def _service(run: DriverRun) -> str:
    listed = [each for each in run.info().supported_versions if each in HEALTH_SERVICES]
    if not listed:
        raise Skipped("supported_versions has no health service")
    return listed[0]


def _first_report(run: DriverRun) -> health.NodeWatchResourcesResponse:
    service = _service(run)
    with run.client() as client, client.health(service, run.limits.health_seconds) as reports:
        return _next(reports)


def _next(reports: object) -> health.NodeWatchResourcesResponse:
    try:
        return next(reports)  # type: ignore[call-overload, no-any-return]
    except CallFailed as failed:
        raise Failed(str(failed)) from None


@driver_check
def dh01(run: DriverRun) -> str:
    begin = time.monotonic()
    report = _first_report(run)
    return f"{counted(len(report.devices), 'device')} after {time.monotonic() - begin:.2f} s"


@driver_check
def dh02(run: DriverRun) -> None:
    reported = {
        (each.device.pool_name, each.device.device_name) for each in _first_report(run).devices
    }
    missing = sorted({*run.devices()} - reported)
    if missing:
        raise Failed(f"the first report lacks the device {'/'.join(missing[0])}")


@driver_check
def dh03(run: DriverRun) -> str:
    service = _service(run)
    limit = run.limits.health_seconds + run.limits.health_repeat_seconds
    with run.client() as client, client.health(service, limit) as reports:
        first = _next(reports)
        # An unknown health cannot expire, so the timeouts of these devices do not count.
        known = [each for each in first.devices if each.health in _KNOWN]
        if not known:
            raise Skipped("the first report has no device with a known health")
        timeouts = [each.health_check_timeout_seconds for each in known]
        # As in the kubelet, 0 and negative timeouts mean the default (core.dra.health).
        wanted = min(each if each > 0 else run.limits.health_repeat_seconds for each in timeouts)
        begin = time.monotonic()
        try:
            next(reports)
        except CallFailed as failed:
            waited = time.monotonic() - begin
            if failed.code == "DEADLINE_EXCEEDED" and waited < wanted:
                raise Skipped(
                    f"no second report came in {waited:.0f} s, but the first report expires only "
                    f"after {wanted:g} s (limit health_repeat_seconds)"
                ) from None
            raise Failed(str(failed)) from None
    took = time.monotonic() - begin
    if took > wanted:
        raise Failed(f"the second report came after {took:.0f} s, the timeout is {wanted:.0f} s")
    return f"repeated after {took:.1f} s"


@driver_check
def dh04(run: DriverRun) -> None:
    service = _service(run)
    seconds = run.limits.health_seconds
    # Two connections: the old stream of a restarted kubelet may still be open beside the new one.
    with (
        run.client() as one,
        run.client() as two,
        one.health(service, seconds) as first,
        two.health(service, seconds) as second,
    ):
        _next(first)
        _next(second)


@driver_check
def dh05(run: DriverRun) -> str:
    service = _service(run)
    pool, name = run.devices()[0] if run.devices() else ("", "")
    if not name:
        raise Skipped("the driver has published no devices")
    limit = run.limits.health_seconds + run.limits.health_repeat_seconds
    with run.client() as client, client.health(service, limit) as reports:
        # The first report comes at once, and has the state before the change.
        _next(reports)
        begin = time.monotonic()
        run.hook("break-device", name)
        try:
            while _is_healthy(_next(reports), pool, name):
                pass
        except Failed:
            raise Failed(f"no report of the unhealthy device {pool}/{name}") from None
        finally:
            # Otherwise the device would stay broken for later checks on this stage.
            run.hook("recover-device", name)
    took = time.monotonic() - begin
    if took > run.limits.health_repeat_seconds:
        raise Failed(f"device {pool}/{name} was reported as unhealthy only after {took:.1f} s")
    return f"{took:.1f} s"


def _is_healthy(report: health.NodeWatchResourcesResponse, pool: str, name: str) -> bool:
    return any(
        each.health == _HEALTHY
        for each in report.devices
        if (each.device.pool_name, each.device.device_name) == (pool, name)
    )
