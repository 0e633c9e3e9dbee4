"""Checks of family DL: start and stop of a driver, and what it leaves behind."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

from devicemanager.conformance.drivers.claims import REQUEST
from devicemanager.conformance.drivers.described import driver_check
from devicemanager.conformance.drivers.run import DriverRun
from devicemanager.conformance.outcomes import Failed, Skipped
from devicemanager.core.printable import counted


@driver_check
def dl01(run: DriverRun) -> str:
    run.start()
    return f"{_stop(run):.2f} s"


def _stop(run: DriverRun) -> float:
    """Send SIGTERM, and return the seconds until the exit. Raises Failed after
    ``grace_seconds``."""
    run.step("SIGTERM")
    # Not ``plugin.stop``, which kills a driver that does not exit in time.
    run.process.send_signal(signal.SIGTERM)
    took = run.until(lambda: not run.process.is_running, run.limits.grace_seconds)
    if took is None:
        raise Failed(f"the driver still runs {run.limits.grace_seconds:g} s after SIGTERM")
    return took


@driver_check
def dl02(run: DriverRun) -> None:
    run.start()
    _stop(run)
    _check_no_sockets(run, "SIGTERM")


def _check_no_sockets(run: DriverRun, after: str) -> None:
    if left := run.registration_sockets():
        hint = _GO_HINT if run.process.exit_status == 1 else ""
        raise Failed(f"{left[0].name} is still in plugins_registry after {after}{hint}")


# log.Fatal exits with status 1.
_GO_HINT = (
    ": exit status 1; a driver in Go must call Helper.Stop before it exits, because log.Fatal and "
    "os.Exit skip deferred calls"
)


@driver_check
def dl03(run: DriverRun) -> str:
    run.start_kubelet()
    # The verdict can depend on the delay, so the first ones are fixed and only further ones random.
    delays = [0.0, 0.3, 1.0, *(run.rng.uniform(0, 1.5) for _ in range(run.limits.early_stops))]
    for delay in delays[: run.limits.early_stops]:
        run.launch()
        seen = run.until(
            lambda: run.plugin.has_exited or bool(run.registration_sockets()),
            run.limits.start_seconds,
        )
        if seen is None or run.plugin.has_exited:
            raise Skipped("the driver did not create a socket", cause="DR01")
        time.sleep(delay)
        after = f"SIGTERM {delay:.1f} s after its first socket"
        run.step(after)
        if run.process.is_running:
            run.process.send_signal(signal.SIGTERM)
        if run.until(lambda: not run.process.is_running, run.limits.grace_seconds) is None:
            raise Failed(f"the driver still runs {run.limits.grace_seconds:g} s after {after}")
        _check_no_sockets(run, after)
    return f"stopped {counted(run.limits.early_stops, 'time')}"


@driver_check
def dl04(run: DriverRun) -> str:
    [claim] = run.claims()
    # The layout of KEP-5304 (device metadata).
    directory = run.kubelet.root / "plugins" / run.driver / "dra-device-metadata"
    with run.prepared(claim):
        files = _metadata(directory)
        if not files:
            raise Skipped("the driver writes no device metadata")
        _check_metadata(claim, files)
    if left := _metadata(directory):
        raise Failed(f"{min(left)} still exists after NodeUnprepareResources")
    return counted(len(files), "file")


def _metadata(directory: Path) -> dict[Path, Any]:
    if not directory.is_dir():
        return {}
    try:
        return {each: json.loads(each.read_text()) for each in directory.rglob("metadata.json")}
    except ValueError as error:
        raise Failed(f"invalid metadata.json: {error}") from None


def _check_metadata(claim: Any, files: dict[Path, Any]) -> None:
    """Raise Failed if a file is not about the claim and its request."""
    name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
    for path, content in files.items():
        if path.parent.name != REQUEST or path.parent.parent.name != f"{namespace}_{name}":
            found = f"{path.parent.parent.name}/{path.parent.name}"
            raise Failed(f"{path.name} is in {found}: expected {namespace}_{name}/{REQUEST}")
        if not isinstance(content, dict) or "requests" not in content:
            raise Failed(f"{path.name} has no field named requests")
