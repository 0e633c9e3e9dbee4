"""What differs between kubelets, version by version: the only place where that stands."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from devicemanager.core.versions.steps import Steps, since

__all__ = ["STEPS", "HealthCheck", "Level", "MergeRule", "StartRemoves"]


class Level(StrEnum):
    """How stable a topology manager policy option is; alpha and beta have a gate."""

    ALPHA = "alpha"
    BETA = "beta"
    STABLE = "stable"


class StartRemoves(StrEnum):
    """What a start removes from the plugin directory."""

    ALL_BUT_DIRECTORIES = "everything but directories and the checkpoint"
    SOCKETS = "sockets"


class MergeRule(StrEnum):
    """Which combination of hints the topology manager takes."""

    NARROWEST = "narrowest"
    """Preferred if all of its hints are; then the fewest nodes."""
    BALANCED = "balanced"
    """Preferred if besides they name the same nodes; else as many nodes as the neediest
    resource needs."""


class HealthCheck(StrEnum):
    """The check ``device-plugin`` of ``/healthz``."""

    NONE = "none"
    STRICT = "fails until the registration server has started, and once it has failed"
    LENIENT = "fails once the registration server has failed, and tells the cause"


_CLOSEST, _MAX = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"
_GET_ALLOCATABLE = "KubeletPodResourcesGetAllocatable"
_GET = "KubeletPodResourcesGet"
_TOPOLOGY = tuple(
    f"kubelet_topology_manager_admission_{what}"
    for what in ("requests_total", "errors_total", "duration_ms")
)
_REJECTIONS = "kubelet_admission_rejections_total"
_ALIGNED = "kubelet_container_aligned_compute_resources_count"
_NOT_ALIGNED = "kubelet_container_aligned_compute_resources_failure_count"

STEPS: Mapping[str, Steps] = {
    "start_removes": (
        since("1.20", value=StartRemoves.ALL_BUT_DIRECTORIES),
        since("1.33", value=StartRemoves.SOCKETS, row="read in 1.33.2; 1.33.0", unsure=True),
    ),
    "deprecation_file": (
        since("1.20"),
        since("1.25", value=False, row="k/k#109016"),
    ),
    "register_waits": (
        since("1.20", value=False),
        since("1.25", row="k/k#109016"),
    ),
    "options_of_request": (
        since("1.20"),
        since("1.25", value=False, row="k/k#109016"),
    ),
    "watcher_dial_failed": (
        since(
            "1.20",
            value="failed to dial device plugin with socketPath {socket}: "
            "failed to dial device plugin: {error}",
        ),
        since("1.25", value="failed to dial device plugin: {error}", row="k/k#109016"),
    ),
    "listen_failed": (
        since(
            "1.20",
            value="failed to listen to socket while starting device plugin registry, "
            "with error {error}",
        ),
        since("1.21", value="{error}", row="read"),
    ),
    "watcher_retries": (
        since("1.20", value=False),
        since("1.36", row="k/k#133335"),
    ),
    "unknown_init_requests": (
        since("1.20"),
        since("1.31", value=False, row="seen in 1.30.14, not in 1.31.14"),
    ),
    "several_plugins": (
        since("1.20", value=False),
        since("1.37", row="k/k#135437"),
    ),
    "admission_checks_health": (
        since("1.20", value=False),
        since("1.25.10", "1.26.5", "1.27.2", "1.28", row="k/k#116376"),
    ),
    "running_survive_restart": (
        since("1.20"),
        since("1.25.10", "1.26.5", "1.27.2", value=False, row="k/k#116376"),
        since("1.25.14", "1.26.9", "1.27.6", "1.28", row="k/k#119432; the patches", unsure=True),
    ),
    "empty_allocate_reply": (
        since(
            "1.20", value="&AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}"
        ),
        since("1.34", value="", row="k/k#133028"),
    ),
    "backed_fit": (
        since("1.20", value=False),
        since("1.34", gate="DRAExtendedResource", row="read in 1.34"),
    ),
    "backed_skip_plugins": (
        since("1.20", value=False),
        since("1.35", gate="DRAExtendedResource", row="read in 1.35"),
    ),
    "sidecars": (since("1.20", gate="SidecarContainers"),),
    "sidecars_keep": (
        since("1.20", value=False),
        since("1.29", row="read in 1.29.0"),
    ),
    "topology_options": (
        since("1.20", value={}),
        since("1.26", value={_CLOSEST: Level.ALPHA}, row="k/k#112914"),
        since("1.28", value={_CLOSEST: Level.BETA}),
        since("1.31", value={_CLOSEST: Level.BETA, _MAX: Level.BETA}, row="k/k#124148"),
        since("1.32", value={_CLOSEST: Level.STABLE, _MAX: Level.BETA}),
        since("1.35", value={_CLOSEST: Level.STABLE, _MAX: Level.STABLE}, row="k/k#134614"),
    ),
    "topology_options_gates": (
        since("1.20", value=("TopologyManager", "TopologyManagerPolicyOptions")),
        since("1.28", value=("TopologyManagerPolicyOptions",)),
    ),
    "capital_option_levels": (
        since("1.20"),
        since("1.33", value=False, row="seen in 1.34.4"),
    ),
    "pod_level_rejection": (
        since("1.20", value=False),
        since("1.36", gate="PodLevelResourceManagers", row="read in 1.36"),
    ),
    "merge_rule": (
        since("1.20", value=MergeRule.NARROWEST),
        since("1.24", value=MergeRule.BALANCED, row="k/k#108052, k/k#108154"),
    ),
    "empty_topology_aligns": (
        since("1.20"),
        since("1.26", value=False, row="read in 1.26.1; 1.26.0", unsure=True),
    ),
    "hints_over_device_nodes": (
        since("1.20", value=False),
        since("1.36", row="k/k#138244, seen in 1.36.3"),
    ),
    "uses_cdi": (since("1.20", gate="DevicePluginCDIDevices"),),
    "annotates_cdi": (
        since("1.20", value=False),
        since("1.28", gate="DevicePluginCDIDevices", row="k/k#118254"),
        since("1.32", value=False, row="k/k#126435"),
    ),
    "reads_v1": (
        since("1.20", value=False),
        since("1.22", row="not in 1.21.4"),
        since("1.31", value=False, row="k/k#123398"),
    ),
    "no_topology_node": (
        since("1.20", value=0),
        since("1.23", value=-1, row="read in 1.23.1"),
    ),
    "has_get_allocatable": (
        since("1.20", value=False),
        since("1.21", row="k/k#95734"),
    ),
    "get_allocatable_enabled": (since("1.20", gate=_GET_ALLOCATABLE),),
    "get_allocatable_disabled": (
        since("1.20", value="Pod Resources API GetAllocatableResources disabled"),
        since("1.27", value="PodResources API GetAllocatableResources disabled"),
    ),
    "allocatable_unhealthy": (
        since("1.20"),
        since("1.23", value=False, row="read in 1.23.1; 1.23.0", unsure=True),
    ),
    "has_get": (
        since("1.20", value=False),
        since("1.27", row="k/k#115847"),
    ),
    "get_enabled": (since("1.20", gate=_GET),),
    "list_inactive": (
        since("1.20"),
        since("1.34", gate="!KubeletPodResourcesListUseActivePods", row="k/k#132028"),
    ),
    "get_inactive": (
        since("1.20"),
        since("1.34.7", "1.35.4", "1.36", value=False, row="read in 1.34.7 and 1.35.4"),
    ),
    "lists_sidecars": (
        since("1.20", value=False),
        since("1.30", row="k/k#120718"),
    ),
    "reports_memory": (
        since("1.20", value=False),
        since("1.22", row="the wire"),
    ),
    "shared_cpu_ids": (
        since("1.20"),
        since("1.23", value=False, row="k/k#97415"),
    ),
    "one_entry_per_device": (
        since("1.20", value=False),
        since("1.21", row="read"),
    ),
    "reports_dynamic_resources": (
        since("1.20", gate="KubeletPodResourcesDynamicResources & DynamicResourceAllocation"),
    ),
    "reports_claim_devices": (
        since("1.20", value=False),
        since("1.31", row="the wire"),
    ),
    "reports_share_id": (
        since("1.20", value=False),
        since("1.35", row="the wire"),
    ),
    "reports_pod_level": (
        since("1.20", value=False),
        since("1.37", gate="PodLevelResourceManagers", row="k/k#138738"),
    ),
    "podresources_metrics": (
        since("1.20", value=()),
        since("1.21", value=("list", "get_allocatable"), row="by use"),
        since("1.27", value=("list", "get_allocatable", "get"), row="k/k#115847"),
    ),
    "counts_allocatable_twice": (
        since("1.20", value=False),
        since("1.21", row="read"),
        since("1.27", value=False, row="read"),
    ),
    "rate_limited": (
        since("1.20", value=False),
        since("1.27", row="read in 1.27.1"),
    ),
    "reports_resource_health": (since("1.20", gate="ResourceHealthStatus"),),
    "health_check": (
        since("1.20", value=HealthCheck.NONE),
        since("1.32", value=HealthCheck.STRICT, row="k/k#128432"),
        since("1.32.11", "1.33.7", "1.34.3", "1.35", value=HealthCheck.LENIENT, row="k/k#135153"),
    ),
    "admission_metrics": (
        since("1.20", value=()),
        since("1.27", value=_TOPOLOGY, row="read"),
        since("1.32", value=(*_TOPOLOGY, _REJECTIONS, _ALIGNED), row="read"),
        since("1.33", value=(*_TOPOLOGY, _REJECTIONS, _ALIGNED, _NOT_ALIGNED), row="read"),
    ),
    "scrape_errors": (
        since("1.20", value=("scrape_error",)),
        since("1.29", value=("scrape_error", "resource_scrape_error"), row="read", unsure=True),
        since("1.30", value=("resource_scrape_error",), row="read", unsure=True),
    ),
}
"""By field of ``Behaviour``, ascending."""
