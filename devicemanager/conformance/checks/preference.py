"""P: GetPreferredAllocation."""

from __future__ import annotations

from functools import partial

from devicemanager.conformance.check_run import CheckRun
from devicemanager.conformance.client import CallFailed, PluginClient, rejection
from devicemanager.conformance.outcomes import Failed, Severity, Skipped
from devicemanager.conformance.registry import check

MUST, SHOULD = Severity.MUST, Severity.SHOULD


def _offered(client: PluginClient) -> None:
    if not client.options().get_preferred_allocation_available:
        raise Skipped("the options do not offer GetPreferredAllocation")


def _preferred(client: PluginClient, available: list[str], must: list[str], size: int) -> list[str]:
    """One container's answer, checked. Raises Failed."""
    question = f"available {_some(available)}, must include {_some(must)}, size {size}"
    try:
        answers = client.preferred((available, must, size))
    except CallFailed as error:
        raise _failed(question, error) from None
    if len(answers) != 1:
        raise Failed(f"{question}: {len(answers)} responses for one container")
    [ids] = answers
    if len(set(ids)) < len(ids):
        raise Failed(f"{question}: the answer names a device twice: {_some(ids)}")
    if len(ids) != size:
        raise Failed(f"{question}: {len(ids)} devices: {_some(ids)}")
    if stray := set(ids) - set(available):
        raise Failed(f"{question}: {min(stray)} is not available")
    if left_out := set(must) - set(ids):
        raise Failed(f"{question}: {min(left_out)} must be included")
    return ids


def _failed(question: str, error: CallFailed) -> Exception:
    if error.code == "UNIMPLEMENTED":
        return Skipped(f"{error}: see O02")
    return Failed(f"{question}: {error}")


def _some(ids: list[str]) -> str:
    return "[" + ", ".join(ids[:4]) + (f", ... {len(ids)} in all]" if len(ids) > 4 else "]")


@check(
    "P01",
    MUST,
    "prefers what it may",
    does="asks random_preferences times with random devices",
    expects="devices that are unique, as many as asked for, among those available, with those that "
    "must be included",
    production="the kubelet takes what fits of the answer and fills up: wrong alignment",
    links="PROTO, k/k#92794",
)
def p01(trial: CheckRun) -> None:
    ids = trial.healthy_ids()
    with trial.client() as client:
        _offered(client)
        for _ in range(trial.limits.random_preferences):
            available = trial.rng.sample(ids, trial.rng.randint(1, len(ids)))
            size = trial.rng.randint(1, len(available))
            must = trial.rng.sample(available, trial.rng.randint(0, size))
            _preferred(client, available, must, size)


@check(
    "P02",
    MUST,
    "prefers at the edges",
    does="asks for all that is available, and for just what must be included",
    expects="exactly these",
    production="pods are rejected at the edges",
    links="PROTO",
)
def p02(trial: CheckRun) -> None:
    ids = trial.healthy_ids()
    with trial.client() as client:
        _offered(client)
        _preferred(client, ids, [], len(ids))
        _preferred(client, ids, ids[:1], 1)
        _preferred(client, ids, ids, len(ids))


@check(
    "P03",
    MUST,
    "prefers among the rest",
    does="asks with each device in turn missing from those available",
    expects="an answer from the rest",
    production="one dead GPU rejects every pod: about 1,000 failed pods in 5 minutes, for 3 days",
    links="nv#2038, nv#2039",
)
def p03(trial: CheckRun) -> None:
    ids = trial.healthy_ids(least=2)
    with trial.client() as client:
        _offered(client)
        for missing in ids[:16]:
            rest = [id_ for id_ in ids if id_ != missing]
            _preferred(client, rest, [], 1)


@check(
    "P04",
    SHOULD,
    "bears a question without an answer",
    does="asks for more than there is, and to include what is not available",
    expects="an error or the best there is, and the plugin lives",
    production="a storm of failing pods",
    links="nv#2039",
)
def p04(trial: CheckRun) -> None:
    ids = trial.healthy_ids()
    with trial.client() as client:
        _offered(client)
        for available, must, size in (
            (ids, [], len(ids) + 1),
            (ids[1:], ids[:1], 1),
            ([], [], 1),
            (ids, [], -1),
            (["no-such-device"], [], 1),
        ):
            rejection(partial(client.preferred, (available, must, size)))
    trial.check_alive("questions without an answer")


@check(
    "P05",
    SHOULD,
    "prefers quickly, and the same each time",
    does="asks same_preferences times for 8 of up to single_devices devices",
    expects="the same answer within preferred_seconds",
    production="slow admissions",
    links="DM",
)
def p05(trial: CheckRun) -> str:
    ids = sorted(trial.healthy_ids())[: trial.limits.single_devices]
    size = min(8, (len(ids) + 1) // 2)
    with trial.client() as client:
        _offered(client)
        answers: list[list[str]] = []

        def ask() -> None:
            answers.append(sorted(_preferred(client, ids, [], size)))

        took = max(trial.timed(ask, "a preference") for _ in range(trial.limits.same_preferences))
    for other in answers:
        if other != answers[0]:
            raise Failed(f"the same question had the answers {answers[0]} and {other}")
    if took > trial.limits.preferred_seconds:
        raise Failed(f"an answer took {took:.1f} s")
    return f"{took:.3f} s"


@check(
    "P06",
    MUST,
    "answers for each container",
    does="asks for 1, 2 and 4 containers in one call",
    expects="as many responses",
    production="the kubelet looks at the first alone; other callers do not",
    links="PROTO",
)
def p06(trial: CheckRun) -> None:
    ids = trial.healthy_ids()
    with trial.client() as client:
        _offered(client)
        for count in (1, 2, 4):
            try:
                answers = client.preferred(*[(ids, [], 1)] * count)
            except CallFailed as error:
                raise _failed(f"{count} containers", error) from None
            if len(answers) != count:
                raise Failed(f"{len(answers)} responses for {count} containers")
