"""O: what a plugin offers."""

from __future__ import annotations

import time
from collections.abc import Callable

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.client import CallFailed, rejection
from devicemanager.conformance.outcomes import Failed, Severity, Skipped
from devicemanager.conformance.registry import check

MUST, SHOULD = Severity.MUST, Severity.SHOULD


@check(
    "O01",
    MUST,
    "answers GetDevicePluginOptions quickly",
    does="asks as often as the limit repeats says, over a connection without a list stream",
    expects="the same answer within options_seconds",
    production="the plugin is not used at all",
    links="DM",
)
def o01(trial: CheckRun) -> str:
    longest = 0.0
    for resource in trial.resources:
        with trial.client(resource) as client:
            answers = []
            for _ in range(trial.limits.repeats):
                begin = time.monotonic()
                answers.append(client.options(trial.limits.allocate_seconds))
                longest = max(longest, time.monotonic() - begin)
        if any(answer != answers[0] for answer in answers):
            raise Failed(f"{resource}: the options change from one call to the next")
    if longest > trial.limits.options_seconds:
        raise Failed(f"an answer took {longest:.1f} s")
    return f"{longest:.3f} s"


@check(
    "O02",
    MUST,
    "has the preference that it offers",
    does="calls GetPreferredAllocation if the options offer it",
    expects="not UNIMPLEMENTED",
    production="every pod is rejected",
    links="DOC, DM",
)
def o02(trial: CheckRun) -> None:
    ids = trial.healthy_ids()
    with trial.client() as client:
        if not client.options().get_preferred_allocation_available:
            raise Skipped("the options do not offer GetPreferredAllocation")
        try:
            client.preferred((ids, [], 1))
        except CallFailed as error:
            raise Failed(str(error)) from None


@check(
    "O03",
    MUST,
    "has the PreStartContainer that it asks for",
    does="allocates a device and calls PreStartContainer if the options ask for it",
    expects="not UNIMPLEMENTED",
    production="containers never start",
    links="DM",
)
def o03(trial: CheckRun) -> None:
    ids = trial.healthy_ids()[:1]
    with trial.client() as client:
        if not client.options().pre_start_required:
            raise Skipped("the options do not ask for PreStartContainer")
        client.allocate(ids)
        try:
            client.pre_start(ids)
        except CallFailed as error:
            raise Failed(str(error)) from None


@check(
    "O04",
    SHOULD,
    "bears calls that it does not offer",
    does="calls what the options do not offer",
    expects="an empty answer or an error, and the plugin lives",
    production="surprises when kubelet and plugin are of different versions",
    links="PROTO",
)
def o04(trial: CheckRun) -> str:
    ids = trial.healthy_ids()[:1]
    told = []
    with trial.client() as client:
        options = client.options()
        if not options.get_preferred_allocation_available:
            told.append(_code(lambda: client.preferred((ids, [], 1)), "GetPreferredAllocation"))
        if not options.pre_start_required:
            told.append(_code(lambda: client.pre_start(ids), "PreStartContainer"))
    if not told:
        raise Skipped("the options offer everything")
    trial.check_alive("calls that it does not offer")
    return ", ".join(told)


def _code(call: Callable[[], object], rpc: str) -> str:
    error = rejection(call)
    return f"{rpc}: {'OK' if error is None else error.code}"
