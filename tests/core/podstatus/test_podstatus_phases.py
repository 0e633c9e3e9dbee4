"""Container states and the phase of their pod, as in the API."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest

from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Container, Pod, RestartPolicy
from devicemanager.core.podstatus.containers import (
    ContainerStatus,
    Running,
    State,
    Terminated,
    Waiting,
    initial_status,
)
from devicemanager.core.podstatus.phase import phase_of

INIT = Container(ContainerName("init"))
SIDE = Container(ContainerName("side"), restartable=True)
APPS = tuple(Container(ContainerName(name)) for name in ("a", "b"))
POD = Pod(PodUid("u"), "p", "default", APPS, (INIT, SIDE))
RUNS, DONE, FAILED = Running(1.0), Terminated(0, "Completed"), Terminated(3, "Error")
CREATING, CRASHED = Waiting("ContainerCreating"), Waiting("CrashLoopBackOff")


def status(name: str, state: State) -> ContainerStatus:
    last = FAILED if state == CRASHED else None
    return ContainerStatus(ContainerName(name), state, last)


READY = {"init": DONE, "side": RUNS}


@pytest.mark.parametrize(
    ("policy", "states", "phase"),
    [
        ("Always", {}, "Pending"),
        ("Always", {"init": RUNS}, "Pending"),
        ("Always", {"init": CRASHED, "side": RUNS, "a": RUNS, "b": RUNS}, "Running"),
        ("Never", {"init": FAILED}, "Failed"),
        ("OnFailure", {"init": FAILED}, "Pending"),
        ("Always", {"init": DONE, "a": RUNS, "b": RUNS}, "Pending"),
        ("Always", {"init": DONE, "side": CREATING, "a": RUNS, "b": RUNS}, "Pending"),
        ("Always", {"init": DONE, "side": CRASHED, "a": RUNS, "b": RUNS}, "Running"),
        ("Always", {**READY, "a": RUNS}, "Pending"),
        ("Always", {**READY, "a": RUNS, "b": CREATING}, "Pending"),
        ("Always", {**READY, "a": RUNS, "b": RUNS}, "Running"),
        ("Always", {**READY, "a": RUNS, "b": CRASHED}, "Running"),
        ("Always", {"init": DONE, "side": DONE, "a": FAILED, "b": CRASHED}, "Running"),
        ("Always", {"init": DONE, "side": DONE, "a": DONE, "b": DONE}, "Running"),
        ("Never", {**READY, "a": DONE, "b": DONE}, "Running"),
        ("Never", {"init": DONE, "side": DONE, "a": DONE, "b": DONE}, "Succeeded"),
        ("Never", {"init": DONE, "side": DONE, "a": DONE, "b": FAILED}, "Failed"),
        ("OnFailure", {"init": DONE, "side": DONE, "a": DONE, "b": CRASHED}, "Running"),
        ("OnFailure", {"init": DONE, "side": DONE, "a": DONE, "b": FAILED}, "Running"),
        ("OnFailure", {"init": DONE, "side": DONE, "a": DONE, "b": DONE}, "Succeeded"),
    ],
)
def test_phases(policy: str, states: Mapping[str, State], phase: str) -> None:
    pod = attrs.evolve(POD, restart_policy=RestartPolicy(policy))
    statuses = {ContainerName(name): status(name, state) for name, state in states.items()}
    assert phase_of(pod, statuses) == phase


def test_status_of_a_container_that_never_started() -> None:
    assert initial_status(POD, APPS[0].name).state == Waiting("PodInitializing")
    assert initial_status(POD, INIT.name).state == Waiting("ContainerCreating")
    alone = attrs.evolve(POD, init_containers=())
    assert initial_status(alone, APPS[0].name).state == Waiting("ContainerCreating")


def test_container_states_in_sequence() -> None:
    first = status("a", CREATING).started(5.0)
    assert first == ContainerStatus(APPS[0].name, Running(5.0))
    ended = first.ended(1, "OOMKilled", 7.0)
    death = Terminated(1, "OOMKilled", 5.0, 7.0)
    assert ended.state == death and ended.restart_count == 0
    waits = ended.waits("CrashLoopBackOff", "why")
    assert (waits.state, waits.last_termination) == (Waiting("CrashLoopBackOff", "why"), death)
    again = waits.started(17.0)
    assert again == ContainerStatus(APPS[0].name, Running(17.0), death, 1)
    killed = again.started(20.0)
    assert killed.last_termination == Terminated(137, "Error", 17.0, 20.0)
    assert killed.restart_count == 2
