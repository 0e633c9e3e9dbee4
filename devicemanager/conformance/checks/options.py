"""Checks of family O: the reported options, and the calls that these options announce."""

from __future__ import annotations

import time
from collections.abc import Callable

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.checks.steps import pre_start_client, preference_client
from devicemanager.conformance.client import CallFailed, rejection
from devicemanager.conformance.outcomes import Failed, Skipped
from devicemanager.conformance.registry import builtin


@builtin
def o01(run: CheckRun) -> str:
    # Called over a new connection: the kubelet makes this call before ListAndWatch.
    longest = 0.0
    for resource, client in run.clients():
        responses, seconds = [], []
        for _ in range(run.limits.repeats):
            begin = time.monotonic()
            responses.append(client.options(run.limits.allocate_seconds))
            seconds.append(time.monotonic() - begin)
        # The fastest call counts: on a busy machine, any single call can be slow.
        longest = max(longest, min(seconds))
        if any(response != responses[0] for response in responses):
            raise Failed(f"{resource}: two GetDevicePluginOptions calls returned different options")
    if longest > run.limits.options_seconds:
        raise Failed(
            f"GetDevicePluginOptions took {longest:.1f} s, limit {run.limits.options_seconds:g} s"
        )
    return f"{longest:.3f} s"


@builtin
def o02(run: CheckRun) -> None:
    with preference_client(run) as (client, ids):
        try:
            client.preferred((ids, [], 1))
        except CallFailed as error:
            raise Failed(str(error)) from None


@builtin
def o03(run: CheckRun) -> None:
    with pre_start_client(run) as (client, ids):
        try:
            client.pre_start(ids)
        except CallFailed as error:
            raise Failed(str(error)) from None


@builtin
def o04(run: CheckRun) -> str:
    ids = run.healthy_ids()[:1]
    results = []
    with run.client() as client:
        options = client.options()
        if not options.get_preferred_allocation_available:
            results.append(_code(lambda: client.preferred((ids, [], 1)), "GetPreferredAllocation"))
        if not options.pre_start_required:
            results.append(_code(lambda: client.pre_start(ids), "PreStartContainer"))
    if not results:
        raise Skipped("the plugin's options announce all optional calls")
    # Any response is accepted, but a plugin that panics responds with an error and exits.
    run.check_alive("calls that its options do not announce")
    return ", ".join(results)


def _code(call: Callable[[], object], rpc: str) -> str:
    error = rejection(call)
    return f"{rpc}: {'OK' if error is None else error.code}"
