"""Replay admission scenarios through the mock kubelet's device manager.

Plugins are fakes without sockets. All the rest is the product's code: restoring the
checkpoint, registering plugins, device lists, admitting pods one after another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import checkpoint
from checkpoint import PodDevicesEntry
from devicemanager.core.errors import RpcError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.core.rejection import Rejected
from devicemanager.core.topology import NumaTopology, TopologyConfigError
from devicemanager.core.versions.quirks import quirks_of
from devicemanager.core.versions.version import KubeletVersion, VersionError
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.settings import Settings
from devicemanager.testing.fakes import FakePlugin
from tools.replay.report import Outcome, ReplayError, difference, read_vectors
from tools.replay.scenario import (
    PREFERENCES,
    RESPONSE,
    affinity_of,
    device_of,
    plain_call,
    plain_hints,
)

Scenario = Mapping[str, Any]
_KNOWN_STEP_FIELDS = {
    *("admit", "reason", "message", "affinity", "hints"),
    *("devices", "device_counts", "calls", "capacity", "allocatable"),
}


def replay_file(path: Path, policy: str | None = None) -> Iterator[Outcome]:
    """Replay all scenarios of a file, or those with the topology policy ``policy``."""
    for scenario in read_vectors(path):
        if policy is None or scenario.get("policy") == policy:
            yield replay_scenario(scenario)


def replay_scenario(scenario: Scenario) -> Outcome:
    """Run one scenario and compare all fields that it specifies."""
    try:
        return Outcome(scenario["id"], _differences(scenario))
    except VersionError as error:
        raise ReplayError(f"scenario {scenario.get('id', '?')}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        name = scenario.get("id", "?")
        raise ReplayError(f"scenario {name} is malformed: {error!r}") from error


def _differences(scenario: Scenario) -> list[str]:
    expect = scenario["expect"]
    try:
        manager = DeviceManager(settings_of(scenario))
    except TopologyConfigError as error:
        return difference("config_error", expect.get("config_error"), str(error))
    if "config_error" in expect:
        return difference("config_error", expect["config_error"], None)
    plugins = set_up(manager, scenario)
    found: list[str] = []
    for pod, step in zip(scenario["pods"], expect["steps"], strict=False):
        # A step lists only its own calls.
        for plugin in plugins:
            plugin.calls.clear()
        actual = _step(manager, pod_of(pod), plugins)
        found += _compare(pod["uid"], step, actual)
        manager.self_check()
    return found


def settings_of(scenario: Scenario) -> Settings:
    numa = NumaTopology.of(scenario["numa_nodes"], scenario.get("numa_distances"))
    version = KubeletVersion.parse(scenario.get("kubelet", "1.32"))
    return Settings(
        numa=numa,
        topology_policy=scenario["policy"],
        topology_scope=scenario["scope"],
        topology_options=scenario["policy_options"] or {},
        kubelet_version=str(version),
        # The scenarios were recorded from the real device manager, which has this bug.
        quirks=quirks_of(version) & {"Q16"},
    )


def set_up(manager: DeviceManager, scenario: Scenario) -> list[FakePlugin]:
    allocated = scenario["allocated"] or []
    if allocated:
        manager.restore(checkpoint_of(allocated))
    plugins = []
    # Sorted, because the recording registered the plugins in this order.
    for resource, described in sorted(scenario["resources"].items()):
        plugin = _plugin(resource, described["preferred"], described["allocate_error"])
        plugin.register(manager.plugins)
        plugin.send_list(map(device_of, described["devices"]))
        plugins.append(plugin)
    manager.sources_ready(frozenset(map(PodUid, scenario["active_pods"] or ())))
    return plugins


def _plugin(resource: str, preferred: str, allocate_error: str) -> FakePlugin:
    return FakePlugin(
        ResourceName(resource),
        PREFERENCES[preferred],
        responses=(RESPONSE,),
        allocate_error=RpcError("Unknown", allocate_error) if allocate_error else None,
        preference_error=(
            RpcError("Unknown", "no preference for you") if preferred == "error" else None
        ),
    )


def checkpoint_of(allocated: Iterable[Mapping[str, Any]]) -> checkpoint.Checkpoint:
    entries = tuple(
        PodDevicesEntry(
            pod_uid=held["pod_uid"],
            container_name=held["container"],
            resource_name=held["resource"],
            device_ids={int(node): tuple(ids) for node, ids in held["devices"].items()},
            alloc_resp=RESPONSE,
        )
        for held in allocated
    )
    return checkpoint.Checkpoint(entries, {entry.resource_name: () for entry in entries})


def pod_of(pod: Mapping[str, Any]) -> Pod:
    return Pod(
        uid=PodUid(pod["uid"]),
        name=pod["uid"],
        namespace="default",
        containers=tuple(map(_container, pod["containers"] or ())),
        init_containers=tuple(map(_container, pod["init_containers"] or ())),
    )


def _container(container: Mapping[str, Any]) -> Container:
    limits = {ResourceName(name): value for name, value in (container["limits"] or {}).items()}
    return Container(
        ContainerName(container["name"]), limits, limits, bool(container.get("restartable"))
    )


def _step(manager: DeviceManager, pod: Pod, plugins: Iterable[FakePlugin]) -> dict[str, Any]:
    first, whole = manager.hints(pod)
    actual: dict[str, Any] = {"hints": {"container": plain_hints(first), "pod": plain_hints(whole)}}
    try:
        allocation = manager.admit(pod)
    except Rejected as rejected:
        actual |= {"admit": False, "reason": rejected.reason, "message": rejected.message}
    else:
        actual |= {"admit": True, "reason": "", "message": ""}
        actual["affinity"] = {
            container.name: affinity_of(allocation.affinities.get(container.name))
            for container, _ in pod.all_containers()
        }
    held = manager.holdings(pod.uid)
    actual["devices"] = {
        container.name: {
            resource: sorted(holding.ids)
            for resource, holding in held.get(container.name, {}).items()
        }
        for container, _ in pod.all_containers()
    }
    calls = [
        plain_call(call) | {"resource": plugin.resource}
        for plugin in plugins
        for call in plugin.calls
    ]
    actual["calls"] = sorted(calls, key=lambda call: json.dumps(call, sort_keys=True))
    counts = manager.capacity()
    actual["capacity"] = dict(counts.capacity)
    actual["allocatable"] = dict(counts.allocatable)
    return actual


def _compare(pod: str, step: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for field, expected in step.items():
        if field not in _KNOWN_STEP_FIELDS:
            raise ReplayError(f"pod {pod}: unknown field {field!r} of a step")
        if field == "hints":
            for kind, hints in expected.items():
                found += difference(f"{pod} hints.{kind}", hints, actual["hints"][kind])
        elif field == "device_counts":
            found += difference(f"{pod} device_counts", expected, _counts(actual["devices"]))
        elif field == "affinity" and "affinity" not in actual:
            found.append(f"{pod} affinity: the pod was rejected: {actual['message']}")
        else:
            found += difference(f"{pod} {field}", expected, actual[field])
    return found


def _counts(devices: Mapping[str, Mapping[str, list[str]]]) -> dict[str, dict[str, int]]:
    return {
        container: {resource: len(ids) for resource, ids in by_resource.items()}
        for container, by_resource in devices.items()
    }
