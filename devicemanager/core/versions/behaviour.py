"""What a kubelet of one version does, wherever versions differ."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import attrs

from devicemanager.core.versions.gates import resolve_gates
from devicemanager.core.versions.steps import value_at
from devicemanager.core.versions.table import STEPS, HealthCheck, Level, MergeRule, StartRemoves
from devicemanager.core.versions.version import KubeletVersion

__all__ = ["STEPS", "Behaviour", "HealthCheck", "Level", "StartRemoves", "resolve"]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Behaviour:
    """Resolved once, when the settings are made; nobody else compares versions."""

    version: KubeletVersion
    gates: Mapping[str, bool]
    start_removes: StartRemoves
    """What a start removes from the plugin directory."""
    deprecation_file: bool
    """Whether a start leaves an empty file ``DEPRECATION`` in the plugin directory."""
    register_waits: bool
    """Whether Register is answered when the plugin was dialed and asked for its options, and
    not as soon as version and name are right."""
    options_of_request: bool
    """Whether a plugin that registers has the options of its request, and is not asked."""
    watcher_dial_failed: str
    """How a plugin that the watcher found is told that it could not be dialed."""
    listen_failed: str
    """Why the kubelet does not start if it cannot listen for registrations."""
    watcher_retries: bool
    """Whether the watcher tries a plugin again that it could not connect to or tell so."""
    unknown_init_requests: bool
    """Whether an init container is rejected that asks for an extended resource which the node
    does not know; without a plugin, an app container runs without it."""
    several_plugins: bool
    """Whether several plugins serve a resource at a time, and another takes over when the
    newest leaves; if not, the newest replaces the others."""
    admission_checks_health: bool
    """Whether a container that has its devices is admitted again only if its plugin is there
    and they are healthy."""
    running_survive_restart: bool
    """Whether containers that run stay when the kubelet restarts and their plugin is away."""
    empty_allocate_reply: str
    """How the rejection ends for a reply to Allocate that names no container."""
    backed_fit: bool
    """Whether an extended resource that a resource claim provides need not fit the node's."""
    backed_skip_plugins: bool
    """Whether no plugin is asked for it either."""
    sidecars: bool
    """Whether there are restartable init containers; if not, they are ordinary ones."""
    sidecars_keep: bool
    """Whether restartable init containers keep their devices, and do not hand them on."""
    topology_options: Mapping[str, Level]
    """The topology manager's policy options that there are."""
    topology_options_gates: tuple[str, ...]
    """The gates that a rejection of all options names."""
    capital_option_levels: bool
    """Whether the rejection of an option's level begins ``Topology Manager Policy``."""
    pod_level_rejection: bool
    """Whether a pod with ``spec.resources`` that cannot be aligned is told so in words of its
    own."""
    merge_rule: MergeRule
    """Which combination of hints the topology manager takes: preferred is one whose hints all
    are (``narrowest``), and besides name the same nodes (``balanced``)."""
    empty_topology_aligns: bool
    """Whether a resource of which a device has a topology without nodes is aligned, so that
    it fits nowhere if no other device has a node."""
    hints_over_device_nodes: bool
    """Whether hints are made of the NUMA nodes only that have devices of the resource."""
    uses_cdi: bool
    """Whether the CDI devices of a plugin's answer are used; if not, they are an unknown field."""
    annotates_cdi: bool
    """Whether they are told to the runtime as an annotation besides."""
    reads_v1: bool
    """Whether a checkpoint of 1.19 or older is read; if not, it is a corrupt file."""
    no_topology_node: int
    """The NUMA node under which the checkpoint has a device without topology; PodResources
    tells of the nodes that are not negative."""
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
    """Whether v1 List tells of rejected and finished pods."""
    get_inactive: bool
    """Whether Get answers for rejected and finished pods."""
    lists_sidecars: bool
    """Whether v1 PodResources tells of restartable init containers."""
    reports_memory: bool
    """Whether v1 PodResources has the field ``memory``."""
    shared_cpu_ids: bool
    """Whether PodResources tells of a container without CPUs of its own those that are
    shared."""
    one_entry_per_device: bool
    """Whether v1 List has an entry for each device, and not one for all on a node."""
    reports_dynamic_resources: bool
    """Whether ``dynamic_resources`` is filled in."""
    reports_claim_devices: bool
    """Whether a claim's resource has the fields ``driver_name``, ``pool_name`` and
    ``device_name``."""
    reports_share_id: bool
    """Whether a claim's resource has the field ``share_id``."""
    reports_pod_level: bool
    """Whether a pod's own ``cpu_ids`` and ``memory`` are filled in."""
    podresources_metrics: tuple[str, ...]
    """The calls of PodResources that have metrics of their own
    (``kubelet_pod_resources_endpoint_requests_<call>`` and ``..._errors_<call>``)."""
    counts_allocatable_twice: bool
    """Whether GetAllocatableResources counts twice in
    ``kubelet_pod_resources_endpoint_requests_total``."""
    rate_limited: bool
    """Whether PodResources rejects more than 100 requests a second."""
    reports_resource_health: bool
    """Whether a container's status has ``allocatedResourcesStatus``."""
    health_check: HealthCheck
    """The check ``device-plugin`` of ``/healthz``."""
    admission_metrics: tuple[str, ...]
    """The metrics of admissions that there are, besides those of plugins."""
    scrape_errors: tuple[str, ...]
    """How ``/metrics/resource`` tells that it could not be read."""


def resolve(version: KubeletVersion, chosen: Mapping[str, bool] | None = None) -> Behaviour:
    """What a kubelet of that version does with these feature gates.

    Raises VersionError for a gate that the version does not have or has locked.
    """
    return _with_gates(version, chosen) if chosen else _by_default(version)


@lru_cache(maxsize=32)
def _by_default(version: KubeletVersion) -> Behaviour:
    # A suite makes settings for each test, nearly all of one version.
    return _with_gates(version, {})


def _with_gates(version: KubeletVersion, chosen: Mapping[str, bool]) -> Behaviour:
    gates = resolve_gates(version, chosen)
    fields = {name: value_at(steps, version, gates) for name, steps in STEPS.items()}
    return Behaviour(version=version, gates=gates, **fields)
