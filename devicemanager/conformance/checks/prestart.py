"""S: PreStartContainer."""

from __future__ import annotations

import time

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.client import CallFailed, PluginClient, rejection
from devicemanager.conformance.outcomes import Failed, Scene, Severity, Skipped
from devicemanager.conformance.registry import check

MUST = Severity.MUST


def _allocated(trial: CheckRun, client: PluginClient) -> list[str]:
    """A device that was allocated, if PreStartContainer is asked for."""
    ids = trial.healthy_ids()[:1]
    if not client.options().pre_start_required:
        raise Skipped("the options do not ask for PreStartContainer")
    client.allocate(ids)
    return ids


def _pre_start(trial: CheckRun, client: PluginClient, ids: list[str], when: str) -> float:
    begin = time.monotonic()
    try:
        client.pre_start(ids, trial.limits.pre_start_seconds)
    except CallFailed as error:
        if error.code == "UNIMPLEMENTED":
            raise Skipped(f"{error}: see O03") from None
        raise Failed(f"{when}: {error}") from None
    return time.monotonic() - begin


@check(
    "S01",
    MUST,
    "prepares a container in time",
    does="calls PreStartContainer",
    expects="an answer within pre_start_seconds, the only deadline that the kubelet sets",
    production='"PreStartContainer rpc failed"',
    links="DM",
)
def s01(trial: CheckRun) -> str:
    with trial.client() as client:
        took = _pre_start(trial, client, _allocated(trial, client), "the first call")
    return f"{took:.3f} s"


@check(
    "S02",
    MUST,
    "prepares a container again",
    does="calls PreStartContainer with the same ids as often as the limit repeats says, with no "
    "Allocate between",
    expects="an answer each time",
    production="the second start of a container fails",
    links="DOC, PROTO",
)
def s02(trial: CheckRun) -> None:
    with trial.client() as client:
        ids = _allocated(trial, client)
        for number in range(1, trial.limits.repeats + 1):
            _pre_start(trial, client, ids, f"call {number}")


@check(
    "S03",
    MUST,
    "prepares a container after its own restart",
    does="allocates a device, restarts the plugin, and calls PreStartContainer",
    expects="an answer: the kubelet keeps the answer to Allocate and does not ask again",
    production="restarted pods are stuck",
    links="DM",
    scene=Scene.OWN,
)
def s03(trial: CheckRun) -> None:
    trial.start()
    with trial.client() as client:
        ids = _allocated(trial, client)
    trial.process.stop()
    trial.relaunch("the plugin's restart")
    with trial.client() as client:
        _pre_start(trial, client, ids, "after the plugin's restart")


@check(
    "S04",
    MUST,
    "rejects to prepare what is not there",
    does="calls PreStartContainer with an unknown id",
    expects="an error",
    production="a container starts without its device",
    links="PROTO",
)
def s04(trial: CheckRun) -> None:
    with trial.client() as client:
        _allocated(trial, client)
        if rejection(lambda: client.pre_start(["no-such-device"])) is None:
            raise Failed("PreStartContainer took an unknown id")
