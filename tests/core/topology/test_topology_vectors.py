"""First hints and configuration errors of recorded scenarios, computed by the core alone."""

from __future__ import annotations

import json
from typing import Any

from devicemanager.core.topology import (
    DeviceLayout,
    Hints,
    NumaTopology,
    TopologyConfigError,
    configure,
    resource_hints,
)
from devicemanager.core.topology.numa import nodes_of
from tests.paths import VECTORS


def scenarios() -> list[dict[str, Any]]:
    lines = (VECTORS / "admission.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def config_error(scenario: dict[str, Any]) -> str | None:
    topology = NumaTopology.of(scenario["numa_nodes"], scenario.get("numa_distances"))
    try:
        configure(topology, scenario["policy"], scenario["scope"], scenario["policy_options"])
    except TopologyConfigError as error:
        return str(error)
    return None


def first_hints(scenario: dict[str, Any]) -> dict[str, Hints | None]:
    """Return the hints of the first pod's first container, before any admission."""
    pod = scenario["pods"][0]
    container = (pod["init_containers"] + pod["containers"])[0]
    return {
        resource: one_hints(scenario, pod["uid"], container["name"], resource, request)
        for resource, request in container["limits"].items()
        if resource in scenario["resources"]
        or any(entry["resource"] == resource for entry in scenario["allocated"])
    }


def one_hints(
    scenario: dict[str, Any], pod_uid: str, container: str, resource: str, request: int
) -> Hints | None:
    devices = scenario["resources"].get(resource, {"devices": []})["devices"]
    number = {device["id"]: i for i, device in enumerate(devices)}
    per_node: dict[int, int] = {}
    healthy = 0
    for device in devices:
        bit = 1 << number[device["id"]]
        healthy |= bit if device["health"] == "Healthy" else 0
        for node in device["numa"] or ():
            per_node[node] = per_node.get(node, 0) | bit
    used = allocated = count = 0
    for entry in scenario["allocated"]:
        if entry["resource"] != resource:
            continue
        if entry["pod_uid"] not in {*scenario["active_pods"], pod_uid}:
            continue
        ids = {id_ for ids in entry["devices"].values() for id_ in ids}
        bits = sum(1 << number[id_] for id_ in ids if id_ in number)
        used |= bits
        if (entry["pod_uid"], entry["container"]) == (pod_uid, container):
            allocated, count = allocated | bits, count + len(ids)
    layout = DeviceLayout.of(NumaTopology.of(scenario["numa_nodes"]), per_node)
    return resource_hints(layout, healthy & ~used, 0, request, allocated, count)


def as_recorded(hints: Hints | None) -> list[dict[str, Any]] | None:
    if hints is None:
        return None
    return [
        {"nodes": list(nodes_of(hint.mask or 0)), "preferred": hint.preferred} for hint in hints
    ]


def test_configuration_errors_agree() -> None:
    wrong = {
        scenario["id"]: got
        for scenario in scenarios()
        if (got := config_error(scenario)) != scenario["expect"].get("config_error")
    }
    assert wrong == {}


def test_hints_before_the_first_admission_agree() -> None:
    compared, wrong = 0, []
    for scenario in scenarios():
        steps = scenario["expect"].get("steps", ())
        expected = steps[0].get("hints", {}).get("container") if steps else None
        if expected is None:
            continue
        got = {name: as_recorded(hints) for name, hints in first_hints(scenario).items()}
        compared += 1
        if got != expected:
            wrong.append((scenario["id"], got, expected))
    assert wrong == []
    assert compared
