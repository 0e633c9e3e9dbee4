"""Checks of family DK: restarts of the kubelet and the driver, reboots, upgrades."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from pathlib import Path

from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.drivers.described import driver_check
from devicemanager.conformance.drivers.run import ClaimObject, DriverRun, cdi_ids, shown
from devicemanager.conformance.drivers.stage import POD_UIDS
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.core.printable import counted
from podresources.sockets import FileIdentity
from protos import dra_v1


@driver_check
def dk01(run: DriverRun) -> str:
    run.start()
    return f"registered {run.restart_and_recover():.2f} s after the restart"


@driver_check
def dk02(run: DriverRun) -> None:
    run.start()
    [claim] = run.claims()
    [before] = run.prepare(claim)
    run.restart_and_recover()
    _check_again(run, claim, before, "the kubelet's restart")
    run.unprepare(claim)


def _check_again(
    run: DriverRun,
    claim: ClaimObject,
    before: dra_v1.NodePrepareResourceResponse,
    after: str,
) -> None:
    """Prepare a claim again. Raises Failed if the response differs or has an unresolved CDI ID."""
    [again] = run.prepare(claim)
    if shown(again) != shown(before):
        raise Failed(f"the response after {after} differs: {shown(again)}; before: {shown(before)}")
    run.check_resolved(again, f" after {after}")


def _restart(run: DriverRun, after: str) -> None:
    """Start the driver again, and wait until the kubelet is connected to it."""
    since = run.kubelet.mark()
    run.launch()
    run.wait_registered(since, run.limits.recover_seconds, after)
    run.wait_devices()


@driver_check
def dk03(run: DriverRun) -> None:
    run.start()
    [claim] = run.claims()
    [before] = run.prepare(claim)
    run.step("SIGTERM")
    run.plugin.stop(run.process)
    _restart(run, "the driver's restart")
    _check_again(run, claim, before, "the driver's restart")
    run.unprepare(claim)


@driver_check
def dk04(run: DriverRun) -> str:
    run.start()
    [claim] = run.claims()
    [before] = run.prepare(claim)
    run.step("SIGKILL")
    run.process.kill()
    begin = time.monotonic()
    _restart(run, "SIGKILL")
    took = time.monotonic() - begin
    _check_again(run, claim, before, "SIGKILL")
    run.unprepare(claim)
    return f"back after {took:.2f} s"


@driver_check
def dk05(run: DriverRun) -> str:
    run.start()
    [claim] = run.claims()
    begin = time.monotonic()
    [wanted] = run.prepare(claim)
    took = time.monotonic() - begin
    run.unprepare(claim)
    # The kills are spread over the duration of a normal call, so that they hit different steps of
    # the driver, such as the writes of the checkpoint and of the CDI file.
    for number in range(1, run.limits.kills + 1):
        _kill_during_prepare(run, claim, took * number / (run.limits.kills + 1))
        _restart(run, "SIGKILL during NodePrepareResources")
        _check_complete(run, claim, wanted)
    return f"killed {counted(run.limits.kills, 'time')}"


def _check_complete(
    run: DriverRun, claim: ClaimObject, wanted: dra_v1.NodePrepareResourceResponse
) -> None:
    """Prepare a claim again after a call that was killed, and unprepare it.

    Raises Failed if the response lacks a device, or if unprepare leaves a CDI device. The names of
    CDI devices may differ, because the driver may have stored nothing before it was killed.
    """
    [again] = run.prepare(claim)
    if shown(again, cdi=False) != shown(wanted, cdi=False):
        raise Failed(f"incomplete response after SIGKILL: {shown(again)}; before: {shown(wanted)}")
    run.check_resolved(again, " after SIGKILL during NodePrepareResources")
    run.unprepare(claim)
    left = {*cdi_ids(again)} & run.cdi.registry().devices.keys()
    if left and _is_of_claim(again, claim):
        raise Failed(f"CDI device {min(left)} still exists after NodeUnprepareResources")


def _is_of_claim(entry: dra_v1.NodePrepareResourceResponse, claim: ClaimObject) -> bool:
    """True if the CDI devices of a response are only for the claim, not shared by all claims."""
    return all(claim["metadata"]["uid"] in id_ for id_ in cdi_ids(entry))


def _kill_during_prepare(run: DriverRun, claim: ClaimObject, delay: float) -> None:
    def prepare() -> None:
        # The call may fail, or end before the kill. Both are normal.
        with contextlib.suppress(CallFailed, Failed):
            run.prepare(claim)

    call = threading.Thread(target=prepare, daemon=True)
    call.start()
    time.sleep(delay)
    run.step(f"SIGKILL {delay:.3f} s after the call")
    run.process.kill()
    call.join()


@driver_check
def dk06(run: DriverRun) -> str:
    run.start()
    [claim] = run.claims()
    [result] = claim["status"]["allocation"]["devices"]["results"]
    # Another claim can use a shared device even if the first claim still occupies it.
    if "shareID" in result:
        raise Skipped("the driver's devices can be shared")
    run.prepare(claim)
    run.plugin.stop(run.process)
    run.step("delete the claim")
    run.api.delete("resourceclaims", claim["metadata"]["name"])
    _restart(run, "the driver's restart")
    other = run.create(result)
    error = ""

    def is_free() -> bool:
        nonlocal error
        try:
            run.prepare(other)
        except (CallFailed, Failed) as failed:
            error = str(failed)
            # Seldom enough for the log of the driver.
            time.sleep(min(1.0, run.limits.settle_seconds))
            return False
        return True

    took = run.until(is_free, run.limits.recover_seconds)
    if took is None:
        raise Failed(
            "a device is not free, although its claim was deleted while the driver was down: "
            f"{error}"
        )
    run.unprepare(other)
    return f"free after {took:.1f} s"


@driver_check
def dk07(run: DriverRun) -> str:
    run.start()
    run.stop_kubelet()
    run.step("remove plugins_registry")
    shutil.rmtree(run.registry)
    # A driver that watches the directory must notice the removal before the kubelet creates the
    # directory again.
    run.settle()
    since = run.kubelet.mark()
    run.start_kubelet()
    took = run.wait_registered(since, run.limits.recover_seconds, "plugins_registry was removed")
    return f"back after {took:.1f} s"


@driver_check
def dk08(run: DriverRun) -> str:
    run.start()
    old, old_sockets = run.process, run.registration_sockets()
    [claim] = run.claims()
    [before] = run.prepare(claim)
    _start_second_instance(run)
    new_sockets = [each for each in run.registration_sockets() if each not in old_sockets]
    if not new_sockets:
        raise Warned(
            "both instances use the same sockets, so a rolling update interrupts the driver"
        )
    _check_again(run, claim, before, "the start of a second instance")
    identities = {path: FileIdentity.of(path) for path in new_sockets}
    run.step("SIGTERM to the first instance")
    run.plugin.stop(old)
    # The second instance may have created its socket again, but there was a gap.
    if any(FileIdentity.of(path) != identity for path, identity in identities.items()):
        raise Failed("the exit of the first instance removed a socket of the second instance")
    _check_one_instance(run, old_sockets)
    _check_again(run, claim, before, "the exit of the first instance")
    run.unprepare(claim)
    return "the second instance has unprepared a claim of the first instance"


def _start_second_instance(run: DriverRun) -> None:
    """Start an instance of another pod, and wait for its registration. Raises Warned."""
    since = run.kubelet.mark()
    run.step("start a second instance, of another pod")
    run.plugin.pod_uid = POD_UIDS[1]
    run.launch()
    # Not ``wait_registered``, which raises Failed: drivers need not support a second instance.
    took = run.until(
        lambda: run.plugin.has_exited or run.driver in run.registered_names(since),
        run.limits.start_seconds,
    )
    if run.plugin.has_exited:
        raise Warned(f"a second instance cannot start: {run.plugin.exit_text()}")
    if took is None:
        raise Warned("a second instance does not register while the first one runs")


def _check_one_instance(run: DriverRun, old: list[Path]) -> None:
    """Raise Failed unless exactly one instance is still connected to the kubelet. ``old`` are the
    sockets of the first instance."""
    took = run.until(
        lambda: [each.connected for each in run.instances()] == [True],
        run.limits.recover_seconds,
    )
    if took is None:
        left = [each.name for each in old if each.exists()]
        raise Failed(
            f"after the exit of the first instance, the kubelet has "
            f"{counted(len(run.instances()), 'registered instance')}: expected one that is "
            f"connected{'; the first instance has left its socket ' + left[0] if left else ''}"
        )


@driver_check
def dk09(run: DriverRun) -> str:
    return _check_versions(run, previous_first=True)


@driver_check
def dk10(run: DriverRun) -> str:
    return _check_versions(run, previous_first=False)


def _check_versions(run: DriverRun, *, previous_first: bool) -> str:
    """Prepare a claim with one version of the driver, and unprepare it with the other version."""
    names = ["the previous version", "the new version"]
    one, two = names if previous_first else names[::-1]
    run.plugin.runs_previous = previous_first
    run.start()
    [claim] = run.claims()
    run.prepare(claim)
    run.plugin.stop(run.process)
    run.plugin.runs_previous = not previous_first
    _restart(run, f"the start of {two}")
    problem = _why_not_again(run, claim)
    run.unprepare(claim)
    [other] = run.claims()
    run.prepare(other)
    run.unprepare(other)
    if problem:
        raise Warned(
            f"{two} has unprepared a claim that {one} had prepared, but before that, a repeated "
            f"NodePrepareResources failed: {problem}"
        )
    return f"{two} has unprepared a claim that {one} had prepared"


def _why_not_again(run: DriverRun, claim: ClaimObject) -> str:
    """Return the error of another NodePrepareResources; empty if it succeeds.

    The error is not a failure of the check: a version of the driver may have other devices.
    """
    try:
        [again] = run.prepare(claim)
        run.check_resolved(again)
    except (CallFailed, Failed) as failed:
        return str(failed)
    return ""


@driver_check
def dk11(run: DriverRun) -> str:
    run.start()
    [claim] = run.claims()
    run.prepare(claim)
    run.plugin.stop(run.process)
    damaged = _damage_checkpoint(run)
    since = run.kubelet.mark()
    run.launch()
    files = ", ".join(damaged)
    run.wait_registered(since, run.limits.recover_seconds, f"these files were damaged: {files}")
    run.unprepare(claim)
    return f"unprepared after these files were damaged: {files}"


def _damage_checkpoint(run: DriverRun) -> list[str]:
    """Cut all files in the driver's directory in half, and return their names. Raises Skipped if
    there are none."""
    directory = run.kubelet.root / "plugins" / run.driver
    # Without sockets, which are not regular files, and without files that have nothing to lose.
    files = [each for each in directory.rglob("*") if each.is_file() and each.stat().st_size]
    if not files:
        raise Skipped("the driver has no files in its directory")
    # A file that was written just before a power failure can lose its end.
    for each in files:
        content = each.read_bytes()
        each.write_bytes(content[: len(content) // 2])
    return sorted(each.name for each in files)


@driver_check
def dk12(run: DriverRun) -> None:
    run.start()
    [claim] = run.claims()
    [before] = run.prepare(claim)
    run.step("reboot: SIGKILL, no files in /var/run/cdi, no sockets, another boot ID")
    run.process.kill()
    run.stop_kubelet()
    # /etc/cdi is on a disk.
    run.cdi.remove_files([run.stage.cdi_dir])
    for each in run.registration_sockets():
        each.unlink()
    # With the same boot ID, a driver may rightly assume that its CDI files still exist.
    run.stage.new_boot_id()
    run.start_kubelet()
    _restart(run, "a reboot")
    [again] = run.prepare(claim)
    if len(again.devices) != len(before.devices):
        raise Failed(
            f"the response has {counted(len(again.devices), 'device')} after a reboot, "
            f"{len(before.devices)} before"
        )
    run.check_resolved(again, " after a reboot")
    run.unprepare(claim)
