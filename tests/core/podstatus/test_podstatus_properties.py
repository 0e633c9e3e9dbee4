"""Properties of a pod's status after random container events."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container, Pod, RestartPolicy
from devicemanager.core.podstatus.containers import ContainerStatus, initial_status
from devicemanager.core.podstatus.merge import is_reported, status_patch
from devicemanager.core.podstatus.phase import Phase, phase_of
from devicemanager.core.podstatus.status import (
    PodFacts,
    PodStatus,
    pod_status,
    rejected_status,
)
from devicemanager.objects.status.podstatus import container_statuses_of, status_object

NAMES = st.sampled_from(["a", "b", "i", "s"])
ACTS = st.lists(st.tuples(NAMES, st.sampled_from(["start", "end", "fail", "wait"])), max_size=12)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    inits = draw(st.sets(st.sampled_from("is")))
    return Pod(
        PodUid("u"),
        "p",
        "default",
        tuple(Container(ContainerName(name), image="image") for name in "ab"),
        tuple(Container(ContainerName(each), restartable=each == "s") for each in sorted(inits)),
        draw(st.sampled_from(RestartPolicy)),
    )


def lived(pod: Pod, acts: list[tuple[str, str]]) -> list[dict[ContainerName, ContainerStatus]]:
    """Return the containers' statuses after each of the possible events."""
    names = {container.name for container, _ in pod.all_containers()}
    now: dict[ContainerName, ContainerStatus] = {}
    seen = []
    for time, (each, act) in enumerate(acts):
        name = ContainerName(each)
        if name not in names:
            continue
        status = now.get(name, initial_status(pod, name))
        if act == "start":
            status = status.started(float(time))
        elif act == "wait" and not status.is_running:
            status = status.waits("CrashLoopBackOff", "why")
        elif status.is_running:
            status = status.ended(act == "fail", "Error", float(time))
        now[name] = status
        seen.append(dict(now))
    return seen


def statuses_of(pod: Pod, acts: list[tuple[str, str]]) -> list[PodStatus]:
    phase, made = Phase.PENDING, []
    for statuses in lived(pod, acts):
        phase = phase_of(pod, statuses, before=phase)
        facts = PodFacts(pod, phase, start_time=0.0, has_sandbox=True)
        made.append(pod_status(facts, lambda n, now=statuses: now.get(n, initial_status(pod, n))))
    return made


@given(pods(), ACTS)
def test_terminal_phase_does_not_change(pod: Pod, acts: list[tuple[str, str]]) -> None:
    phases = [status.phase for status in statuses_of(pod, acts)]
    ends = [each for each in phases if each.is_terminal]
    assert phases[len(phases) - len(ends) :] == ends
    assert len(set(ends)) <= 1


@given(pods(), ACTS, st.booleans())
def test_phase_is_not_terminal_while_a_container_runs(
    pod: Pod, acts: list[tuple[str, str]], is_ending: bool
) -> None:
    apps = {container.name for container in pod.containers}
    for statuses in lived(pod, acts):
        phase = phase_of(pod, statuses, is_ending=is_ending)
        runs = [name for name, status in statuses.items() if name in apps and status.is_running]
        failed_init = pod.restart_policy is RestartPolicy.NEVER and phase is Phase.FAILED
        assert not (runs and phase.is_terminal) or failed_init
        if pod.restart_policy is RestartPolicy.ALWAYS and not is_ending:
            assert not phase.is_terminal


@given(pods(), ACTS)
def test_ready_pod_is_running_and_terminal_pod_is_not_ready(
    pod: Pod, acts: list[tuple[str, str]]
) -> None:
    for status in statuses_of(pod, acts):
        conditions = {each.type: each for each in status.conditions}
        assert conditions["Ready"].status == conditions["ContainersReady"].status
        if conditions["Ready"].status:
            assert not status.phase.is_terminal
            assert all(each.is_ready for each in status.containers)
        assert [each.status.name for each in status.containers] == ["a", "b"]


@given(pods(), ACTS)
def test_reported_status_is_read_back(pod: Pod, acts: list[tuple[str, str]]) -> None:
    for status, statuses in zip(statuses_of(pod, acts), lived(pod, acts), strict=True):
        reported = status_object(pod.uid, status, now=99.0, host_ip="127.1.0.1", pod_ip="10.0.0.1")
        read = container_statuses_of(reported)
        assert read == {name: each for name, each in statuses.items() if each.was_started}
        assert is_reported(reported, reported)
        assert is_reported({**reported, "nominatedNodeName": "n"}, reported)


@given(pods())
def test_rejected_pod_has_no_conditions_and_containers(pod: Pod) -> None:
    facts = PodFacts(pod, Phase.FAILED, "OutOfcpu", "too little", 5.0)
    reported = status_object(pod.uid, rejected_status(facts), now=9.0, host_ip="127.1.0.1")
    assert reported == {
        "phase": "Failed",
        "qosClass": "BestEffort",
        "reason": "OutOfcpu",
        "message": "Pod was rejected: too little",
        "startTime": "1970-01-01T00:00:05Z",
    }
    patch = status_patch(reported)["status"]
    assert patch["containerStatuses"] is None and patch["initContainerStatuses"] is None
    assert {each["$patch"] for each in patch["conditions"]} == {"delete"}
    assert len(patch["conditions"]) == 5


@given(pods())
def test_status_of_a_pod_about_to_start(pod: Pod) -> None:
    facts = PodFacts(pod, Phase.PENDING, start_time=1.0)
    status = pod_status(facts, partial(initial_status, pod))
    assert status.phase is Phase.PENDING
    reasons = {each.status.state for each in status.containers}
    assert len(reasons) == 1
    assert not any(each.status for each in status.conditions if each.type == "Ready")
