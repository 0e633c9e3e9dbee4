"""The behaviour of one kubelet version: a value for each difference between versions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import attrs

from devicemanager.core.versions.gates import resolve_gates
from devicemanager.core.versions.steps import value_at
from devicemanager.core.versions.table import (
    STEPS,
    DraWording,
    HealthCheck,
    Level,
    MergeRule,
    StartRemoves,
    WipeRule,
)
from devicemanager.core.versions.version import KubeletVersion

__all__ = ["STEPS", "Behaviour", "HealthCheck", "Level", "StartRemoves", "resolve"]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Behaviour:
    """Behaviour of one kubelet version with its feature gates: a field for each difference.

    docs/kubelet-versions.md shows the docstrings of the fields.
    """

    version: KubeletVersion
    gates: Mapping[str, bool]
    start_removes: StartRemoves
    """Files that the kubelet removes from the plugin directory at start."""
    deprecation_file: bool
    """True if the kubelet creates an empty file ``DEPRECATION`` in the plugin directory at
    start."""
    register_waits: bool
    """True if Register returns only after the kubelet has dialed the plugin and received its
    options; otherwise Register returns after the check of API version and resource name."""
    options_of_request: bool
    """True if the kubelet uses the options in the Register request, and does not call
    GetDevicePluginOptions."""
    watcher_dial_failed: str
    """The error for a plugin that the plugin watcher has found but cannot dial."""
    listen_failed: str
    """The error with which the kubelet exits if it cannot listen for registrations."""
    watcher_retries: bool
    """True if the plugin watcher retries after it failed to connect to a plugin or to notify the
    plugin."""
    unknown_init_requests: bool
    """True if a pod is rejected because an init container requests an unknown extended resource;
    otherwise the init container runs without the resource. An app container with such a request
    runs without the resource in all versions."""
    counts_pod_level_requests: bool
    """True if the check whether a pod fits on the node uses the requests of ``spec.resources``
    instead of the requests of the containers."""
    several_plugins: bool
    """True if several plugins can serve a resource: when the newest plugin disconnects, another
    plugin takes over. Otherwise a new plugin replaces the old plugin."""
    admission_checks_health: bool
    """True if a pod that already has devices is rejected while their plugin is not registered or
    one of the devices is unhealthy. This matters after a kubelet restart."""
    running_survive_restart: bool
    """True if running containers survive a kubelet restart even if their plugin has not
    re-registered yet."""
    empty_allocate_reply: str
    """Last part of the message that rejects a pod if the AllocateResponse has no container
    responses."""
    backed_fit: bool
    """True if the check whether a pod fits on the node skips an extended resource that a resource
    claim provides."""
    backed_skip_plugins: bool
    """True if no plugin is called for an extended resource that a resource claim provides."""
    sidecars: bool
    """True if restartable init containers are supported; otherwise they are ordinary init
    containers."""
    forbids_sidecars: bool
    """True if a pod with restartable init containers is rejected while the feature gate
    ``SidecarContainers`` is off."""
    sidecars_keep: bool
    """True if later containers cannot reuse the devices of restartable init containers."""
    topology_options: Mapping[str, Level]
    """The topology manager's policy options, with their levels."""
    topology_options_gates: tuple[str, ...]
    """The feature gates that all policy options require."""
    capital_option_levels: bool
    """True if the message about a disabled option starts with ``Topology Manager Policy``,
    otherwise with ``topology manager policy``."""
    pod_level_rejection: bool
    """True if the topology manager has a special message for rejected pods with
    ``spec.resources``."""
    none_checks_options: bool
    """True if policy ``none`` checks the policy options, too; otherwise it accepts any options."""
    merge_rule: MergeRule
    """How the topology manager merges hints. It combines one hint of each resource. With
    ``narrowest``, a combination is preferred if all of its hints are preferred. With ``balanced``,
    its hints must also name the same NUMA nodes."""
    empty_topology_aligns: bool
    """True if one device with an empty topology (a topology without NUMA nodes) is enough for the
    topology manager to align the device's resource. If no device of this resource names a NUMA
    node, requests for the resource cannot be aligned."""
    hints_over_device_nodes: bool
    """True if hints contain only NUMA nodes that have devices of the resource."""
    keeps_admitted_pod: bool
    """True if the pod that was admitted last keeps its devices after its end, until another pod is
    admitted."""
    uses_cdi: bool
    """True if CDI devices in a plugin's response are used; otherwise the field is unknown and
    ignored."""
    stores_cdi: bool
    """True if the checkpoint stores the CDI devices of a plugin's response."""
    annotates_cdi: bool
    """True if CDI devices are also passed to the container runtime as annotations."""
    reads_v1: bool
    """True if a checkpoint of kubelet 1.19 or older can be read; otherwise it counts as
    corrupt."""
    no_topology_node: int
    """The NUMA node under which the checkpoint stores devices without topology. PodResources
    shows this node unless its ID is negative."""
    has_get_allocatable: bool
    """True if PodResources has GetAllocatableResources."""
    get_allocatable_enabled: bool
    """True if GetAllocatableResources is enabled."""
    get_allocatable_disabled: str
    """The error that GetAllocatableResources returns while it is disabled."""
    allocatable_unhealthy: bool
    """True if GetAllocatableResources includes unhealthy devices."""
    has_get: bool
    """True if PodResources has the method Get."""
    get_enabled: bool
    """True if the method Get of PodResources is enabled."""
    serves_pods: bool
    """True if the kubelet serves the Pods API, a gRPC API with the pods of the node."""
    pods_await_sources: bool
    """True if the kubelet's Pods API rejects calls until the kubelet knows all pods of the node."""
    list_inactive: bool
    """True if the method List of PodResources v1 includes rejected and finished pods."""
    get_inactive: bool
    """True if the method Get of PodResources returns rejected and finished pods."""
    lists_sidecars: bool
    """True if PodResources v1 includes restartable init containers."""
    reports_memory: bool
    """True if PodResources v1 has the field ``memory``."""
    shared_cpu_ids: bool
    """True if PodResources returns the shared CPUs for a container without exclusive CPUs."""
    one_entry_per_device: bool
    """True if the method List of PodResources v1 has one entry per device; otherwise it has one
    entry for all devices of a NUMA node."""
    reports_dynamic_resources: bool
    """True if PodResources sets the field ``dynamic_resources``."""
    reports_claim_devices: bool
    """True if a ``ClaimResource`` of PodResources has the fields ``driver_name``, ``pool_name`` and
    ``device_name``."""
    reports_share_id: bool
    """True if a ``ClaimResource`` of PodResources has the field ``share_id``."""
    reports_pod_level: bool
    """True if PodResources sets the fields ``cpu_ids`` and ``memory`` of a pod."""
    podresources_metrics: tuple[str, ...]
    """The PodResources calls with separate metrics
    (``kubelet_pod_resources_endpoint_requests_<call>`` and ``..._errors_<call>``)."""
    pods_api_metrics: tuple[str, ...]
    """The metrics of the kubelet's Pods API. For example, ``requests`` stands for
    ``kubelet_pod_requests_total``."""
    counts_allocatable_twice: bool
    """True if each call of GetAllocatableResources counts twice in
    ``kubelet_pod_resources_endpoint_requests_total``."""
    rate_limited: bool
    """True if PodResources rejects more than 100 requests per second."""
    container_restart_rules: bool
    """True if a container can have its own restart policy and restart rules."""
    restart_all_containers: bool
    """True if a restart rule can restart all containers of a pod."""
    reports_container_resources: bool
    """True if a container's status has ``resources`` and ``allocatedResources``."""
    reports_observed_generation: bool
    """True if a pod's status and its conditions have ``observedGeneration``."""
    resizes_pods: bool
    """True if the CPU and memory of running containers can be changed (in-place resize)."""
    checks_resize_capacity: bool
    """True if a resize that exceeds the capacity of the node is infeasible instead of
    deferred."""
    static_resize: str
    """End of the message ``Resize is infeasible for Guaranteed Pods …`` for pods with exclusive
    CPUs or memory."""
    resize_events: bool
    """True if resizes cause Kubernetes events."""
    declared_features: tuple[str, ...]
    """The features in ``status.declaredFeatures`` of a Node that ``devicemanager join`` adds to a
    cluster, sorted. A feature whose gate is off is omitted."""
    reports_resource_health: bool
    """True if a container's status has ``allocatedResourcesStatus``."""
    health_check: HealthCheck
    """What the check ``device-plugin`` of ``/healthz`` does. With the value none, it never
    fails."""
    admission_metrics: tuple[str, ...]
    """The metrics about the admission of pods. All versions also have the metrics about plugins
    (``kubelet_device_plugin_…``)."""
    scrape_errors: tuple[str, ...]
    """The metrics with which ``/metrics/resource`` reports a failed scrape."""
    dra_enabled: bool
    """True if the kubelet prepares ResourceClaims (Dynamic Resource Allocation)."""
    dra_services: tuple[str, ...]
    """The gRPC services of DRA drivers that the kubelet can call, in its order of
    preference."""
    dra_plugin_chooses: bool
    """True if the order of the driver's list of services decides which service the kubelet calls:
    the first one that the kubelet knows. If this is false, the kubelet's order of preference
    decides. Such a kubelet calls ``v1alpha3.NodeService`` (API version ``v1alpha4``) if it knows no
    service in the list."""
    dra_several_instances: bool
    """True if several instances of a DRA driver can be registered; otherwise a new instance
    replaces the old instance."""
    dra_wipe: WipeRule
    """Condition on which the kubelet deletes the ResourceSlices of a driver on its node."""
    dra_wording: DraWording
    """The texts of the DRA manager's errors."""
    dra_validates_first: bool
    """True if all claims of a pod are validated before the first claim is written to the state
    file."""
    dra_names_from_cache: bool
    """True if unprepare takes the names of a pod's claims from the kubelet's cache; otherwise from
    the pod's spec and status."""
    dra_refuses_unpreparing: bool
    """True if a claim cannot be prepared while it is being unprepared."""
    dra_unprepares_own: bool
    """True if the kubelet, when a pod ends, unprepares only claims that are prepared for this pod.
    If this is false, it also unprepares a claim that the pod's spec names, but that is prepared
    only for one other pod."""
    dra_stores_share_id: bool
    """True if the kubelet stores and reports the share ID of a device."""
    dra_skips_operations: bool
    """True if the kubelet omits the calls that the allocation names in ``skipNodeOperations``."""
    dra_knows_skips: bool
    """True if the kubelet prepares no claim with ``skipNodeOperations`` while the feature gate
    ``DRAOptionalNodeOperations`` is off. The pod of the claim then stays Pending."""
    dra_extended: bool
    """True if the kubelet prepares the claim that provides a pod's extended resources."""
    dra_all_mappings: bool
    """True if a container gets the devices of all claim requests for its extended resource. If this
    is false, it gets only the devices of the first of these requests, and no devices for a resource
    such as ``deviceclass.resource.kubernetes.io/gpu``."""
    dra_gathers_requests: bool
    """True if a container can start as soon as the claims that it uses exist. The container's CDI
    devices are then grouped by claim. If this is false, all claims of the pod must exist, and the
    CDI devices are not grouped."""
    dra_pod_groups: bool
    """True if a claim can be owned by and reserved for a PodGroup."""
    dra_claim_per_request: bool
    """True if PodResources lists a claim several times for a container that names several requests
    of this claim: once for each request. Such a kubelet lists no claims until all claims of the pod
    exist. If this is false, PodResources lists each claim once, as soon as all claims that the
    container uses exist."""
    dra_health: bool
    """True if the kubelet watches the health of DRA devices."""
    dra_health_messages: bool
    """True if the status of a DRA device has the driver's message."""
    dra_health_services: tuple[str, ...]
    """The health services of DRA drivers that the kubelet can call, the preferred service first.
    The kubelet calls the first of these services that the driver lists. If no service is named
    here, the kubelet calls ``v1alpha1.DRAResourceHealth`` of every driver."""
    dra_health_forgets: bool
    """True if the kubelet deletes the stored health of a device that the driver no longer reports,
    when the timeout of the device's last report has passed. If this is false, the kubelet keeps the
    device with health Unknown."""
    dra_permanent_errors: bool
    """True if a pod fails when a driver responds that it can never prepare the pod's claim
    (KEP-5322, not released)."""
    dra_counts_claims: bool
    """True if the kubelet has the metric ``dra_resource_claims_in_use``."""
    dra_error_label_inverted: bool
    """True if the label ``is_error`` of ``dra_operations_duration_seconds`` is inverted."""


def resolve(version: KubeletVersion, chosen: Mapping[str, bool] | None = None) -> Behaviour:
    """Return the behaviour of a kubelet version with the chosen feature gates.

    Raises VersionError if the version does not have a chosen feature gate, or has locked the gate
    to the opposite value.
    """
    return _with_gates(version, chosen) if chosen else _by_default(version)


@lru_cache(maxsize=32)
def _by_default(version: KubeletVersion) -> Behaviour:
    # Cached, because a test suite creates settings for each test, mostly with one version.
    return _with_gates(version, {})


def _with_gates(version: KubeletVersion, chosen: Mapping[str, bool]) -> Behaviour:
    gates = resolve_gates(version, chosen)
    fields = {name: value_at(steps, version, gates) for name, steps in STEPS.items()}
    return Behaviour(version=version, gates=gates, **fields)
