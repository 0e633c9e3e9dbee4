"""Checks of family DN: a driver that is also an NRI plugin."""

from __future__ import annotations

from devicemanager.conformance.drivers.described import driver_check
from devicemanager.conformance.drivers.run import DriverRun
from devicemanager.conformance.outcomes import Failed
from devicemanager.kubelet.nri import NriContainer, NriRuntime


@driver_check
def dn01(run: DriverRun) -> str:
    run.start()
    _wait_plugin(run, "its start")
    [claim] = run.claims()
    uid, other = run.admit(claim), run.admit()
    seen = _shown(_container(run, uid)), _shown(_container(run, other))
    run.kubelet.terminate(other)
    run.kubelet.terminate(uid)
    # Checked last, because NRI plugins can subscribe to the end of containers, too.
    if not _runtime(run).plugins():
        raise Failed(f"the NRI plugin was disconnected: {run.stage.nri_report}")
    return f"with a claim: {seen[0]}; without: {seen[1]}"


@driver_check
def dn02(run: DriverRun) -> str:
    run.start()
    _wait_plugin(run, "its start")
    [claim] = run.claims()
    uid = run.admit(claim)
    before = _container(run, uid)
    run.step("SIGKILL")
    run.process.kill()
    run.relaunch("SIGKILL")
    _wait_plugin(run, "SIGKILL")
    after = _container(run, uid)
    run.kubelet.terminate(uid)
    if after != before:
        raise Failed(
            f"Synchronize has changed the container: {_shown(before)} before, {_shown(after)} after"
        )
    return _shown(after)


def _runtime(run: DriverRun) -> NriRuntime:
    assert run.stage.nri is not None  # the check requires the option
    return run.stage.nri


def _wait_plugin(run: DriverRun, after: str) -> None:
    """Wait until the driver has connected as an NRI plugin. Raises Failed."""
    took = run.until(lambda: bool(_runtime(run).plugins()), run.limits.recover_seconds)
    if took is None:
        why = run.stage.nri_report or f"nothing connected to {_runtime(run).path.name}"
        raise Failed(
            f"no NRI plugin is connected {run.limits.recover_seconds:g} s after {after}: {why}"
        )


def _container(run: DriverRun, uid: str) -> NriContainer:
    return _runtime(run).container(uid, "main")


def _shown(container: NriContainer) -> str:
    """Return what the driver has set in a container."""
    return f"cpus {container.cpus or 'all'}, mems {container.mems or 'all'}"
