"""The table of version differences: the values of each ``Behaviour`` field, by version."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from devicemanager.core.versions.steps import Steps, since


class Level(StrEnum):
    """Stability level of a topology manager policy option.

    Alpha and beta options need a feature gate.
    """

    ALPHA = "alpha"
    BETA = "beta"
    STABLE = "stable"


class StartRemoves(StrEnum):
    """Files that the kubelet removes from the plugin directory at start."""

    ALL_BUT_DIRECTORIES = "everything but directories and the checkpoint"
    SOCKETS = "sockets"


class MergeRule(StrEnum):
    """Rule by which the topology manager chooses among combinations of hints."""

    NARROWEST = "narrowest"
    """A combination has one hint of each resource. It is preferred if all of its hints are
    preferred. Preferred combinations come first, then those with the fewest common NUMA nodes."""
    BALANCED = "balanced"
    """A combination has one hint of each resource. It is preferred if all of its hints are
    preferred and name the same NUMA nodes. If no combination is preferred, the best combination has
    as many common nodes as the resource that needs the most nodes."""


class HealthCheck(StrEnum):
    """Behaviour of the check ``device-plugin`` of ``/healthz``."""

    NONE = "none"
    STRICT = "fails until the registration server has started, and after it has failed"
    LENIENT = "fails after the registration server has failed, with the cause"


class DraWording(StrEnum):
    """Messages of the DRA manager's errors."""

    V1_32 = "as in v1.32"
    V1_34 = "as in v1.34"
    V1_36 = "as in v1.36"


class WipeRule(StrEnum):
    """Condition on which the kubelet deletes the ResourceSlices of a driver on its node."""

    AT_ONCE = "when the driver deregisters"
    DEREGISTERED = "30 s after the last instance has deregistered"
    DISCONNECTED = "30 s after the last instance has lost its connection or deregistered"


_CLOSEST, _MAX = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"
_GET_ALLOCATABLE = "KubeletPodResourcesGetAllocatable"
_GET = "KubeletPodResourcesGet"
_TOPOLOGY = tuple(
    f"kubelet_topology_manager_admission_{what}"
    for what in ("requests_total", "errors_total", "duration_ms")
)
_DRA_PLUGIN = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
_REJECTIONS = "kubelet_admission_rejections_total"
_ALIGNED = "kubelet_container_aligned_compute_resources_count"
_NOT_ALIGNED = "kubelet_container_aligned_compute_resources_failure_count"
# A kubelet also declares the resize of pod-level resources and web sockets for exec, which virtual
# nodes do not have.
_DECLARED = ("InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits")

# How to read the table: a field has its first value from 1.20, the oldest supported version, until
# the next step. A step with several versions was backported: it also applies to the named and all
# later patches of older minors. A step with a gate has the state of that feature gate as its
# value. ``unsure`` marks a step whose first version is somewhere between two versions whose source
# was read.
#
# To add a difference: add a field with a docstring to ``Behaviour`` and add its steps here. Then
# read the field where the behaviour differs. Do not compare versions in other modules: patches of
# several minors can share a behaviour, so a comparison is nearly always wrong.

STEPS: Mapping[str, Steps] = {
    # The plugin directory and the Registration service. Most steps are from k/k#109016 in v1.25:
    # since then, Register waits until the kubelet has dialed the plugin.
    "start_removes": (
        since("1.20", value=StartRemoves.ALL_BUT_DIRECTORIES),
        since("1.33", value=StartRemoves.SOCKETS, evidence="source of 1.33.2; 1.33.0", unsure=True),
    ),
    "deprecation_file": (
        since("1.20"),
        since("1.25", value=False, evidence="k/k#109016"),
    ),
    "register_waits": (
        since("1.20", value=False),
        since("1.25", evidence="k/k#109016"),
    ),
    "options_of_request": (
        since("1.20"),
        since("1.25", value=False, evidence="k/k#109016"),
    ),
    "watcher_dial_failed": (
        since(
            "1.20",
            value="failed to dial device plugin with socketPath {socket}: "
            "failed to dial device plugin: {error}",
        ),
        since("1.25", value="failed to dial device plugin: {error}", evidence="k/k#109016"),
    ),
    "listen_failed": (
        since(
            "1.20",
            value="failed to listen to socket while starting device plugin registry, "
            "with error {error}",
        ),
        since("1.21", value="{error}", evidence="source"),
    ),
    "watcher_retries": (
        since("1.20", value=False),
        since("1.36", evidence="k/k#133335"),
    ),
    "unknown_init_requests": (
        since("1.20"),
        since("1.31", value=False, evidence="seen in 1.31.14, not in 1.30.14"),
    ),
    "counts_pod_level_requests": (
        since("1.20", value=False),
        since("1.32", gate="PodLevelResources", evidence="source of 1.32.13"),
    ),
    "several_plugins": (
        since("1.20", value=False),
        since("1.37", evidence="k/k#135437"),
    ),
    # Admission. Since k/k#116376 allocated devices must be healthy. The first releases with it
    # also rejected running containers after each kubelet restart, until k/k#119432 made an
    # exception for them.
    "admission_checks_health": (
        since("1.20", value=False),
        since("1.25.10", "1.26.5", "1.27.2", "1.28", evidence="k/k#116376"),
    ),
    "running_survive_restart": (
        since("1.20"),
        since("1.25.10", "1.26.5", "1.27.2", value=False, evidence="k/k#116376"),
        since(
            "1.25.14",
            "1.26.9",
            "1.27.6",
            "1.28",
            evidence="k/k#119432; patch releases",
            unsure=True,
        ),
    ),
    # The text comes from the protobuf library: gogo printed the message's fields, and the
    # library that replaced it in v1.34 prints nothing for an empty message.
    "empty_allocate_reply": (
        since(
            "1.20", value="&AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}"
        ),
        since("1.34", value="", evidence="k/k#133028"),
    ),
    # Extended resources provided by dynamic resource allocation (KEP-5004).
    "backed_fit": (
        since("1.20", value=False),
        since("1.34", gate="DRAExtendedResource", evidence="source of 1.34"),
    ),
    "backed_skip_plugins": (
        since("1.20", value=False),
        since("1.35", gate="DRAExtendedResource", evidence="source of 1.35"),
    ),
    "sidecars": (since("1.20", gate="SidecarContainers"),),
    "forbids_sidecars": (
        since("1.20", value=False),
        since("1.28", evidence="seen in 1.28.15"),
    ),
    "sidecars_keep": (
        since("1.20", value=False),
        since("1.29", evidence="source of 1.29.0"),
    ),
    # The topology manager. The options' levels matter because alpha and beta options need a
    # feature gate, and because error messages name the level.
    "topology_options": (
        since("1.20", value={}),
        since("1.26", value={_CLOSEST: Level.ALPHA}, evidence="k/k#112914"),
        since("1.28", value={_CLOSEST: Level.BETA}),
        since("1.31", value={_CLOSEST: Level.BETA, _MAX: Level.BETA}, evidence="k/k#124148"),
        since("1.32", value={_CLOSEST: Level.STABLE, _MAX: Level.BETA}),
        since("1.35", value={_CLOSEST: Level.STABLE, _MAX: Level.STABLE}, evidence="k/k#134614"),
    ),
    "topology_options_gates": (
        since("1.20", value=("TopologyManager", "TopologyManagerPolicyOptions")),
        since("1.27", value=("TopologyManagerPolicyOptions",), evidence="source of 1.27.16"),
    ),
    "capital_option_levels": (
        since("1.20"),
        since("1.33", value=False, evidence="seen in 1.34.4"),
    ),
    "pod_level_rejection": (
        since("1.20", value=False),
        since("1.36", gate="PodLevelResourceManagers", evidence="source of 1.36"),
    ),
    "none_checks_options": (
        since("1.20"),
        since("1.28", value=False, evidence="seen in 1.28.15, not in 1.27.16"),
    ),
    "merge_rule": (
        since("1.20", value=MergeRule.NARROWEST),
        since("1.24", value=MergeRule.BALANCED, evidence="k/k#108052, k/k#108154"),
    ),
    "empty_topology_aligns": (
        since("1.20"),
        since("1.26", value=False, evidence="source of 1.26.1; 1.26.0", unsure=True),
    ),
    "hints_over_device_nodes": (
        since("1.20", value=False),
        since("1.36", evidence="k/k#138244, seen in 1.36.3"),
    ),
    "keeps_admitted_pod": (
        since("1.20"),
        since("1.32", value=False, evidence="seen in 1.32.13, not in 1.31.14"),
    ),
    # The response to Allocate. CDI devices were first passed to the runtime as annotations,
    # because not all runtimes supported the CRI field yet.
    "uses_cdi": (since("1.20", gate="DevicePluginCDIDevices"),),
    "stores_cdi": (
        since("1.20", value=False),
        since("1.28", evidence="k/k#118254, seen in 1.28.15, not in 1.27.16"),
    ),
    "annotates_cdi": (
        since("1.20", value=False),
        since("1.28", gate="DevicePluginCDIDevices", evidence="k/k#118254"),
        since("1.32", value=False, evidence="k/k#126435"),
    ),
    # The checkpoint. v1 is the format without NUMA nodes.
    "reads_v1": (
        since("1.20", value=False),
        since("1.22", evidence="not in 1.21.4"),
        since("1.31", value=False, evidence="k/k#123398"),
    ),
    "no_topology_node": (
        since("1.20", value=0),
        since("1.23", value=-1, evidence="source of 1.23.1"),
    ),
    # PodResources. A kubelet leaves out a field that it does not know. A method that it does not
    # have returns UNIMPLEMENTED; a method whose gate is off returns another error.
    "has_get_allocatable": (
        since("1.20", value=False),
        since("1.21", evidence="k/k#95734"),
    ),
    "get_allocatable_enabled": (since("1.20", gate=_GET_ALLOCATABLE),),
    "get_allocatable_disabled": (
        since("1.20", value="Pod Resources API GetAllocatableResources disabled"),
        since("1.27", value="PodResources API GetAllocatableResources disabled"),
    ),
    "allocatable_unhealthy": (
        since("1.20"),
        since("1.23", value=False, evidence="source of 1.23.1; 1.23.0", unsure=True),
    ),
    "has_get": (
        since("1.20", value=False),
        since("1.27", evidence="k/k#115847"),
    ),
    "get_enabled": (since("1.20", gate=_GET),),
    "serves_pods": (since("1.20", gate="PodsAPI"),),
    "pods_await_sources": (
        since("1.20", value=False),
        since("1.37", evidence="source of 1.36.3 and 1.37.2"),
    ),
    "list_inactive": (
        since("1.20"),
        since("1.34", gate="!KubeletPodResourcesListUseActivePods", evidence="k/k#132028"),
    ),
    "get_inactive": (
        since("1.20"),
        since("1.34.7", "1.35.4", "1.36", value=False, evidence="source of 1.34.7 and 1.35.4"),
    ),
    "lists_sidecars": (
        since("1.20", value=False),
        since("1.30", evidence="k/k#120718"),
    ),
    "reports_memory": (
        since("1.20", value=False),
        since("1.22", evidence="API definition"),
    ),
    "shared_cpu_ids": (
        since("1.20"),
        since("1.23", value=False, evidence="k/k#97415"),
    ),
    "one_entry_per_device": (
        since("1.20", value=False),
        since("1.21", evidence="source"),
    ),
    "reports_dynamic_resources": (
        since("1.20", gate="KubeletPodResourcesDynamicResources & DynamicResourceAllocation"),
    ),
    "reports_claim_devices": (
        since("1.20", value=False),
        since("1.31", evidence="API definition"),
    ),
    "reports_share_id": (
        since("1.20", value=False),
        since("1.35", evidence="API definition"),
    ),
    "reports_pod_level": (
        since("1.20", value=False),
        since("1.37", gate="PodLevelResourceManagers", evidence="k/k#138738"),
    ),
    "podresources_metrics": (
        since("1.20", value=()),
        since("1.21", value=("list", "get_allocatable"), evidence="observed"),
        since("1.27", value=("list", "get_allocatable", "get"), evidence="k/k#115847"),
    ),
    "pods_api_metrics": (
        since("1.20", value=()),
        since("1.36", value=("watch_events_dropped",), evidence="source of 1.36.3"),
        since("1.37", value=("watch_events_dropped", "requests"), evidence="source of 1.37.2"),
    ),
    "counts_allocatable_twice": (
        since("1.20", value=False),
        since("1.21", evidence="source"),
        since("1.27", value=False, evidence="source"),
    ),
    "rate_limited": (
        since("1.20", value=False),
        since("1.27", evidence="source of 1.27.1"),
    ),
    # Status, health checks and metrics.
    "container_restart_rules": (since("1.20", gate="ContainerRestartRules"),),
    "restart_all_containers": (since("1.20", gate="RestartAllContainersOnContainerExits"),),
    "reports_container_resources": (since("1.20", gate="InPlacePodVerticalScaling"),),
    "reports_observed_generation": (since("1.20", gate="PodObservedGenerationTracking"),),
    # In 1.27 to 1.32 the alpha feature reports its progress in another field.
    "resizes_pods": (
        since("1.20", value=False),
        since("1.33", gate="InPlacePodVerticalScaling", evidence="source of 1.33.4"),
    ),
    # From 1.36 on, the API server rejects such a resize.
    "checks_resize_capacity": (
        since("1.20"),
        since("1.36", value=False, evidence="source of 1.35.4 and 1.36.3"),
    ),
    "static_resize": (
        since("1.20", value="alongside {name} static policy"),
        since(
            "1.35",
            value='alongside {name} policy "{policy}"',
            evidence="source of 1.34.4 and 1.35.4",
        ),
    ),
    "resize_events": (
        since("1.20", value=False),
        since("1.35", evidence="source of 1.34.4 and 1.35.4"),
    ),
    "declared_features": (
        since("1.20", value=()),
        since("1.36", value=_DECLARED, evidence="source of 1.36.3"),
    ),
    "reports_resource_health": (since("1.20", gate="ResourceHealthStatus"),),
    "health_check": (
        since("1.20", value=HealthCheck.NONE),
        since("1.32", value=HealthCheck.STRICT, evidence="k/k#128432"),
        since(
            "1.32.11", "1.33.7", "1.34.3", "1.35", value=HealthCheck.LENIENT, evidence="k/k#135153"
        ),
    ),
    "admission_metrics": (
        since("1.20", value=()),
        since("1.27", value=_TOPOLOGY, evidence="source"),
        since("1.32", value=(*_TOPOLOGY, _REJECTIONS, _ALIGNED), evidence="source"),
        since("1.33", value=(*_TOPOLOGY, _REJECTIONS, _ALIGNED, _NOT_ALIGNED), evidence="source"),
    ),
    "scrape_errors": (
        since("1.20", value=("scrape_error",)),
        since(
            "1.29", value=("scrape_error", "resource_scrape_error"), evidence="source", unsure=True
        ),
        since("1.30", value=("resource_scrape_error",), evidence="source", unsure=True),
    ),
    # Dynamic Resource Allocation. Most steps are differences between runs of 1.34.4, 1.36.3 and
    # 1.37.2, and the source of 1.32.13.
    "dra_enabled": (
        since("1.20", value=False),
        since("1.32", gate="DynamicResourceAllocation", evidence="source of 1.32.13"),
    ),
    "dra_services": (
        since("1.20", value=("v1beta1.DRAPlugin", "v1alpha3.NodeService")),
        since("1.34", value=_DRA_PLUGIN, evidence="k/k#132574"),
    ),
    "dra_plugin_chooses": (
        since("1.20", value=False),
        since("1.34", evidence="source of 1.34.4"),
    ),
    "dra_several_instances": (
        since("1.20", value=False),
        since("1.33", evidence="k/k#129832"),
    ),
    "dra_wipe": (
        since("1.20", value=WipeRule.AT_ONCE),
        since("1.33", value=WipeRule.DEREGISTERED, evidence="k/k#129832"),
        since("1.34", value=WipeRule.DISCONNECTED, evidence="k/k#132058"),
    ),
    "dra_wording": (
        since("1.20", value=DraWording.V1_32),
        since("1.34", value=DraWording.V1_34, evidence="seen in 1.34.4"),
        since("1.36", value=DraWording.V1_36, evidence="seen in 1.36.3", unsure=True),
    ),
    "dra_validates_first": (
        since("1.20", value=False),
        since("1.34", evidence="k/k#131957"),
    ),
    "dra_names_from_cache": (
        since("1.20", value=False),
        since("1.37", evidence="k/k#139772"),
    ),
    "dra_refuses_unpreparing": (
        since("1.20", value=False),
        since("1.37", evidence="k/k#140527"),
    ),
    "dra_unprepares_own": (
        since("1.20", value=False),
        since("1.37", evidence="k/k#140212"),
    ),
    "dra_stores_share_id": (
        since("1.20", value=False),
        since("1.35", evidence="seen in 1.36.3, not in 1.34.4", unsure=True),
    ),
    "dra_skips_operations": (
        since("1.20", value=False),
        since("1.37", gate="DRAOptionalNodeOperations", evidence="source of 1.37.2"),
    ),
    "dra_knows_skips": (
        since("1.20", value=False),
        since("1.37", evidence="source of 1.37.2"),
    ),
    "dra_extended": (
        since("1.20", value=False),
        since("1.34", gate="DRAExtendedResource", evidence="source of 1.34.4"),
    ),
    "dra_all_mappings": (
        since("1.20", value=False),
        since("1.36", evidence="seen in 1.36.3, not in 1.34.4", unsure=True),
    ),
    "dra_gathers_requests": (
        since("1.20", value=False),
        since("1.36", evidence="seen in 1.36.3, not in 1.34.4", unsure=True),
    ),
    "dra_pod_groups": (
        since("1.20", value=False),
        since(
            "1.36", gate="DRAWorkloadResourceClaims & GenericWorkload", evidence="source of 1.36.3"
        ),
    ),
    "dra_claim_per_request": (
        since("1.20"),
        since("1.36", value=False, evidence="seen in 1.36.3, not in 1.34.4", unsure=True),
    ),
    "dra_health": (
        since("1.20", value=False),
        since("1.34", gate="ResourceHealthStatus", evidence="source of 1.34.4"),
    ),
    "dra_health_messages": (
        since("1.20", value=False),
        since("1.36", gate="ResourceHealthStatusMessage", evidence="source of 1.36.3"),
    ),
    "dra_health_services": (
        since("1.20", value=()),
        since(
            "1.37",
            value=("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"),
            evidence="k/k#139477",
        ),
    ),
    "dra_health_forgets": (
        since("1.20", value=False),
        since("1.37", evidence="seen in 1.37.2, not in 1.36.3"),
    ),
    "dra_permanent_errors": (
        since("1.20", value=False),
        since("1.35", gate="DRAHandlePermanentDriverFailures", evidence="proposal KEP-5322"),
    ),
    "dra_counts_claims": (
        since("1.20", value=False),
        since("1.34", evidence="source of 1.34.4"),
    ),
    "dra_error_label_inverted": (
        since("1.20"),
        since("1.36", value=False, evidence="seen in 1.36.3, not in 1.34.4", unsure=True),
    ),
}
"""Steps of each ``Behaviour`` field, by name of the field."""
