"""Count what scenarios reach: the kubelet's messages, steps, and branches of its decisions.

Only the reference's results count. A bug of the mock therefore cannot hide a gap in the tests.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from tools.differential.plain import plain_text
from tools.differential.scenarios import Scenario, kind_of, steps_of
from tools.differential.versions import minor

Plain = Mapping[str, Any]

TEXTS: Final[Mapping[str, str]] = {
    "topology locality": r"^Resources cannot be allocated with Topology locality$",
    "no healthy devices": r"no healthy devices present",
    "previously allocated": r"previously allocated devices are no longer healthy",
    "unregistered": r"cannot allocate unregistered device",
    "too few": r"requested number of devices unavailable",
    "changed request": r"changed request for resource",
    "preference failed": r"^Allocate failed due to device plugin GetPreferredAllocation rpc failed",
    "Allocate failed": r"no allocation for you",
    "no container response": r"no containers return in allocation response",
    "OutOf a device": r"^Node didn't have enough resource: \S+/\S+, requested",
    "OutOfcpu": r"^Node didn't have enough resource: cpu,",
    "OutOfmemory": r"^Node didn't have enough resource: memory,",
    "OutOfpods": r"^Node didn't have enough resource: pods,",
    "PreStart failed": r"PreStartContainer rpc failed with err: rpc error",
    "PreStart of a stopped plugin": r"PreStartContainer rpc failed with err: endpoint \* has been",
    "no devices at start": r"^no devices found allocated in local cache",
    "no endpoint at start": r"^endpoint not found in cache for a registered resource",
    "bad version": r"is not supported by kubelet",
    "bad name": r"^the ResourceName .* is invalid$",
}
"""Messages: name and pattern. Patterns are searched in messages of admissions, starts and
registrations."""

_KINDS: Final = (
    "admit", "start", "finish", "delete", "retire", "exit", "list", "list_old", "register",
    "watch", "unwatch", "stop", "stop_old", "grace", "restart",
)  # fmt: skip

_BRANCHES: Final = (
    "pods live over several steps",
    "admitted again after a restart",
    "refused after a restart",
    "reboot", "plugin back before readmission", "readmission asks PreStart",
    "checkpoint lost", "checkpoint replaced", "checkpoint damaged", "checkpoint there at start",
    "pod known from the file", "same UID again", "two admissions at once",
    "health update", "gate on", "gate off", "pod level resources", "hints of CPUs",
    "CPUs in List", "memory in List",
    "preference asked", "preference with devices that must be included", "preference not followed",
    "two plugins of a resource", "socket registered again", "no first list",
    "ID twice in a list", "odd health", "negative node", "node off the machine",
    "node twice", "topology without nodes", "init devices reused", "sidecar keeps devices",
    "end of grace", "grace not over", "no hints possible", "hints not preferred",
    "affinity preferred", "affinity not preferred", "several resources in a container",
    "CDI names", "Get of an unknown pod", "a rejected pod holds devices",
    "an ended pod holds devices", "status of mixed health", "config error", "distances compared",
    "written without an allocation", "start again",
    "survives a restart without its plugin", "start with a limit of 0",
)  # fmt: skip


def listed(version: str) -> tuple[str, ...]:
    """Return everything that a long run of a version must reach."""
    names = [f"text: {name}" for name in TEXTS]
    names += [f"step: {name}" for name in _KINDS]
    names += [f"branch: {name}" for name in _BRANCHES]
    number = minor(version)
    absent = set()
    if number < 31:
        absent |= {"branch: health update", "branch: gate on", "branch: gate off"}
        absent |= {"branch: status of mixed health"}
    if number < 29:
        absent |= {"branch: CDI names"}  # the gate DevicePluginCDIDevices is off
    if number >= 36:
        names += ["text: pod level rejection"]
    if number >= 37:
        names += ["text: already connected"]
    return tuple(name for name in names if name not in absent)


_SINCE: Final[Mapping[str, str]] = {
    "pod level rejection": r"^Pod-level|[Pp]od.level",
    "already connected": r"device plugin already connected",
}


def reached(scenario: Scenario, answer: Plain) -> frozenset[str]:
    """Return the names of everything that the first run of the reference reaches."""
    return frozenset(_reached(scenario, answer))


def _reached(scenario: Scenario, answer: Plain) -> Iterator[str]:
    if answer.get("config_error"):
        yield "branch: config error"
        return
    if not answer.get("runs"):
        return
    run = answer["runs"][0]
    outcomes: Sequence[Plain] = run["steps"] or ()
    steps = steps_of(scenario)[: len(outcomes)]
    if run.get("panic"):
        yield "branch: panic"
    yield from _setting(scenario)
    for step, outcome in zip(steps, outcomes, strict=True):
        yield f"step: {kind_of(step)}"
        for text in _texts(outcome):
            for name, pattern in {**TEXTS, **_SINCE}.items():
                if re.search(pattern, plain_text(text)):
                    yield f"text: {name}"
        yield from _branches(step, outcome)
    yield from (f"branch: {name}" for name in _history(steps, outcomes))
    zero = {
        (pod["uid"], container["name"])
        for pod in (step["admit"] for step in steps if "admit" in step)
        for container in pod["containers"]
        if 0 in container["limits"].values()
    }
    for step, outcome in zip(steps, outcomes, strict=True):
        if any((step.get("start"), name) in zero for name in outcome.get("started") or ()):
            yield "branch: start with a limit of 0"


def _texts(outcome: Plain) -> Iterator[str]:
    for verdict in (
        outcome,
        outcome.get("meanwhile") or {},
        *(outcome.get("readmitted") or {}).values(),
    ):
        if verdict.get("message"):
            yield verdict["message"]
    for options in (outcome.get("started") or {}).values():
        if options and "error" in options:
            yield options["error"]
    if registered := outcome.get("registered"):
        yield registered["text"]


def _setting(scenario: Scenario) -> Iterator[str]:
    gates = scenario.get("feature_gates") or {}
    if "ResourceHealthStatus" in gates:
        yield f"branch: gate {'on' if gates['ResourceHealthStatus'] else 'off'}"
    if scenario.get("active_pods"):
        yield "branch: pod known from the file"
    if scenario.get("checkpoint") is not None:
        yield from ("branch: checkpoint there at start", *_file(scenario["checkpoint"]))
    if (other := scenario.get("other")) and other.get("hints"):
        yield "branch: hints of CPUs"
    options = scenario.get("policy_options") or {}
    if options.get("prefer-closest-numa-nodes") == "true" and scenario.get("numa_distances"):
        yield "branch: distances compared"
    for described in (scenario.get("resources") or {}).values():
        yield from _plugin(described, scenario)
    for step in steps_of(scenario):
        kind = kind_of(step)
        if kind in ("register", "watch"):
            yield from _plugin(step[kind], scenario)
        elif kind in ("list", "list_old"):
            yield from _devices(step[kind]["devices"], scenario)


def _file(text: str) -> Iterator[str]:
    import checkpoint

    try:
        checkpoint.loads(base64.b64decode(text))
    except checkpoint.CheckpointError:
        yield "branch: checkpoint damaged"


def _plugin(described: Plain, scenario: Scenario) -> Iterator[str]:
    if described.get("devices") is None:
        if not described.get("version"):
            yield "branch: no first list"
    else:
        yield from _devices(described["devices"], scenario)
    if described.get("same_socket"):
        yield "branch: socket registered again"


def _devices(devices: Sequence[Plain], scenario: Scenario) -> Iterator[str]:
    if len({each["id"] for each in devices}) < len(devices):
        yield "branch: ID twice in a list"
    if any(each["health"] not in ("Healthy", "Unhealthy") for each in devices):
        yield "branch: odd health"
    for numa in (each["numa"] for each in devices if each["numa"] is not None):
        if not numa:
            yield "branch: topology without nodes"
        if any(node < 0 for node in numa):
            yield "branch: negative node"
        if any(node > max(scenario["numa_nodes"]) for node in numa):
            yield "branch: node off the machine"
        if len(set(numa)) < len(numa):
            yield "branch: node twice"


def _branches(step: Plain, outcome: Plain) -> Iterator[str]:
    kind = kind_of(step)
    names: list[tuple[str, object]] = []
    if kind == "admit":
        pod, hints = step["admit"], (outcome.get("hints") or {}).get("container") or {}
        every_hint = [one for each in hints.values() for one in each or ()]
        affinities = [each for each in (outcome.get("affinity") or {}).values() if each]
        every = [*pod["containers"], *(pod.get("init_containers") or ())]
        names += [
            ("two admissions at once", outcome.get("meanwhile")),
            ("pod level resources", pod.get("pod_level")),
            ("no hints possible", [] in hints.values()),
            ("hints not preferred", any(not one["preferred"] for one in every_hint)),
            ("affinity preferred", any(each["preferred"] for each in affinities)),
            ("affinity not preferred", any(not each["preferred"] for each in affinities)),
            ("several resources in a container", outcome["admit"] and any(map(_asks_two, every))),
            ("a rejected pod holds devices",
             not outcome["admit"] and any((outcome["devices"].get(pod["uid"]) or {}).values())),
        ]  # fmt: skip
        yield from _reuse(pod, outcome)
    elif kind == "restart":
        how, verdicts = step["restart"], (outcome.get("readmitted") or {}).values()
        methods = {each["method"] for each in outcome.get("calls") or ()}
        names += [
            ("reboot", how.get("reboot")),
            ("plugin back before readmission", how.get("before") and verdicts),
            ("checkpoint lost", how.get("lost")),
            ("checkpoint replaced", how.get("checkpoint") is not None),
            ("admitted again after a restart", any(each["admit"] for each in verdicts)),
            ("refused after a restart", any(not each["admit"] for each in verdicts)),
            (
                "survives a restart without its plugin",
                any(
                    verdict["admit"] and not outcome["allocatable"].get(resource)
                    for uid, verdict in (outcome.get("readmitted") or {}).items()
                    for held in (outcome["devices"].get(uid) or {}).values()
                    for resource in held
                ),
            ),
            ("readmission asks PreStart", "PreStartContainer" in methods),
        ]  # fmt: skip
        if how.get("checkpoint") is not None:
            yield from _file(how["checkpoint"])
    elif kind == "list" and outcome["written"]:
        names.append(("written without an allocation", True))
    options = [each for each in (outcome.get("started") or {}).values() if each]
    asked = [
        each for each in outcome.get("calls") or () if each["method"] == "GetPreferredAllocation"
    ]
    lists = outcome.get("lists") or {}
    containers = [
        container
        for pod in (lists.get("list") or {}).get("pod_resources") or ()
        for container in pod.get("containers") or ()
    ]
    statuses = [
        set(health.values())
        for uids in (outcome.get("status") or {}).values()
        for resources in uids.values()
        for health in resources.values()
    ]
    names += [
        ("health update", outcome["health_updates"]),
        ("status of mixed health", any(len(each) > 1 for each in statuses)),
        ("CDI names", any(each.get("CDIDevices") for each in options)),
        ("preference asked", asked),
        (
            "preference with devices that must be included",
            any(each.get("must_include") for each in asked),
        ),
        ("CPUs in List", any(each.get("cpu_ids") for each in containers)),
        ("memory in List", any(each.get("memory") for each in containers)),
        ("Get of an unknown pod", "error" in (lists.get("get missing") or {})),
    ]  # fmt: skip
    yield from (f"branch: {name}" for name, value in names if value)


def _asks_two(container: Plain) -> bool:
    return sum(map(bool, container["limits"].values())) > 1


def _reuse(pod: Plain, outcome: Plain) -> Iterator[str]:
    held = outcome["devices"].get(pod["uid"]) or {}
    for init in pod.get("init_containers") or ():
        for resource, ids in (held.get(init["name"]) or {}).items():
            if init.get("restartable"):
                yield "branch: sidecar keeps devices"
            for container in pod["containers"]:
                if set(ids) & set((held.get(container["name"]) or {}).get(resource) or ()):
                    yield "branch: init devices reused"


def _history(steps: Sequence[Plain], outcomes: Sequence[Plain]) -> Iterator[str]:
    """Yield the branches that depend on several steps."""
    seen: set[str] = set()
    started: set[str] = set()
    ended: set[str] = set()
    admitted = alive = 0
    before: Plain = {}
    for step, outcome in zip(steps, outcomes, strict=True):
        kind = kind_of(step)
        if kind == "admit":
            admitted += bool(outcome["admit"])
            if step["admit"]["uid"] in seen:
                yield "same UID again"
            seen.add(step["admit"]["uid"])
            ended.discard(step["admit"]["uid"])
        elif kind == "start" and outcome.get("started"):
            if step["start"] in started:
                yield "start again"
            started.add(step["start"])
        elif kind == "finish":
            ended.add(step["finish"])
        elif kind == "register" and not outcome["registered"]["text"]:
            resource = step["register"]["resource"]
            if (before.get("allocatable") or {}).get(resource):
                yield "two plugins of a resource"
        elif kind == "grace":
            gone = (before.get("capacity") or {}).keys() - outcome["capacity"].keys()
            yield "end of grace" if gone else "grace not over"
        alive += bool(admitted and started)
        for uid in ended:
            if any((outcome["devices"].get(uid) or {}).values()):
                yield "an ended pod holds devices"
        before = outcome
        yield from _followed(outcome)
    if admitted and started and alive >= 3:
        yield "pods live over several steps"


def _followed(outcome: Plain) -> Iterator[str]:
    """Yield a branch if Allocate gets other devices than a plugin prefers."""
    calls = outcome.get("calls") or ()
    for asked, given in pairwise(calls):
        if asked["method"] != "GetPreferredAllocation" or given["method"] != "Allocate":
            continue
        first = sorted(asked["available"])[: asked["size"]]
        last = sorted(asked["available"])[-asked["size"] :]
        if given["devices"] not in (first, last):
            yield "preference not followed"


def table(counts: Mapping[str, int], scenarios: int, version: str) -> Iterator[str]:
    """Yield a line for each name: the number of scenarios that reach it."""
    for name in listed(version):
        yield f"  {counts.get(name, 0):6}  {name}"
    others = sorted(counts.keys() - set(listed(version)))
    yield from (f"  {counts[name]:6}  {name} (not required)" for name in others)
    yield f"  {scenarios:6}  scenarios"


def missing(counts: Mapping[str, int], version: str) -> list[str]:
    """Return the required names that were not reached."""
    return [name for name in listed(version) if not counts.get(name)]
