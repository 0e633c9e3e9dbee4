"""Checks of family DS: the ResourceSlices of a driver."""

from __future__ import annotations

from collections import Counter

from devicemanager.conformance.drivers.described import driver_check
from devicemanager.conformance.drivers.run import WRITES, DriverRun
from devicemanager.conformance.drivers.stage import NODE
from devicemanager.conformance.outcomes import Failed, Skipped, Warned
from devicemanager.core.printable import counted

_SLICES = "resourceslices"


@driver_check
def ds01(run: DriverRun) -> str:
    _wait_written(run)
    if not run.slices():
        if rejected := run.rejected(_SLICES):
            raise Failed(f"the API server rejected every ResourceSlice: {rejected[-1]}")
        # Not a failure: this machine may lack the driver's hardware.
        raise Warned("no ResourceSlice: correct only on a node without devices")
    if problem := run.incomplete():
        raise Failed(problem)
    return f"{counted(len(run.devices()), 'device')} in {counted(len(run.slices()), 'slice')}"


def _wait_written(run: DriverRun) -> None:
    """Wait until the driver has written a slice, or has tried to write one.

    ``DriverRun.start`` does not wait for slices if the driver had no devices on an earlier stage.
    """
    run.until(lambda: bool(run.slices() or run.writes(_SLICES)), run.limits.publish_seconds)


@driver_check
def ds02(run: DriverRun) -> None:
    _wait_written(run)
    if rejected := run.rejected(_SLICES):
        raise Failed(f"the API server rejected a ResourceSlice: {rejected[-1]}")
    _need_slices(run)


@driver_check
def ds03(run: DriverRun) -> None:
    _need_slices(run)
    twice = [each for each, count in Counter(run.devices()).items() if count > 1]
    if twice:
        raise Failed(f"pool {twice[0][0]} has the device {twice[0][1]} twice")
    for each in run.slices():
        spec = each["spec"]
        node = spec.get("nodeName")
        if node is not None and node != NODE:
            raise Failed(f"slice {each['metadata']['name']} has nodeName {node}, expected {NODE}")


def _need_slices(run: DriverRun) -> None:
    if not run.slices():
        raise Skipped("the driver has published no slices", cause="DS01")


@driver_check
def ds04(run: DriverRun) -> str:
    run.start()
    _need_slices(run)
    before = sorted(run.devices())
    run.delete_slices()
    took = run.wait_slices("a kubelet deleted the slices")
    _check_same(run, before, "the slices were deleted")
    return f"{took:.1f} s"


def _check_same(run: DriverRun, before: list[tuple[str, str]], after: str) -> None:
    """Raise Failed if the driver publishes other devices than before."""
    now = sorted(run.devices())
    if now != before:
        new, gone = sorted({*now} - {*before}), sorted({*before} - {*now})
        raise Failed(
            f"the published devices differ after {after}: "
            f"new {', '.join(map('/'.join, new)) or 'none'}, "
            f"missing {', '.join(map('/'.join, gone)) or 'none'}"
        )


@driver_check
def ds05(run: DriverRun) -> str:
    run.start()
    _need_slices(run)
    before, count = sorted(run.devices()), len(run.slices())
    run.plugin.stop(run.process)
    run.relaunch("the driver's restart")
    run.wait_slices("the driver's restart")
    # The slices of the earlier instance are complete, too. The new one may still change them.
    run.settle()
    _check_same(run, before, "the driver's restart")
    if len(run.slices()) != count:
        raise Failed(
            f"{counted(len(run.slices()), 'slice')} after the driver's restart, {count} before"
        )
    return counted(len(before), "device")


@driver_check
def ds06(run: DriverRun) -> str:
    run.start_kubelet()
    run.api.faults.fail(409, lambda r: r.resource == _SLICES and r.verb in WRITES, times=2)
    run.step("respond to the first two writes of slices with 409")
    since = run.kubelet.mark()
    run.launch()
    run.wait_registered(since, run.limits.start_seconds, "its start")
    # The number is unknown if the suite has not run the driver before. Then expect devices.
    if not run.stage.device_counts.get(run.driver, 1):
        raise Skipped("the driver publishes no devices")
    return f"{run.wait_slices('two responses with 409'):.1f} s"


@driver_check
def ds07(run: DriverRun) -> str:
    run.start()
    _need_slices(run)
    run.step("stop the API server")
    run.api.stop()
    # No watch is open, so the driver gets no event for the deletions.
    run.delete_slices()
    # A watch from before the deletions gets 410.
    run.api.forget_changes()
    run.step("start the API server")
    run.api.start()
    return f"{run.wait_slices('the slices were deleted while no watch was open'):.1f} s"


@driver_check
def ds08(run: DriverRun) -> str:
    run.start_kubelet()
    run.step("delete the Node")
    run.api.delete("nodes", NODE)
    requests = run.api.requests.total()
    process = run.launch()

    def has_asked() -> bool:
        return run.plugin.has_exited or run.api.requests.total() > requests

    # A slow driver must ask for the Node before the Node exists.
    run.until(has_asked, run.limits.start_seconds)
    run.until(lambda: run.plugin.has_exited, run.limits.away_seconds)
    run.step("create the Node")
    run.api.create("nodes", {"metadata": {"name": NODE}})
    if run.plugin.has_exited:
        if process.exit_status == 0:
            raise Failed("the driver exited with status 0 without a Node")
        raise Warned(f"the driver exited without a Node: {run.plugin.exit_text()}")
    if not run.stage.device_counts.get(run.driver, 1):
        raise Skipped("the driver publishes no devices")
    return f"{run.wait_slices('the Node was created'):.1f} s"


@driver_check
def ds09(run: DriverRun) -> str:
    # The versions of an API server are fixed when it is created, so the stage gets a new one.
    run.api.stop()
    run.step("serve resource.k8s.io only in v1beta1")
    run.stage.serve_api(hidden=("resource.k8s.io/v1", "resource.k8s.io/v1beta2"))
    run.start_kubelet()
    run.launch()
    if not run.stage.device_counts.get(run.driver, 1):
        raise Skipped("the driver publishes no devices")
    took = run.until(
        lambda: run.plugin.has_exited or not run.incomplete(), run.limits.publish_seconds
    )
    if run.plugin.has_exited or took is None:
        raise Failed("the driver needs resource.k8s.io/v1: Kubernetes 1.34 or later")
    return f"{took:.1f} s"


@driver_check
def ds10(run: DriverRun) -> None:
    _need_slices(run)
    for each in run.slices():
        for device in each["spec"].get("devices") or ():
            for name in device.get("attributes") or {}:
                if name.startswith(f"{run.driver}/"):
                    raise Failed(
                        f"device {device['name']} has the attribute {name}: omit the driver's "
                        "own domain"
                    )


@driver_check
def ds11(run: DriverRun) -> None:
    _need_slices(run)
    for each in run.slices():
        owners = each["metadata"].get("ownerReferences") or ()
        if not any(owner.get("kind") == "Node" for owner in owners):
            raise Failed(f"slice {each['metadata']['name']} has no Node as its owner")


@driver_check
def ds12(run: DriverRun) -> str:
    _need_slices(run)
    before = sorted(run.devices())
    pool, name = before[-1]
    run.hook("break-device", name)
    took = run.until(lambda: _has_changed(run, pool, name), run.limits.refresh_seconds)
    # Before the verdict, because later checks on this stage need the device.
    run.hook("recover-device", name)
    run.until(
        lambda: (pool, name) in run.devices() and not run.incomplete(), run.limits.refresh_seconds
    )
    if took is None:
        raise Failed(
            f"the slices still have device {pool}/{name} without a taint "
            f"{run.limits.refresh_seconds:g} s after the hook break-device"
        )
    if problem := run.incomplete():
        raise Failed(problem)
    _check_same(run, before, "the hooks break-device and recover-device")
    return f"{took:.1f} s"


def _has_changed(run: DriverRun, pool: str, name: str) -> bool:
    """True if the complete slices lack a device, or taint it."""
    # During an update, an incomplete pool may lack the device for a moment.
    return not run.incomplete() and not any(
        device["name"] == name and not device.get("taints")
        for each in run.slices()
        if each["spec"]["pool"]["name"] == pool
        for device in each["spec"].get("devices") or ()
    )
