"""Rehearse reboots and drains of nodes that run the real DRA manager, then do them there.

A case prepares claims of some pods. Then the node reboots, all pods are deleted, or the kubelet
restarts with a damaged state file. Some drivers do not return. A snapshot has the state file that
the reference wrote before. The outcome of each pod in the reference must be the rehearsed one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from devicemanager.core import messages
from devicemanager.rehearsal import (
    Configure,
    Drain,
    Fate,
    Outcome,
    Reboot,
    Restart,
    Step,
    WithoutPlugin,
    rehearse,
)
from devicemanager.snapshot import KubeletConfig, PodDirectories, Snapshot
from tools.differential.reference import Reference
from tools.differential.rehearsing import Difference, Plain, Rehearsed
from tools.differential.scenarios import Scenario

_DRIVERS: Final = ("gpu.example.com", "net.example.com", "fpga.example.com")
_GATES: Final = {"DynamicResourceAllocation": True}
"""Gates of the node. Before 1.34, this one is off by default."""


def cases(seed: int, count: int) -> Iterator[Plain]:
    """Yield ``count`` random cases."""
    for number in range(count):
        yield _case(random.Random(f"{seed}-{number}"), f"claims-{seed}-{number}")


def _case(rng: random.Random, name: str) -> Plain:
    drivers = _DRIVERS[: rng.randint(1, len(_DRIVERS))]
    claims = {f"c{n}": rng.sample(drivers, rng.randint(1, len(drivers))) for n in range(4)}
    pods = {f"p{n}": sorted(rng.sample(sorted(claims), rng.randint(1, 2))) for n in range(3)}
    missing = [each for each in drivers if rng.random() < 0.4]
    kind = rng.choice(("reboot", "reboot", "drain", "damage"))
    before: list[Plain] = [
        {"op": "start"},
        *({"op": "register", "instance": each} for each in drivers),
        *(_claim(each, used, pods) for each, used in claims.items()),
        *({"op": "prepare", "pod": each} for each in pods),
    ]
    return {
        "id": name,
        "kind": kind,
        "missing": missing,
        "before": len(before),
        "pods": {each: _pod(each, used) for each, used in pods.items()},
        "instances": {each: _instance(each, claims) for each in drivers},
        "ops": [*before, *_change(kind, drivers, missing, sorted(pods))],
    }


def _change(
    kind: str, drivers: Sequence[str], missing: Sequence[str], pods: Sequence[str]
) -> Iterator[Plain]:
    match kind:
        case "reboot":
            yield {"op": "restart"}
            yield from (
                {"op": "register", "instance": each} for each in drivers if each not in missing
            )
            yield from ({"op": "prepare", "pod": each} for each in pods)
        case "drain":
            yield from ({"op": "deregister", "instance": each} for each in missing)
            yield from ({"op": "unprepare", "pod": each} for each in pods)
        case "damage":
            yield {"op": "file", "file": _DAMAGED}
            yield {"op": "restart"}


_DAMAGED: Final = '{"Data":"{}","Checksum":1}'


def _pod(name: str, claims: Sequence[str]) -> Plain:
    entries = [{"name": each, "claim": each} for each in claims]
    uses = [{"name": each} for each in claims]
    main = {"name": "main", "claims": uses}
    uid = f"{name}-uid"
    # A snapshot without PodResources has no names, so that the UID is also the name.
    return {
        "name": uid,
        "namespace": "default",
        "uid": uid,
        "claims": entries,
        "containers": [main],
    }


def _claim(name: str, drivers: Sequence[str], pods: Mapping[str, Sequence[str]]) -> Plain:
    results = [
        {"driver": each, "pool": "worker", "device": name, "request": "r"} for each in drivers
    ]
    reserved = [f"{pod}-uid" for pod, used in pods.items() if name in used]
    claim = {"name": name, "namespace": "default", "uid": f"{name}-uid"}
    return {"op": "claim", "claim": {**claim, "results": results, "reserved": reserved}}


def _instance(driver: str, claims: Mapping[str, Sequence[str]]) -> Plain:
    answers = {
        f"{name}-uid": {"devices": [{"pool": "worker", "device": name, "requests": ["r"]}]}
        for name, used in claims.items()
        if driver in used
    }
    return {
        "driver": driver,
        "services": ["v1.DRAPlugin", "v1beta1.DRAPlugin"],
        "serves": ["v1", "v1beta1"],
        "prepare": {"claims": answers},
    }


def compare(reference: Reference, version: str, found: Iterator[Plain]) -> Rehearsed:
    """Run the cases on both sides. Return the counts."""
    counts = Rehearsed()
    for case in found:
        (run,) = reference.ask(case, 1)["runs"]
        counts.cases += 1
        outcomes = _rehearsed(case, version, run["steps"])
        for pod, error in _real(case, run["steps"]).items():
            counts.pods += 1
            counts.lost += bool(error)
            outcome = outcomes[pod]
            if _plain(outcome.message, case) != _plain(error, case):
                counts.differences.append(Difference(case, pod, {"error": error}, (outcome,)))
    return counts


def _plain(error: str, case: Scenario) -> str:
    """Return the error without the name of the driver, which is random if several drivers are
    missing."""
    for driver in case["missing"]:
        error = error.replace(driver, "MISSING")
    return error


def _real(case: Scenario, steps: Sequence[Plain]) -> dict[str, str]:
    """Return the error of each pod by UID, in the form in which a rehearsal has errors; empty for
    no error."""
    errors = {}
    for op, step in list(zip(case["ops"], steps, strict=True))[case["before"] :]:
        error = step.get("error") or ""
        if op["op"] == "restart" and error:
            return {f"{pod}-uid": error for pod in case["pods"]}
        if op["op"] == "prepare" and error:
            error = messages.PREPARE_FAILED.format(error=error)
        if "pod" in op:
            errors[f"{op['pod']}-uid"] = error
    return errors


def _rehearsed(case: Scenario, version: str, steps: Sequence[Plain]) -> Mapping[str, Outcome]:
    away = [WithoutPlugin(each) for each in case["missing"] if _is_used(each, case)]
    configured = Configure(kubelet_version=version)
    changes: dict[str, list[Step]] = {
        "reboot": [configured, *away, Reboot()],
        # The version applies from the next start on.
        "drain": [configured, Restart(), *away, Drain()],
        "damage": [configured, Restart()],
    }
    found = rehearse(snapshot(case, steps), changes[case["kind"]])
    if case["kind"] == "damage":
        # No pod is readable, so the error is only in the statement.
        error = found.statements[0].text.removeprefix("the kubelet does not start: ")
        return {f"{pod}-uid": Outcome(Fate.REJECTED, message=error) for pod in case["pods"]}
    return {pod.uid: next(iter(pod.outcomes)) for pod in found.pods}


def _is_used(driver: str, case: Scenario) -> bool:
    """True if a claim of a pod has devices of the driver: then it is in the state file."""
    used = {each["claim"] for pod in case["pods"].values() for each in pod["claims"]}
    return any(
        op["op"] == "claim"
        and op["claim"]["name"] in used
        and any(each["driver"] == driver for each in op["claim"]["results"])
        for op in case["ops"]
    )


def snapshot(case: Scenario, steps: Sequence[Plain]) -> Snapshot:
    """Return the snapshot of a node before its change, with the state file of the reference."""
    written = [step["file"] for step in steps[: case["before"]] if step.get("file")]
    text = _DAMAGED if case["kind"] == "damage" else written[-1]
    return Snapshot(
        taken="2026-01-31T12:00:00Z",
        tool="0",
        node="reference",
        root="/var/lib/kubelet",
        dra_state=text.encode(),
        config=KubeletConfig("config.yaml", {"featureGates": _GATES}, pid=1),
        directories=PodDirectories(tuple(f"{pod}-uid" for pod in case["pods"])),
    )
