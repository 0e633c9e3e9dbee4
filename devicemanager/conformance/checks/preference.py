"""Checks of family P: GetPreferredAllocation."""

from __future__ import annotations

from functools import partial

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks.steps import UNKNOWN_ID, preference_client
from devicemanager.conformance.client import CallFailed, PluginClient, rejection
from devicemanager.conformance.outcomes import Failed, Skipped
from devicemanager.conformance.registry import builtin
from devicemanager.core.printable import counted, listed

_MOST_MISSING = 16
_MOST_SHOWN = 4


def _preferred(client: PluginClient, available: list[str], must: list[str], size: int) -> list[str]:
    """Call GetPreferredAllocation for one container and return the preferred IDs.

    Raises Failed if the call fails or the response is invalid. Raises Skipped if the call is not
    implemented.
    """
    request = (
        f"GetPreferredAllocation of {counted(size, 'device')} from {_some(available)}, which must "
        f"include {_some(must)}"
    )
    try:
        responses = client.preferred((available, must, size))
    except CallFailed as error:
        raise _failed(request, error) from None
    if len(responses) != 1:
        raise Failed(f"{request}: the plugin returned {len(responses)} responses for one container")
    [ids] = responses
    if len(set(ids)) < len(ids):
        raise Failed(f"{request}: the response contains a device twice: {_some(ids)}")
    if len(ids) != size:
        raise Failed(f"{request}: the response has {counted(len(ids), 'device')}: {_some(ids)}")
    if unavailable := set(ids) - set(available):
        raise Failed(f"{request}: the response has {min(unavailable)}, which is not available")
    if left_out := set(must) - set(ids):
        raise Failed(f"{request}: the response lacks {min(left_out)}, which it must include")
    return ids


def _failed(request: str, error: CallFailed) -> Exception:
    if error.code == "UNIMPLEMENTED":
        return Skipped(str(error), cause="O02")
    return Failed(f"{request}: {error}")


def _some(ids: list[str]) -> str:
    return f"[{listed(ids, _MOST_SHOWN)}]"


@builtin
def p01(run: CheckRun) -> None:
    with preference_client(run) as (client, ids):
        for _ in range(run.limits.random_preferences):
            available = run.rng.sample(ids, run.rng.randint(1, len(ids)))
            size = run.rng.randint(1, len(available))
            must = run.rng.sample(available, run.rng.randint(0, size))
            _preferred(client, available, must, size)


@builtin
def p02(run: CheckRun) -> None:
    with preference_client(run) as (client, ids):
        _preferred(client, ids, [], len(ids))
        _preferred(client, ids, ids[:1], 1)
        _preferred(client, ids, ids, len(ids))


@builtin
def p03(run: CheckRun) -> None:
    with preference_client(run, least=2) as (client, ids):
        # A device that is in use or unhealthy is not available. A plugin that needs all of its
        # devices to compute a preference then fails. Because of such a plugin, one broken GPU
        # blocked a node for days.
        for missing in ids[:_MOST_MISSING]:
            _preferred(client, [id_ for id_ in ids if id_ != missing], [], 1)


@builtin
def p04(run: CheckRun) -> None:
    with preference_client(run) as (client, ids):
        for available, must, size in (
            (ids, [], len(ids) + 1),
            (ids[1:], ids[:1], 1),
            ([], [], 1),
            (ids, [], -1),
            ([UNKNOWN_ID], [], 1),
        ):
            # Any response is acceptable. The kubelet never sends these requests, but other clients
            # or bugs can.
            rejection(partial(client.preferred, (available, must, size)))
    run.check_alive("impossible requests")


@builtin
def p05(run: CheckRun) -> str:
    with preference_client(run) as (client, ids):
        ids = sorted(ids)[: run.limits.single_devices]
        size = min(8, (len(ids) + 1) // 2)  # half of a few devices, so that there is a choice
        responses: list[list[str]] = []

        def call() -> None:
            responses.append(sorted(_preferred(client, ids, [], size)))

        # The fastest call counts: on a busy machine, any single call can be slow.
        took = min(run.timed(call, "a preference") for _ in range(run.limits.same_preferences))
    for other in responses:
        if other != responses[0]:
            raise Failed(
                f"GetPreferredAllocation returned {responses[0]} and {other} for the same request"
            )
    if took > run.limits.preferred_seconds:
        raise Failed(
            f"GetPreferredAllocation took {took:.1f} s, limit {run.limits.preferred_seconds:g} s"
        )
    return f"{took:.3f} s"


@builtin
def p06(run: CheckRun) -> None:
    with preference_client(run) as (client, ids):
        for count in (1, 2, 4):
            try:
                responses = client.preferred(*[(ids, [], 1)] * count)
            except CallFailed as error:
                raise _failed(counted(count, "container"), error) from None
            if len(responses) != count:
                raise Failed(
                    f"GetPreferredAllocation returned {counted(len(responses), 'response')} for "
                    f"{counted(count, 'container')}"
                )
