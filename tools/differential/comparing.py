"""Compare the mock's outcomes with the reference's.

The reference makes random choices in the order of Go's maps. Therefore each scenario runs
several times: only facts that are the same in all runs are compared.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

import checkpoint
from tools.differential.deviations import Deviation, Fact, named

Scenario = Mapping[str, Any]
Facts = dict[str, Any]
"""Path of a fact to a plain value that does not depend on order."""
_Pair = tuple[str, Any]

ABSENT: Final = "(absent)"
"""Value of a fact that an outcome does not have."""


@attrs.frozen
class Disagreement:
    """Fact of a step for which the reference has a different value in all runs."""

    step: int
    path: str
    expected: Any
    actual: Any
    deviation: Deviation | None = None
    """Named deviation that explains it; None for a finding."""

    def text(self) -> str:
        """Describe the disagreement in one line."""
        return f"step {self.step}, {self.path}: the reference {self.expected}, ours {self.actual}"


@attrs.frozen
class Expected:
    """Results of several reference runs of one scenario."""

    config_error: str | None = None
    steps: Sequence[Facts] = ()
    """Facts per step that were the same in all runs."""
    random: Sequence[frozenset[str]] = ()
    """Paths per step of the facts that were not."""


def expected(answer: Mapping[str, Any]) -> Expected:
    """Divide the facts of the reference's runs into constant and random ones."""
    if answer.get("config_error"):
        return Expected(answer["config_error"])
    runs = [[facts_of(outcome) for outcome in run] for run in answer["runs"]]
    steps, random = [], []
    for outcomes in zip(*runs, strict=True):
        paths = {path for facts in outcomes for path in facts}
        values = {path: [facts.get(path, ABSENT) for facts in outcomes] for path in paths}
        same = {path for path, found in values.items() if all(one == found[0] for one in found)}
        steps.append({path: values[path][0] for path in sorted(same)})
        random.append(frozenset(paths - same))
    return Expected(None, steps, random)


def compare(
    scenario: Scenario, version: str, wanted: Expected, ours: Mapping[str, Any]
) -> list[Disagreement]:
    """Return all disagreements, each with the deviation that explains it, if any."""
    error = ours.get("config_error")
    if error != wanted.config_error:
        return [Disagreement(0, "config error", wanted.config_error, error)]
    if error is not None:
        return []
    found = []
    for each in _differences(wanted, ours["runs"][0]):
        fact = Fact(scenario, version, each.step, each.path, each.expected, each.actual)
        found.append(attrs.evolve(each, deviation=named(fact)))
    return found


def _differences(wanted: Expected, ours: Sequence[Mapping[str, Any]]) -> Iterator[Disagreement]:
    for number, (facts, random) in enumerate(zip(wanted.steps, wanted.random, strict=True)):
        actual = facts_of(ours[number])
        written = any(path.startswith("checkpoint") for path in (*facts, *random))
        for path in sorted((facts.keys() | actual.keys()) - random):
            # The reference did not write: its file has the state of an earlier step.
            if path.startswith("checkpoint") and not written:
                continue
            left, right = facts.get(path, ABSENT), actual.get(path, ABSENT)
            if left != right:
                yield Disagreement(number, path, left, right)


# -- facts of an outcome -----------------------------------------------------------------


def facts_of(outcome: Mapping[str, Any]) -> Facts:
    """Return all facts of a step's outcome."""
    return dict(_facts(outcome))


def _facts(outcome: Mapping[str, Any]) -> Iterator[_Pair]:
    if outcome.get("admit") is not None:
        yield from (("admit", outcome["admit"]), ("reason", outcome["reason"]))
        yield "message", outcome["message"]
    for kind, hints in (outcome.get("hints") or {}).items():
        yield from ((f"hints {kind} {resource}", each) for resource, each in hints.items())
    for container, hint in (outcome.get("affinity") or {}).items():
        yield f"affinity {container}", None if hint is None else hint["nodes"]
    for uid, verdict in (outcome.get("readmitted") or {}).items():
        yield from ((f"readmitted {uid} {name}", value) for name, value in verdict.items())
    if outcome.get("registered") is not None:
        yield "registered", outcome["registered"]
    for container, options in (outcome.get("started") or {}).items():
        yield from _options(f"started {container}", options)
    yield from _calls(outcome["calls"] or ())
    for kind in ("capacity", "allocatable"):
        yield from ((f"{kind} {resource}", count) for resource, count in outcome[kind].items())
    yield "health updates", sorted(set(outcome["health_updates"]))
    for uid, containers in outcome["devices"].items():
        for container, held in containers.items():
            for resource, ids in held.items():
                yield f"devices {uid} {container} {resource}", ids
                yield f"count {uid} {container} {resource}", len(ids)
    for uid, containers in (outcome.get("status") or {}).items():
        for container, resources in containers.items():
            for resource, health in resources.items():
                yield f"status {uid} {container} {resource}", health
    if outcome["written"] and outcome["checkpoint"]:
        yield from _checkpoint(base64.b64decode(outcome["checkpoint"]))
    yield from _lists(outcome.get("lists") or {})


def _options(path: str, options: Mapping[str, Any] | None) -> Iterator[_Pair]:
    # A container without devices has no options.
    options = options or dict.fromkeys(_FIELDS)
    if "error" in options:
        yield f"{path} error", options["error"]
        return
    for field, names in _FIELDS.items():
        values = [{name: each[name] for name in names} for each in options[field] or ()]
        yield f"{path} {field}", _sorted(values)


_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Envs": ("Name", "Value"),
    "Mounts": ("ContainerPath", "HostPath", "ReadOnly"),
    "Devices": ("PathInContainer", "PathOnHost", "Permissions"),
    "Annotations": ("Name", "Value"),
    "CDIDevices": ("Name",),
}
"""Fields of ``DeviceRunContainerOptions`` that a plugin sets."""


def _sorted(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=lambda each: json.dumps(each, sort_keys=True))


def _calls(calls: Sequence[Mapping[str, Any]]) -> Iterator[_Pair]:
    yield "calls", _sorted(calls)
    # The device IDs can be random, but the calls and their sizes are not.
    counted = [
        {name: len(value) if isinstance(value, list) else value for name, value in call.items()}
        for call in calls
    ]
    yield "calls counted", _sorted(counted)


def _checkpoint(text: bytes) -> Iterator[_Pair]:
    saved = checkpoint.loads(text)
    yield "checkpoint written by ours from what it reads", checkpoint.dumps(saved) == text
    for resource, ids in (saved.registered_devices or {}).items():
        yield f"checkpoint registered {resource}", sorted(ids or ())
    for entry in saved.entries or ():
        path = f"checkpoint entry {entry.pod_uid} {entry.container_name} {entry.resource_name}"
        devices = {str(node): sorted(ids or ()) for node, ids in (entry.device_ids or {}).items()}
        yield f"{path} devices", devices
        yield f"{path} response", base64.b64encode(entry.alloc_resp or b"").decode()


def _lists(lists: Mapping[str, Mapping[str, Any]]) -> Iterator[_Pair]:
    for name, answer in lists.items():
        if "error" in answer:
            yield f"{name}: error", answer["error"]
        elif name.startswith("list"):
            pods = answer.get("pod_resources", [])
            yield f"{name}: pods", sorted(pod["name"] for pod in pods)
            for pod in pods:
                yield from _pod(f"{name}: {pod['name']}", pod)
        elif name == "allocatable":
            for resource, devices in _by_resource(answer.get("devices", ())).items():
                yield f"{name}: {resource}", devices
        else:
            yield from _pod(name, answer["pod_resources"])


def _pod(path: str, pod: Mapping[str, Any]) -> Iterator[_Pair]:
    containers = pod.get("containers", ())
    yield f"{path} containers", [container["name"] for container in containers]
    for container in containers:
        for resource, devices in _by_resource(container.get("devices", ())).items():
            yield f"{path} {container['name']} {resource}", devices


def _by_resource(entries: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for entry in entries:
        nodes = None
        if entry.get("topology") is not None:
            nodes = [int(node.get("ID", 0)) for node in entry["topology"].get("nodes", ())]
        ids = sorted(entry.get("device_ids", ()))
        found.setdefault(entry["resource_name"], []).append([ids, nodes])
    return {resource: _sorted(each) for resource, each in found.items()}
