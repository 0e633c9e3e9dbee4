"""Checks of family S: PreStartContainer."""

from __future__ import annotations

import time

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks.steps import UNKNOWN_ID, pre_start_client
from devicemanager.conformance.client import CallFailed, PluginClient, rejection
from devicemanager.conformance.outcomes import Failed, Skipped
from devicemanager.conformance.registry import builtin

_FIRST_CALL = "the first call"


def _pre_start(run: CheckRun, client: PluginClient, ids: list[str], when: str) -> float:
    """Call PreStartContainer and return the seconds it took. ``when`` describes the call in errors.

    Raises Failed if the call fails, and Skipped if it is not implemented.
    """
    begin = time.monotonic()
    try:
        client.pre_start(ids, run.limits.pre_start_seconds)
    except CallFailed as error:
        if error.code == "UNIMPLEMENTED":
            raise Skipped(str(error), cause="O03") from None
        # Every call has the same deadline.
        if error.code == "DEADLINE_EXCEEDED" and when != _FIRST_CALL:
            raise Skipped(f"{when}: {error}", cause="S01") from None
        raise Failed(f"{when}: {error}") from None
    return time.monotonic() - begin


@builtin
def s01(run: CheckRun) -> str:
    with pre_start_client(run) as (client, ids):
        return f"{_pre_start(run, client, ids, _FIRST_CALL):.3f} s"


@builtin
def s02(run: CheckRun) -> None:
    with pre_start_client(run) as (client, ids):
        for number in range(1, run.limits.repeats + 1):
            _pre_start(run, client, ids, f"call {number}")


@builtin
def s03(run: CheckRun) -> None:
    run.start()
    with pre_start_client(run) as (_, ids):
        pass  # only allocate
    run.plugin.end(run.process)
    run.relaunch("the plugin's restart")
    if not {*ids} <= {device.ID for device in run.devices()}:
        raise Skipped(f"the restarted plugin does not list {ids[0]}", cause="K13")
    # Without another Allocate, as on a node: the kubelet has stored the first response.
    with run.client() as client:
        _pre_start(run, client, ids, "after the plugin's restart")


@builtin
def s04(run: CheckRun) -> None:
    with pre_start_client(run) as (client, _):
        if rejection(lambda: client.pre_start([UNKNOWN_ID])) is None:
            raise Failed("PreStartContainer accepted an unknown ID")
