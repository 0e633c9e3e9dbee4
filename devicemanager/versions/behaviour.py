"""What a kubelet of one version does, wherever versions differ."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from devicemanager.versions.gates import resolve_gates
from devicemanager.versions.version import KubeletVersion

__all__ = ["STEPS", "Behaviour", "Level", "StartRemoves", "Step", "resolve"]


class Level(StrEnum):
    """How stable a topology manager policy option is; alpha and beta have a gate."""

    ALPHA = "alpha"
    BETA = "beta"
    STABLE = "stable"


class StartRemoves(StrEnum):
    """What a start removes from the plugin directory."""

    ALL_BUT_DIRECTORIES = "everything but directories and the checkpoint"
    SOCKETS = "sockets"


@attrs.frozen(kw_only=True)
class Behaviour:
    """Resolved once, when the settings are made; nobody else compares versions."""

    version: KubeletVersion
    gates: Mapping[str, bool]
    start_removes: StartRemoves
    """What a start removes from the plugin directory."""
    deprecation_file: bool
    """Whether a start leaves an empty file ``DEPRECATION`` in the plugin directory."""
    topology_options: Mapping[str, Level]
    """The topology manager's policy options that there are."""
    topology_options_gates: tuple[str, ...]
    """The gates that a refusal of all options names."""
    capital_option_levels: bool
    """Whether the refusal of an option's level begins ``Topology Manager Policy``."""
    hints_over_device_nodes: bool
    """Whether hints are made of the NUMA nodes only that have devices of the resource."""
    has_get_allocatable: bool
    """Whether PodResources has GetAllocatableResources."""
    get_allocatable_enabled: bool
    """Whether GetAllocatableResources answers."""
    get_allocatable_disabled: str
    """What GetAllocatableResources answers while its gate is off."""
    allocatable_unhealthy: bool
    """Whether GetAllocatableResources counts unhealthy devices, too."""
    has_get: bool
    """Whether PodResources has Get."""
    get_enabled: bool
    """Whether Get answers."""
    list_inactive: bool
    """Whether v1 List tells of refused and finished pods."""
    get_inactive: bool
    """Whether Get answers for refused and finished pods."""
    lists_sidecars: bool
    """Whether v1 PodResources tells of restartable init containers."""
    tells_memory: bool
    """Whether v1 PodResources has the field ``memory``."""
    tells_dynamic_resources: bool
    """Whether ``dynamic_resources`` is filled in."""
    tells_share_id: bool
    """Whether a claim's resource has the field ``share_id``."""
    tells_pod_level: bool
    """Whether a pod's own ``cpu_ids`` and ``memory`` are filled in."""
    rate_limited: bool
    """Whether PodResources refuses more than 100 requests a second."""
    tells_resource_health: bool
    """Whether a container's status has ``allocatedResourcesStatus``."""


@attrs.frozen
class Step:
    """From a version on, the value of a field."""

    since: tuple[KubeletVersion, ...]
    """The minor, after the patches of older minors that have it as well."""
    value: Any
    row: str = ""
    """Where the evidence is: the pull request, or how it was seen."""
    gate: str = ""
    """The value is this gate's state, and ``value`` is not looked at."""

    def holds_at(self, version: KubeletVersion) -> bool:
        *backports, minor = self.since
        if version >= attrs.evolve(minor, patch=minor.patch or 0):
            return True
        return any(version.minor == each.minor and version >= each for each in backports)


def _from(*since: str, value: Any = True, row: str = "", gate: str = "") -> Step:
    return Step(tuple(map(KubeletVersion.parse, since)), value, row, gate)


_CLOSEST, _MAX = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"
_GET_ALLOCATABLE = "KubeletPodResourcesGetAllocatable"
_GET = "KubeletPodResourcesGet"

STEPS: Mapping[str, tuple[Step, ...]] = {
    "start_removes": (
        _from("1.20", value=StartRemoves.ALL_BUT_DIRECTORIES),
        _from("1.33", value=StartRemoves.SOCKETS, row="read in 1.33.2"),
    ),
    "deprecation_file": (
        _from("1.20"),
        _from("1.25", value=False, row="k/k#109016"),
    ),
    "topology_options": (
        _from("1.20", value={}),
        _from("1.26", value={_CLOSEST: Level.ALPHA}, row="k/k#112914"),
        _from("1.28", value={_CLOSEST: Level.BETA}),
        _from("1.31", value={_CLOSEST: Level.BETA, _MAX: Level.BETA}, row="k/k#124148"),
        _from("1.32", value={_CLOSEST: Level.STABLE, _MAX: Level.BETA}),
        _from("1.35", value={_CLOSEST: Level.STABLE, _MAX: Level.STABLE}, row="k/k#134614"),
    ),
    "topology_options_gates": (
        _from("1.20", value=("TopologyManager", "TopologyManagerPolicyOptions")),
        _from("1.28", value=("TopologyManagerPolicyOptions",)),
    ),
    "capital_option_levels": (
        _from("1.20"),
        _from("1.33", value=False, row="seen in 1.34.4"),
    ),
    "hints_over_device_nodes": (
        _from("1.20", value=False),
        _from("1.36", row="k/k#138244, seen in 1.36.3"),
    ),
    "has_get_allocatable": (
        _from("1.20", value=False),
        _from("1.21", row="k/k#95734"),
    ),
    "get_allocatable_enabled": (_from("1.20", gate=_GET_ALLOCATABLE),),
    "get_allocatable_disabled": (
        _from("1.20", value="Pod Resources API GetAllocatableResources disabled"),
        _from("1.27", value="PodResources API GetAllocatableResources disabled"),
    ),
    "allocatable_unhealthy": (
        _from("1.20"),
        _from("1.23", value=False, row="read in 1.23.1"),
    ),
    "has_get": (
        _from("1.20", value=False),
        _from("1.27", row="k/k#115847"),
    ),
    "get_enabled": (_from("1.20", gate=_GET),),
    "list_inactive": (
        _from("1.20"),
        _from("1.34", gate="!KubeletPodResourcesListUseActivePods", row="k/k#132028"),
    ),
    "get_inactive": (
        _from("1.20"),
        _from("1.34.7", "1.35.4", "1.36", value=False, row="read in 1.34.7 and 1.35.4"),
    ),
    "lists_sidecars": (
        _from("1.20", value=False),
        _from("1.30", row="k/k#120718"),
    ),
    "tells_memory": (
        _from("1.20", value=False),
        _from("1.22", row="the wire"),
    ),
    "tells_dynamic_resources": (
        _from("1.20", gate="KubeletPodResourcesDynamicResources & DynamicResourceAllocation"),
    ),
    "tells_share_id": (
        _from("1.20", value=False),
        _from("1.35", row="the wire"),
    ),
    "tells_pod_level": (
        _from("1.20", value=False),
        _from("1.37", gate="PodLevelResourceManagers", row="k/k#138738"),
    ),
    "rate_limited": (
        _from("1.20", value=False),
        _from("1.27", row="read in 1.27.1"),
    ),
    "tells_resource_health": (_from("1.20", gate="ResourceHealthStatus"),),
}
"""By field, ascending. The only place where versions are compared with behaviours."""


def resolve(version: KubeletVersion, chosen: Mapping[str, bool] | None = None) -> Behaviour:
    """What a kubelet of that version does with these feature gates.

    Raises VersionError for a gate that the version does not have or has locked.
    """
    gates = resolve_gates(version, chosen or {})
    fields = {name: _value(_step_at(steps, version), gates) for name, steps in STEPS.items()}
    return Behaviour(version=version, gates=gates, **fields)


def _step_at(steps: tuple[Step, ...], version: KubeletVersion) -> Step:
    """The step that counts for a version."""
    return [step for step in steps if step.holds_at(version)][-1]


def _value(step: Step, gates: Mapping[str, bool]) -> Any:
    if not step.gate:
        return step.value
    terms = (term.strip() for term in step.gate.split("&"))
    return all(not gates[term[1:]] if term[0] == "!" else gates[term] for term in terms)
