"""Rehearse restarts and reboots of nodes that run the real device manager, then do them there.

A case is the beginning of a random scenario and then one restart, in which some plugins register
before the pods are admitted again. A snapshot is made from the reference's results before the
restart. Among the rehearsed outcomes of each pod must be the outcome in the reference.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from devicemanager.core.topology import NumaTopology
from devicemanager.rehearsal import Configure, Outcome, Reboot, Restart, rehearse
from devicemanager.snapshot import KubeletConfig, LoggedPod, NumaMachine, PodDirectories, Snapshot
from podresources.values import Allocatable, Container, ContainerDevices, Pod
from tools.differential.generating import scenarios
from tools.differential.plain import plain_text
from tools.differential.reference import Reference
from tools.differential.scenarios import Scenario, kind_of

Plain = dict[str, Any]

_KEPT: Final = frozenset({"admit", "start", "finish", "delete"})
"""Steps that a case may contain: they do not change plugins and their lists."""
_DROPPED: Final = ("allocated", "checkpoint", "active_pods", "node", "feature_gates")
"""Keys of a scenario that a snapshot does not contain."""


@attrs.frozen
class Difference:
    """A pod whose real outcome is not among the rehearsed outcomes."""

    case: Scenario
    pod: str
    real: Mapping[str, Any]
    rehearsed: tuple[Outcome, ...]

    def text(self) -> str:
        """Return the difference as one line."""
        outcomes = "; ".join(f"{each.fate} {each.reason} {each.message}" for each in self.rehearsed)
        return f"pod {self.pod}: the kubelet {dict(self.real)}, rehearsed {outcomes}"


@attrs.define
class Rehearsed:
    """Counts of all cases."""

    cases: int = 0
    pods: int = 0
    lost: int = 0
    """Number of pods that the real device manager rejected."""
    open: int = 0
    """Number of pods with more than one rehearsed outcome."""
    differences: list[Difference] = attrs.field(factory=list)


def cases(seed: int, count: int, minor: int) -> Iterator[Plain]:
    """Yield ``count`` cases in which at least one pod has devices when the kubelet restarts."""
    found = 0
    for scenario in scenarios(seed, 100 * count, minor):
        if found == count:
            return
        case = _case(scenario)
        if case is not None:
            found += 1
            yield case


def _case(scenario: Scenario) -> Plain | None:
    if scenario.get("other"):
        return None
    steps = [_alone(step) for step in _beginning(scenario)]
    admitted = [step["admit"]["uid"] for step in steps if "admit" in step]
    if not admitted:
        return None
    resources = {
        resource: _shown(described) for resource, described in sorted(scenario["resources"].items())
    }
    rng = random.Random(scenario["id"])
    started = [{"start": uid} for uid in admitted]
    back = [
        {"resource": resource, **described}
        for resource, described in resources.items()
        if rng.random() < 0.6
    ]
    how = {"reboot": rng.random() < 0.6, "before": back}
    kept = {name: value for name, value in scenario.items() if name not in _DROPPED}
    # List before the restart: this becomes the snapshot.
    steps = [*steps, *started, {"grace": 0, "lists": True}, {"restart": how, "lists": True}]
    return {**kept, "resources": resources, "pods": [], "steps": steps}


def _shown(described: Mapping[str, Any]) -> Plain:
    """Return a plugin without properties that a snapshot does not show.

    These are a container that cannot start, and a device with an empty topology (PodResources omits
    it).
    """
    devices = [
        {**device, "numa": device["numa"] or None} for device in described.get("devices") or ()
    ]
    return {**described, "pre_start_error": "", "devices": devices}


def _beginning(scenario: Scenario) -> Iterator[Mapping[str, Any]]:
    for step in scenario["steps"]:
        if kind_of(step) == "restart":
            return
        if kind_of(step) in _KEPT:
            yield step


def _alone(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an admission without the other pod that is admitted during it.

    Limits of zero are removed, because a snapshot does not show them. They make a difference: the
    kubelet rejects such a container while the plugin is not registered.
    """
    if "admit" not in step:
        return step
    pod = {name: value for name, value in step["admit"].items() if name != "meanwhile"}
    for kind in ("containers", "init_containers"):
        pod[kind] = [_without_zeros(each) for each in pod.get(kind) or ()]
    return {**step, "admit": pod}


def _without_zeros(container: Mapping[str, Any]) -> Plain:
    limits = {name: count for name, count in container["limits"].items() if count}
    return {**container, "limits": limits}


def compare(
    reference: Reference, version: str, found: Sequence[Plain] | Iterator[Plain]
) -> Rehearsed:
    """Run the cases on both sides. Return the counts."""
    counts = Rehearsed()
    for case in found:
        answer = reference.ask(case, 1)
        if answer.get("config_error") or answer.get("failed"):
            continue
        (run,) = answer["runs"]
        if run.get("panic") or len(run["steps"]) < len(case["steps"]):
            continue
        counts.cases += 1
        _check(case, version, run["steps"], counts)
    return counts


def _check(case: Plain, version: str, steps: Sequence[Plain], counts: Rehearsed) -> None:
    how = case["steps"][-1]["restart"]
    step = Reboot() if how["reboot"] else Restart()
    result = rehearse(snapshot(case, steps[:-1]), [Configure(kubelet_version=version), step])
    real = steps[-1].get("readmitted") or {}
    for pod in result.pods:
        uid = pod.uid
        if uid not in real:
            continue
        counts.pods += 1
        counts.lost += not real[uid]["admit"]
        counts.open += len(pod.outcomes) > 1
        if not any(_is(outcome, real[uid]) for outcome in pod.outcomes):
            counts.differences.append(Difference(case, uid, real[uid], tuple(pod.outcomes)))


def _is(outcome: Outcome, real: Mapping[str, Any]) -> bool:
    if real["admit"] or outcome.reason != real["reason"]:
        return bool(real["admit"]) and not outcome.is_lost
    return bool(plain_text(outcome.message) == real["message"])


# -- the snapshot ------------------------------------------------------------------------


def snapshot(case: Plain, steps: Sequence[Plain]) -> Snapshot:
    """Return the snapshot of a node after these steps of the reference."""
    files = [step["checkpoint"] for step in steps if step.get("checkpoint")]
    lists, devices = steps[-1]["lists"], steps[-1]["devices"]
    settings = {
        "topologyManagerPolicy": case["policy"],
        "topologyManagerScope": case["scope"],
        "topologyManagerPolicyOptions": case.get("policy_options") or {},
    }
    topology = NumaTopology.of(case["numa_nodes"], case.get("numa_distances"))
    return Snapshot(
        taken="2026-01-31T12:00:00Z",
        tool="0",
        node="reference",
        root="/var/lib/kubelet",
        pods=tuple(_pod(each) for each in lists["list"].get("pod_resources") or ()),
        allocatable=Allocatable(tuple(_devices(lists["allocatable"]))),
        checkpoint=base64.b64decode(files[-1]) if files else None,
        numa=NumaMachine(topology, {}, {}),
        config=KubeletConfig("config.yaml", settings, pid=1),
        directories=PodDirectories(
            tuple(devices), tuple(LoggedPod("default", uid, uid) for uid in devices)
        ),
    )


def _pod(listed: Plain) -> Pod:
    containers = tuple(
        Container(each["name"], tuple(_devices(each))) for each in listed.get("containers") or ()
    )
    return Pod(listed["name"], listed["namespace"], containers)


def _devices(holder: Plain) -> Iterator[ContainerDevices]:
    for each in holder.get("devices") or ():
        nodes = (each.get("topology") or {}).get("nodes") or ()
        numbers = tuple(int(node.get("ID", 0)) for node in nodes)
        yield ContainerDevices(each["resource_name"], tuple(each["device_ids"]), numbers)
