"""Behaviours of the kubelet in lively scenarios (``lively``) that a mock can easily get wrong.

Each function returns True if a scenario, with the results of 1.37.2, shows a behaviour. The sample
of scenarios in the repository must show all behaviours; ``tools.vector_sample`` ensures this.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from google.protobuf.message import DecodeError

import checkpoint
from protos import deviceplugin_v1beta1 as dp

Scenario = Mapping[str, Any]

_REJECTED: Final = "TopologyAffinityError"


def _plugins(scenario: Scenario) -> Iterator[Scenario]:
    """Iterate over the operations and plugins that have a device list."""
    yield from scenario["resources"].values()
    for op in scenario["ops"]:
        yield from (op[kind] for kind in ("register", "list", "list_old") if kind in op)
        yield from op.get("restart", {}).get("before", ())


def _lists(scenario: Scenario) -> Iterator[list[Scenario]]:
    yield from (plugin["devices"] for plugin in _plugins(scenario) if plugin.get("devices"))


def _steps(scenario: Scenario) -> Iterator[tuple[Scenario, Scenario]]:
    """Iterate over the operations, each with its expected result."""
    yield from zip(scenario["ops"], scenario["expect"].get("steps", ()), strict=False)


def _nodes(device: Scenario) -> list[int]:
    return device.get("numa") or []


def has_negative_nodes_only(scenario: Scenario) -> bool:
    """True if all NUMA nodes are negative and a policy rejects the pod."""
    negative = any(
        {node for device in each for node in _nodes(device)} == {-1} for each in _lists(scenario)
    )
    return negative and any(step.get("reason") == _REJECTED for _, step in _steps(scenario))


def admits_before_the_first_list(scenario: Scenario) -> bool:
    """True if a pod is admitted without devices because the plugin of its resource has not sent a
    list."""
    silent = {r for r, each in scenario["resources"].items() if each.get("devices") is None}
    return any(
        step.get("admit") and not silent.isdisjoint(container["limits"])
        for op, step in _steps(scenario)
        for container in op.get("admit", {}).get("containers", ())
    )


def repeats_an_id_with_another_health(scenario: Scenario) -> bool:
    """True if a list contains a device ID twice, with different health."""
    for each in _lists(scenario):
        kinds = {(device["id"], device.get("health", "Healthy")) for device in each}
        if len(kinds) > len({device["id"] for device in each}):
            return True
    return False


def restores_an_invalid_response(scenario: Scenario) -> bool:
    """True if a checkpoint entry has an AllocResp that cannot be parsed."""
    restarts = (op.get("restart", {}) for op in scenario["ops"])
    for text in (each["checkpoint"] for each in (scenario, *restarts) if "checkpoint" in each):
        try:
            entries = checkpoint.loads(base64.b64decode(text)).entries or ()
        except checkpoint.CheckpointError:
            continue
        for entry in entries:
            try:
                dp.ContainerAllocateResponse.FromString(entry.alloc_resp or b"")
            except DecodeError:
                return True
    return False


def shows_odd_health_as_unhealthy(scenario: Scenario) -> bool:
    """True if a health other than ``Healthy`` and ``Unhealthy`` is shown as Unhealthy in the
    status."""
    odd = any(
        device.get("health", "Healthy") not in ("Healthy", "Unhealthy")
        for each in _lists(scenario)
        for device in each
    )
    return odd and '"Unhealthy"' in json.dumps(
        [step.get("state", {}).get("status") for _, step in _steps(scenario)]
    )


def names_a_node_twice(scenario: Scenario) -> bool:
    """True if a device that names a NUMA node twice is in the checkpoint twice."""
    twice = any(
        max(Counter(_nodes(device)).values(), default=0) > 1
        for each in _lists(scenario)
        for device in each
    )
    return twice and any(
        len(set(ids)) < len(ids)
        for _, step in _steps(scenario)
        for entry in step.get("state", {}).get("checkpoint", {}).get("entries", {}).values()
        if entry
        for ids in (entry.get("devices") or {}).values()
        if ids
    )


def admits_a_uid_again(scenario: Scenario) -> bool:
    """True if the UID of a deleted pod is admitted again and reuses its devices."""
    deleted: set[str] = set()
    for op, step in _steps(scenario):
        deleted.add(op.get("delete", ""))
        if op.get("admit", {}).get("uid") in deleted and step.get("admit"):
            calls = [call for each in step.get("calls", {}).values() for call in each]
            if calls and all(call["method"] == "Allocate" for call in calls):
                return True
    return False


def replaces_a_list_and_ends_the_plugin(scenario: Scenario) -> bool:
    """True if the newest plugin of a resource ends while another plugin serves the resource."""
    kinds = [next(iter(op.keys() - {"lists", "no_hints"})) for op in scenario["ops"]]
    return ("register", "stop") in pairwise(kinds)


def rejects_after_the_grace_period(scenario: Scenario) -> bool:
    """True if a pod has no hints for a resource after its grace period."""
    gone: set[str] = set()
    for op, step in _steps(scenario):
        gone.add(op.get("grace", ""))
        containers = op.get("admit", {}).get("containers", ())
        if step.get("reason") == _REJECTED and any(
            gone & each["limits"].keys() for each in containers
        ):
            return True
    return False


def panics(scenario: Scenario) -> bool:
    """True if the kubelet panics when it readmits a pod with a device that is no longer listed."""
    return "nil pointer" in scenario["expect"].get("panic", {}).get("text", "")


def starts_with_mounts_in_order(scenario: Scenario) -> bool:
    """True if the mounts and devices of a container are in the plugin's order."""
    return any(
        container and rows != sorted(rows)
        for _, step in _steps(scenario)
        for container in step.get("started", {}).values()
        for rows in ((container or {}).get("mounts", []), (container or {}).get("devices", []))
    )


def keeps_entries_of_unknown_pods(scenario: Scenario) -> bool:
    """True if the checkpoint keeps entries of unknown pods until an allocation."""
    known = {op["admit"]["uid"] for op in scenario["ops"] if "admit" in op}
    return any(
        key.partition("/")[0] not in known
        for _, step in _steps(scenario)
        for key, entry in step.get("state", {}).get("checkpoint", {}).get("entries", {}).items()
        if entry
    )


def changes_a_request(scenario: Scenario) -> bool:
    """True if a container is rejected because it requests more than it has."""
    return "changed request" in json.dumps(scenario["expect"])


BEHAVIOURS: Final[tuple[Callable[[Scenario], bool], ...]] = (
    has_negative_nodes_only,
    admits_before_the_first_list,
    repeats_an_id_with_another_health,
    restores_an_invalid_response,
    shows_odd_health_as_unhealthy,
    names_a_node_twice,
    admits_a_uid_again,
    replaces_a_list_and_ends_the_plugin,
    rejects_after_the_grace_period,
    panics,
    starts_with_mounts_in_order,
    keeps_entries_of_unknown_pods,
    changes_a_request,
)
