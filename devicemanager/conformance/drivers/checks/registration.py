"""Checks of family DR: how a driver registers."""

from __future__ import annotations

from pathlib import Path

from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.drivers.client import CLAIM_SERVICES
from devicemanager.conformance.drivers.described import driver_check
from devicemanager.conformance.drivers.run import DriverRun
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from protos import dra_v1

_TYPE = "DRAPlugin"
_REJECTION = "rejected by the conformance suite"


@driver_check
def dr01(run: DriverRun) -> str:
    run.start_kubelet()
    since = run.kubelet.mark()
    run.launch()
    took = run.wait_registered(since, run.limits.start_seconds, "its start")
    return f"registered after {took:.2f} s"


@driver_check
def dr02(run: DriverRun) -> None:
    first, second = run.info(), run.info()
    if first.type != _TYPE:
        raise Failed(f"invalid type {first.type!r} in GetInfo: expected {_TYPE}")
    if first != second:
        raise Failed("two calls of GetInfo have different responses")
    # Without an endpoint, the kubelet also uses the registration socket as service socket.
    if first.endpoint and not Path(first.endpoint).is_absolute():
        raise Failed(f"invalid endpoint {first.endpoint!r} in GetInfo: expected an absolute path")


@driver_check
def dr03(run: DriverRun) -> str:
    listed = [each for each in run.info().supported_versions if each in CLAIM_SERVICES]
    # NodeUnprepareResources must succeed for a claim that was never prepared (DC05). So if the call
    # fails, the driver does not serve the version.
    for service in listed:
        with run.client(service) as client:
            try:
                client.unprepare(_unknown_claim())
            except CallFailed as failed:
                raise Failed(f"supported_versions has {service}, but {failed}") from None
    return ", ".join(listed)


def _unknown_claim() -> dra_v1.Claim:
    uid = "3c3cf06e-6e4c-4b62-9c04-7fbd3a3dd001"
    return dra_v1.Claim(namespace="default", name="unknown", uid=uid)


@driver_check
def dr04(run: DriverRun) -> str:
    run.start_kubelet()
    run.kubelet.faults.set("reject-notification", text=_REJECTION)
    run.launch()

    def is_rejected() -> bool:
        return run.plugin.has_exited_once or _REJECTION in run.rejection()

    if run.until(is_rejected, run.limits.start_seconds) is None:
        raise Skipped("the driver did not register", cause="DR01")
    # A driver that exits because of the rejection does so a moment later.
    run.until(lambda: run.plugin.has_exited_once, run.limits.settle_seconds)
    run.kubelet.faults.clear()
    if run.plugin.has_exited:
        # With exit status 0, the pod status does not show the cause.
        if run.process.exit_status == 0:
            raise Failed("the rejected driver exited with status 0, expected non-zero")
        return run.accepted_exit()
    since = run.restart_kubelet()
    took = run.wait_registered(since, run.limits.recover_seconds, "a rejected registration")
    return f"registered {took:.1f} s after the kubelet's restart"


@driver_check
def dr05(run: DriverRun) -> str:
    run.start()
    [claim] = run.claims()
    run.plugin.stop(run.process)
    since = run.kubelet.mark()
    run.launch()
    # A pod can wait for the driver. Then the call comes at once, before anything is published.
    run.wait_registered(since, run.limits.start_seconds, "its restart")
    took = run.timed(lambda: run.prepare(claim), "a call right after the registration")
    run.unprepare(claim)
    return f"{took:.2f} s"


@driver_check
def dr06(run: DriverRun) -> str:
    api = run.api
    api.stop()
    run.step("stop the API server")
    # On a node, an earlier start of the kubelet has created them.
    for directory in (run.registry, run.kubelet.root / "plugins"):
        directory.mkdir(parents=True, exist_ok=True)
    process = run.launch()
    run.until(lambda: run.plugin.has_exited, run.limits.away_seconds)
    api.start()
    run.step("start the API server")
    if run.plugin.has_exited:
        if process.exit_status == 0:
            raise Failed("the driver exited with status 0 without an API server")
        raise Warned(
            f"the driver exited without an API server: {run.plugin.exit_text()}. "
            f"It printed: {run.last_output}"
        )
    since = run.kubelet.mark()
    run.start_kubelet()
    run.wait_registered(since, run.limits.recover_seconds, "the start of the API server")
    if run.stage.device_counts.get(run.driver):
        return f"slices after {run.wait_slices('the start of the API server'):.1f} s"
    return "registered"
