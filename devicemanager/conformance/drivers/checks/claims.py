"""Checks of family DC: how a driver prepares and unprepares claims."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.drivers.claims import CLASS, REQUEST, claim_with
from devicemanager.conformance.drivers.described import driver_check
from devicemanager.conformance.drivers.run import (
    ClaimObject,
    DriverRun,
    cdi_ids,
    check_entries,
    reference,
    shown,
)
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.core.printable import counted
from devicemanager.objects.dra import ADMIN_LABEL

_FOREIGN = "other-driver.conformance.example.com"
"""Name of a driver that does not exist."""
_SUBREQUEST = "sub"
_TOLERATE_ALL: Mapping[str, str] = {"operator": "Exists"}


@driver_check
def dc01(run: DriverRun) -> str:
    [claim] = run.claims()
    begin = time.monotonic()
    uid = run.admit(claim)
    took = time.monotonic() - begin
    run.kubelet.terminate(uid)
    if run.kubelet.has_pod(uid):
        raise Failed("the pod cannot end, because its claim cannot be unprepared")
    if took > run.limits.call_warn_seconds:
        raise Warned(f"the pod started only after {took:.1f} s")
    return f"the pod started after {took:.2f} s"


@driver_check
def dc02(run: DriverRun) -> str:
    [claim] = run.claims()
    [result] = claim["status"]["allocation"]["devices"]["results"]
    with run.prepared(claim) as [entry]:
        # A prepared claim may have no devices in the response: then the loop checks nothing.
        for device in entry.devices:
            named = (device.pool_name, device.device_name)
            if named != (result["pool"], result["device"]):
                raise Failed(f"device {'/'.join(named)} was not allocated to the claim")
            if unknown := {*device.request_names} - {REQUEST}:
                raise Failed(f"unknown request name {min(unknown)!r}: the claim has {REQUEST!r}")
    return counted(len(entry.devices), "device")


@driver_check
def dc03(run: DriverRun) -> None:
    [claim] = run.claims()
    [first] = run.prepare(claim)
    [second] = run.prepare(claim)
    run.unprepare(claim)
    if shown(first) != shown(second):
        raise Failed(
            "two NodePrepareResources calls for one claim have different responses: "
            f"{shown(first)}, then {shown(second)}"
        )


@driver_check
def dc04(run: DriverRun) -> None:
    [claim] = run.claims()
    # Some drivers have CDI devices that all claims share. These devices stay.
    before = set(run.cdi.registry().devices)
    [entry] = run.prepare(claim)
    run.prepare(claim)
    run.unprepare(claim)
    left = {*cdi_ids(entry)} - before
    if left & run.cdi.registry().devices.keys():
        raise Failed(
            "after two NodePrepareResources calls, one NodeUnprepareResources call does not "
            "remove the CDI devices"
        )
    _check_free(run, claim, "two NodePrepareResources and one NodeUnprepareResources")


def _check_free(run: DriverRun, claim: ClaimObject, after: str) -> None:
    """Raise Failed if a new claim cannot get the devices of an earlier claim."""
    other = _same_devices(run, claim)
    try:
        run.prepare(other)
    except (Failed, CallFailed) as failed:
        raise Failed(f"the device is not free after {after}: {failed}") from None
    run.unprepare(other)


def _same_devices(run: DriverRun, claim: ClaimObject) -> ClaimObject:
    """Create another claim for the devices of ``claim``; shared devices get other share IDs."""
    results = [dict(each) for each in claim["status"]["allocation"]["devices"]["results"]]
    for each in results:
        if "shareID" in each:
            each["shareID"] = str(uuid.uuid4())
    return run.create(*results)


@driver_check
def dc05(run: DriverRun) -> None:
    [claim] = run.claims()
    run.unprepare(claim)


@driver_check
def dc06(run: DriverRun) -> None:
    [claim] = run.claims()
    run.prepare(claim)
    run.unprepare(claim)
    run.unprepare(claim)


@driver_check
def dc07(run: DriverRun) -> None:
    [claim] = run.claims()
    run.prepare(claim)
    _delete(run, claim)
    run.unprepare(claim)


def _delete(run: DriverRun, claim: ClaimObject) -> None:
    run.step("delete the claim")
    run.api.delete("resourceclaims", claim["metadata"]["name"])


@driver_check
def dc08(run: DriverRun) -> None:
    run.start()
    [claim] = run.claims()
    run.prepare(claim)
    run.step("stop the API server")
    run.api.stop()
    try:
        run.unprepare(claim)
    finally:
        run.api.start()


@driver_check
def dc09(run: DriverRun) -> str:
    claims = run.claims(3, least=2)
    run.prepare(*claims)
    run.unprepare(*claims)
    return f"{counted(len(claims), 'claim')} in one call"


@driver_check
def dc10(run: DriverRun) -> str:
    seen = _check_bad_claim(run, lambda result: {**result, "device": "no-such-device"})
    return seen or "the driver accepts the bad claim, too: see check DC11"


def _check_bad_claim(run: DriverRun, broken: Any, **options: Any) -> str:
    """Prepare a good and a bad claim in one call: only the bad one may fail.

    ``broken`` changes the allocation result of the bad claim. ``options`` are passed to
    ``claim_with`` for the bad claim. Return the error of the bad claim.
    """
    good, bad = run.results(2, least=2)
    claims = [run.create(good), run.create(broken(bad), **options)]
    with run.client() as client:
        entries = client.prepare(*map(reference, claims), seconds=run.limits.call_seconds)
    uids = [each["metadata"]["uid"] for each in claims]
    try:
        # The entry of the good claim stands in for that of the bad one, which may be missing or
        # have an error. So only the good entry is checked.
        check_entries("NodePrepareResources", {**entries, uids[1]: entries[uids[0]]}, claims)
    finally:
        run.forget(*claims)
    return printed_error(entries.get(uids[1]))


def printed_error(entry: Any) -> str:
    """Return a text with the error in ``entry``; empty if ``entry`` has no error or is None.

    ``entry`` is the entry of an invalid claim in a response; None if the response has no such
    entry.
    """
    error = "" if entry is None else entry.error
    return f"the bad claim has the error {error!r}" if error else ""


@driver_check
def dc11(run: DriverRun) -> None:
    [result] = run.results()
    claim = run.create({**result, "device": "no-such-device"})
    with run.client() as client:
        try:
            entry = client.prepare(reference(claim)).get(claim["metadata"]["uid"])
        except CallFailed as failed:
            _check_rejected(failed)
            return
    run.forget(claim)
    if entry is not None and not entry.error:
        raise Failed("NodePrepareResources succeeded for a device that the driver does not have")


def _check_rejected(failed: CallFailed) -> None:
    """Raise Failed if the driver did not respond at all."""
    if failed.is_lost:
        raise Failed(str(failed))


@driver_check
def dc12(run: DriverRun) -> None:
    [result] = run.results()
    foreign = {"request": REQUEST, "driver": _FOREIGN, "pool": "other", "device": "other-0"}
    with run.prepared(run.create(foreign, result)) as [entry]:
        named = {device.pool_name for device in entry.devices}
        # The pool of the driver under test may have the same name.
        if "other" in named and result["pool"] != "other":
            raise Failed("the response has the device of another driver")


@driver_check
def dc13(run: DriverRun) -> None:
    [result] = run.results()
    parameters = {"apiVersion": "other.example.com/v1", "kind": "OtherConfig", "level": 11}
    config = [
        {
            "source": "FromClaim",
            "requests": [REQUEST],
            "opaque": {"driver": _FOREIGN, "parameters": parameters},
        }
    ]
    claim = run.create(result, config=config)
    run.prepare(claim)
    run.unprepare(claim)


@driver_check
def dc14(run: DriverRun) -> None:
    [result] = run.results()
    alternative = {
        "name": _SUBREQUEST,
        "deviceClassName": CLASS,
        "tolerations": [_TOLERATE_ALL],
    }
    requests = [{"name": REQUEST, "firstAvailable": [alternative]}]
    claim = run.create({**result, "request": f"{REQUEST}/{_SUBREQUEST}"}, requests=requests)
    with run.prepared(claim) as [entry]:
        names = {name for device in entry.devices for name in device.request_names}
    if wrong := names - {REQUEST}:
        # Containers name only the request, and the kubelet compares the names as they are.
        raise Failed(
            f"the response names the request {min(wrong)!r}: expected {REQUEST!r}, without the "
            "subrequest"
        )


@driver_check
def dc15(run: DriverRun) -> None:
    [claim] = run.claims()
    [result] = claim["status"]["allocation"]["devices"]["results"]
    # Several claims may use a shared device at the same time.
    if "shareID" in result:
        raise Skipped("the driver's devices can be shared")
    run.prepare(claim)
    second = run.create(result)
    with run.client() as client:
        try:
            entry = client.prepare(reference(second)).get(second["metadata"]["uid"])
        except CallFailed as failed:
            _check_rejected(failed)
            run.forget(claim)
            return
    run.forget(second)
    run.forget(claim)
    if entry is not None and not entry.error:
        name = f"{result['pool']}/{result['device']}"
        raise Failed(f"device {name} was prepared for two claims at the same time")


@driver_check
def dc16(run: DriverRun) -> str:
    parameters = {"apiVersion": "conformance.example.com/v1", "kind": "Nonsense", "sharing": []}
    config = [
        {
            "source": "FromClaim",
            "requests": [REQUEST],
            "opaque": {"driver": run.driver, "parameters": parameters},
        }
    ]
    seen = _check_bad_claim(run, lambda result: result, config=config)
    return seen or "unknown parameters are ignored"


@driver_check
def dc17(run: DriverRun) -> None:
    [result] = run.results()
    missing = run.create(result)
    _delete(run, missing)
    _check_not_prepared(run, missing, "does not exist")


@driver_check
def dc18(run: DriverRun) -> None:
    pending = claim_with(run.new_name(), [])
    del pending["status"]
    _check_not_prepared(run, run.load(pending), "is not allocated")


@driver_check
def dc19(run: DriverRun) -> None:
    [result] = run.results()
    old = run.create(result)
    _delete(run, old)
    run.load(claim_with(old["metadata"]["name"], [result]))
    _check_not_prepared(run, old, "was replaced by a claim with another UID")


def _check_not_prepared(run: DriverRun, claim: ClaimObject, why: str) -> None:
    """Raise Failed if a claim can be prepared. The whole call may fail, or only the claim's
    entry."""
    run.step(f"NodePrepareResources for a claim that {why}")
    with run.client() as client:
        try:
            entry = client.prepare(reference(claim), seconds=run.limits.call_seconds).get(
                claim["metadata"]["uid"]
            )
        except CallFailed as failed:
            # With the Go library, a claim that cannot be read makes the whole call fail.
            _check_rejected(failed)
            entry = None
    # An entry without devices gives nothing to the pod.
    if entry is not None and not entry.error and entry.devices:
        run.forget(claim)
        raise Failed(f"NodePrepareResources succeeded for a claim that {why}")
    # The call must not have stopped the driver, or have left it unable to prepare other claims.
    [good] = run.claims()
    run.prepare(good)
    run.unprepare(good)


@driver_check
def dc20(run: DriverRun) -> str:
    run.start()
    [claim] = run.claims()
    before = set(run.cdi.registry().devices)
    # The driver gets the claim only after the deadline of the call. By then, the kubelet may have
    # unprepared the claim.
    delay = run.limits.slow_api_seconds
    run.api.faults.slow = delay
    run.step(f"NodePrepareResources with a deadline of {delay / 2:g} s, which is too short")
    with run.client() as client:
        try:
            client.prepare(reference(claim), seconds=delay / 2)
        except CallFailed as failed:
            if failed.code != "DEADLINE_EXCEEDED":
                raise Failed(f"NodePrepareResources failed before its deadline: {failed}") from None
        else:
            run.api.faults.clear()
            run.forget(claim)
            raise Skipped("the driver does not read the claim from the API server")
    run.api.faults.clear()
    run.unprepare(claim)
    # Long enough for the delayed response and for what the driver does with it.
    run.settle(2 * delay)
    if new := sorted(run.cdi.registry().devices.keys() - before):
        raise Failed(
            f"the CDI device {new[0]} was created after NodeUnprepareResources, by a "
            "NodePrepareResources call whose deadline had passed"
        )
    _check_free(run, claim, "a call whose deadline has passed")
    return f"with a deadline of {delay / 2:g} s"


@driver_check
def dc21(run: DriverRun) -> str:
    claims = run.claims(run.limits.parallel_claims, least=2)
    slowest, lock = 0.0, threading.Lock()

    def use(claim: ClaimObject) -> None:
        nonlocal slowest
        begin = time.monotonic()
        run.prepare(claim)
        took = time.monotonic() - begin
        run.unprepare(claim)
        with lock:
            slowest = max(slowest, took)

    with ThreadPoolExecutor(len(claims)) as pool:
        # A list, so that all calls begin before the first result is awaited.
        for done in [pool.submit(use, claim) for claim in claims]:
            done.result()
    if slowest > run.limits.call_warn_seconds:
        raise Warned(f"{counted(len(claims), 'claim')} at the same time took up to {slowest:.1f} s")
    return f"{counted(len(claims), 'claim')}, at most {slowest:.2f} s"


@driver_check
def dc22(run: DriverRun) -> str:
    # Other checks on this stage may have led to rejections, too.
    mark = len(run.rejected("resourceclaims", "status"))
    [claim] = run.claims()
    with run.prepared(claim):
        # A driver may write the status after its response.
        run.settle()
        stored = run.api.get("resourceclaims", claim["metadata"]["name"]) or {}
    if new := run.rejected("resourceclaims", "status")[mark:]:
        raise Failed(f"the API server rejected status.devices: {new[-1]}")
    devices: list[Mapping[str, Any]] = stored.get("status", {}).get("devices") or []
    if not devices:
        raise Skipped("the driver does not write status.devices")
    return counted(len(devices), "device")


@driver_check
def dc23(run: DriverRun) -> None:
    [claim] = run.claims()
    [result] = claim["status"]["allocation"]["devices"]["results"]
    if "shareID" in result:
        raise Skipped("the driver's devices can be shared")
    _allow_admin_access(run, claim["metadata"]["namespace"])
    wanted = {"deviceClassName": CLASS, "adminAccess": True, "tolerations": [_TOLERATE_ALL]}
    admin = run.create(
        {**result, "adminAccess": True}, requests=[{"name": REQUEST, "exactly": wanted}]
    )
    with run.prepared(claim) as [entry]:
        with run.prepared(admin):
            run.check_resolved(entry, " after a claim with admin access was prepared")
        run.check_resolved(entry, " after a claim with admin access was unprepared")


def _allow_admin_access(run: DriverRun, namespace: str) -> None:
    """Set the label without which the API server rejects claims with admin access."""
    run.step(f"allow admin access in namespace {namespace}")

    def labelled(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "metadata": {**old["metadata"], "labels": {ADMIN_LABEL: "true"}}}

    run.api.change("namespaces", namespace, labelled)
