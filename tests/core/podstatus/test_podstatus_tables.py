"""Phases and conditions against the tables in the kubelet's tests.

The cases are those of ``TestPodPhase…`` (pkg/kubelet/kubelet_pods_test.go) and of
``TestGenerate…Condition`` (pkg/kubelet/status/generate_test.go) of v1.32.13.
"""

from __future__ import annotations

import attrs
import pytest

from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container, Pod, RestartPolicy
from devicemanager.core.podstatus.conditions import ConditionType, pod_conditions
from devicemanager.core.podstatus.containers import (
    ContainerStatus,
    Running,
    Terminated,
    Waiting,
    initial_status,
)
from devicemanager.core.podstatus.phase import Phase, phase_of

ENDED, FAILED = Terminated(0, "Completed"), Terminated(1, "Error")
STATES = {
    "runs": (Running(), None),
    "ended": (ENDED, None),
    "failed": (FAILED, None),
    "waits": (Waiting("ContainerCreating"), None),
    "waits-ended": (Waiting("CrashLoopBackOff"), ENDED),
    "waits-failed": (Waiting("CrashLoopBackOff"), FAILED),
}
PHASES = """
Always AB
  -                                Pending
  A=runs,B=runs                    Running
  A=ended,B=ended                  Running
  A=ended,B=ended ending           Succeeded
  A=ended,B=failed ending          Failed
  A=runs,B=ended                   Running
  A=runs                           Pending
  A=runs,B=waits                   Pending
  A=runs,B=waits-ended             Running
Always iX,AB
  -                                Pending
  X=runs                           Pending
  X=failed                         Pending
  X=waits-ended                    Pending
  X=waits-failed                   Pending
  X=waits                          Pending
  X=ended,A=runs,B=runs            Running
Always sX,AB
  -                                Pending
  X=runs                           Pending
  X=ended                          Pending
  X=waits-ended                    Pending
  X=waits-failed                   Pending
  X=waits                          Pending
  X=runs,A=runs                    Pending
  X=runs,A=runs,B=runs             Running
  X=ended,A=runs,B=runs            Running
  X=waits-ended,A=runs,B=runs      Running
  X=failed,A=ended,B=ended ending  Succeeded
  X=ended,A=ended,B=ended ending   Succeeded
Always iX,sY,A
  X=runs,Y=runs,A=runs             Pending
  X=runs,Y=runs,A=ended            Pending
  X=ended,Y=runs,A=ended           Running
  X=ended,Y=runs,A=runs            Running
Never AB
  -                                Pending
  A=runs,B=runs                    Running
  A=ended,B=ended                  Succeeded
  A=failed,B=failed                Failed
  A=runs,B=ended                   Running
  A=runs                           Pending
  A=runs,B=waits                   Pending
Never iX,AB
  -                                Pending
  X=runs                           Pending
  X=failed                         Failed
  X=waits-ended                    Pending
  X=waits-failed                   Failed
  X=waits                          Pending
  X=ended,A=runs,B=runs            Running
Never sX,AB
  -                                Pending
  X=runs                           Pending
  X=ended                          Pending
  X=waits-failed                   Pending
  X=runs,A=runs                    Pending
  X=runs,A=ended,B=ended           Running
  X=ended,A=ended,B=ended          Succeeded
  X=failed,A=ended,B=ended         Succeeded
  X=waits-ended,A=ended,B=ended    Succeeded
  X=waits-failed,A=ended,B=ended   Succeeded
OnFailure AB
  -                                Pending
  A=runs,B=runs                    Running
  A=ended,B=ended                  Succeeded
  A=failed,B=failed                Running
  A=runs,B=ended                   Running
  A=runs                           Pending
  A=runs,B=waits                   Pending
  A=runs,B=waits-ended             Running
"""


def made(policy: str, containers: str) -> Pod:
    """Create statuses from a text like ``iX,sY,AB``: init container, sidecar, app containers."""
    *inits, apps = containers.split(",")
    return Pod(
        PodUid("u"),
        "p",
        "default",
        tuple(Container(ContainerName(name)) for name in apps),
        tuple(Container(ContainerName(each[1]), restartable=each[0] == "s") for each in inits),
        RestartPolicy(policy),
    )


def statuses(text: str) -> dict[ContainerName, ContainerStatus]:
    if text == "-":
        return {}
    pairs = (each.split("=") for each in text.split(","))
    return {
        ContainerName(name): ContainerStatus(ContainerName(name), *STATES[state])
        for name, state in pairs
    }


def rows() -> list[tuple[str, str, str, bool, str]]:
    found, head = [], ["", ""]
    for line in PHASES.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            head = words
        else:
            found.append((*head, words[0], "ending" in words, words[-1]))
    return found


@pytest.mark.parametrize(("policy", "containers", "states", "is_ending", "phase"), rows())
def test_phases_agree_with_the_kubelets_tests(
    policy: str, containers: str, states: str, is_ending: bool, phase: str
) -> None:
    pod = made(policy, containers)
    assert phase_of(pod, statuses(states), is_ending=is_ending) == phase


# -- conditions ----------------------------------------------------------------------------


def conditions(
    pod: Pod,
    states: str,
    phase: Phase = Phase.RUNNING,
    *,
    unready: str = "",
    gates: dict[str, str | None] | None = None,
) -> dict[str, tuple[bool, str, str]]:
    every = {each.name: initial_status(pod, each.name) for each, _ in pod.all_containers()}
    found = pod_conditions(
        pod,
        {**every, **statuses(states)},
        phase,
        start_time=1.0,
        has_sandbox=True,
        unready=frozenset(unready),
        gates=gates,
    )
    assert [each.type for each in found] == list(ConditionType)
    return {each.type: (each.status, each.reason, each.message) for each in found}


NOT_READY = "ContainersNotReady"


@pytest.mark.parametrize(
    ("containers", "states", "phase", "expected"),
    [
        ("AB", "A=runs,B=runs", "Running", (True, "", "")),
        (
            "AB",
            "A=runs,B=waits",
            "Running",
            (False, NOT_READY, "containers with unready status: [B]"),
        ),
        ("A", "-", "Running", (False, NOT_READY, "containers with unready status: [A]")),
        ("A", "A=ended", "Succeeded", (False, "PodCompleted", "")),
        ("A", "A=runs", "Failed", (False, "PodFailed", "")),
        ("sX,sY,A", "X=runs,Y=runs,A=runs", "Running", (True, "", "")),
        (
            "sX,sY,A",
            "X=runs,A=runs",
            "Running",
            (False, NOT_READY, "containers with unready status: [Y]"),
        ),
        (
            "sX,sY,AB",
            "X=runs,Y=failed,A=runs,B=failed",
            "Running",
            (False, NOT_READY, "containers with unready status: [Y B]"),
        ),
        ("iX,A", "X=ended,A=runs", "Running", (True, "", "")),
    ],
)
def test_containers_ready(
    containers: str, states: str, phase: str, expected: tuple[bool, str, str]
) -> None:
    found = conditions(made("Always", containers), states, Phase(phase))
    assert found["ContainersReady"] == expected
    assert found["Ready"] == expected


@pytest.mark.parametrize(
    ("containers", "states", "phase", "expected"),
    [
        ("A", "-", "Running", (True, "", "")),
        (
            "iX,A",
            "-",
            "Running",
            (False, "ContainersNotInitialized", "containers with incomplete status: [X]"),
        ),
        (
            "iX,iY,A",
            "X=ended,Y=failed",
            "Running",
            (False, "ContainersNotInitialized", "containers with incomplete status: [Y]"),
        ),
        ("iX,iY,A", "X=ended,Y=ended", "Running", (True, "", "")),
        ("iX,A", "X=ended,A=ended", "Succeeded", (True, "PodCompleted", "")),
        (
            "sX,A",
            "X=waits",
            "Running",
            (False, "ContainersNotInitialized", "containers with incomplete status: [X]"),
        ),
        ("sX,A", "X=runs", "Running", (True, "", "")),
        ("sX,A", "X=waits-failed,A=runs", "Running", (True, "", "")),
    ],
)
def test_initialized(
    containers: str, states: str, phase: str, expected: tuple[bool, str, str]
) -> None:
    found = conditions(made("Always", containers), states, Phase(phase))
    assert found["Initialized"] == expected


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        (
            {"gate1": None},
            (
                False,
                "ReadinessGatesNotReady",
                'corresponding condition of pod readiness gate "gate1" does not exist.',
            ),
        ),
        (
            {"gate1": "False"},
            (
                False,
                "ReadinessGatesNotReady",
                'the status of pod readiness gate "gate1" is not "True", but False',
            ),
        ),
        ({"gate1": "True"}, (True, "", "")),
        (
            {"gate1": "True", "gate2": None},
            (
                False,
                "ReadinessGatesNotReady",
                'corresponding condition of pod readiness gate "gate2" does not exist.',
            ),
        ),
    ],
)
def test_readiness_gates(gates: dict[str, str | None], expected: tuple[bool, str, str]) -> None:
    found = conditions(made("Always", "A"), "A=runs", gates=gates)
    assert found["Ready"] == expected
    assert found["ContainersReady"] == (True, "", "")


def test_container_that_never_becomes_ready() -> None:
    found = conditions(made("Always", "AB"), "A=runs,B=runs", unready="A")
    assert found["Ready"] == (False, NOT_READY, "containers with unready status: [A]")


def test_transition_times_of_conditions() -> None:
    pod = made("Always", "iX,AB")
    times = {
        "X": ContainerStatus(ContainerName("X"), Terminated(0, "Completed", 2.0, 3.0)),
        "A": ContainerStatus(ContainerName("A"), Running(4.0)),
        "B": ContainerStatus(ContainerName("B"), Running(5.0)),
    }

    def since(phase: Phase = Phase.RUNNING, **states: ContainerStatus) -> dict[str, float | None]:
        every = {ContainerName(name): each for name, each in {**times, **states}.items()}
        found = pod_conditions(pod, every, phase, start_time=1.0, has_sandbox=True)
        return {each.type: each.since for each in found}

    assert since() == {
        "PodReadyToStartContainers": 1.0,
        "Initialized": 3.0,
        "Ready": 5.0,
        "ContainersReady": 5.0,
        "PodScheduled": 1.0,
    }
    crashed = ContainerStatus(ContainerName("A"), Terminated(1, "Error", 4.0, 9.0))
    assert since(A=crashed)["Ready"] == 9.0
    ended = attrs.evolve(crashed, name=ContainerName("B"), state=Terminated(0, "Completed", 5.0, 8))
    assert since(Phase.FAILED, A=crashed, B=ended)["PodReadyToStartContainers"] == 9.0
    assert since(Phase.FAILED, A=crashed, B=ended)["Ready"] == 9.0
