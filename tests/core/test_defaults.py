"""Defaults of values and settings that are not empty."""

from __future__ import annotations

from devicemanager import core
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(core) == {
        "AdmissionContext.sources_ready": True,
        "Device.health": "Healthy",
        "DeviceHealth.timeout": 30.0,
        "DeviceSpec.permissions": "rw",
        "NumaTopology.has_distances": True,
        "Pod.restart_policy": "Always",
        "Pod.termination_grace_period": 30,
        "PolicyOptions.max_numa_nodes": 8,
        "Quantity.format": "DecimalSI",
        "ReportedDevice.health": "Unknown",
        "Rules.checks_health": True,
        "Rules.running_need_nothing": True,
        "Rules.sidecars_keep": True,
        "Rules.no_topology_node": -1,
        "TopologyPolicy.name": "none",
        "TopologyPolicy.scope": "container",
        "Wording.prepare": "prepare dynamic resources: {error}",
        "Wording.unprepare": "unprepare dynamic resources: {error}",
        "Wording.prepare_name": "{error}",
        "Wording.unprepare_name": "{error}",
        "Wording.container_name": "{error}",
        "Wording.podresources_name": "{error}",
        "Wording.fetch": "fetch ResourceClaim {claim}: {error}",
        "Wording.not_owner": "ResourceClaim {key} was not created for Pod {pod} (Pod is not owner)",
        "Wording.not_reserved": (
            "pod {name} ({pod_uid}) is not allowed to use ResourceClaim {claim} ({claim_uid})"
        ),
        "Wording.not_allocated": "ResourceClaim {claim}: not allocated",
        "Wording.no_driver": "DRA driver {driver} is not registered",
        "Wording.no_driver_name": "DRA driver name is empty",
        "Wording.prepare_driver": "{error}",
        "Wording.unprepare_driver": "{error}",
        "Wording.call": "{method}: {error}",
        "Wording.entry": "{method} failed for ResourceClaim {claim}: {error}",
        "Wording.skipped": "{method} skipped {count} ResourceClaims",
        "Wording.write_before": "checkpoint ResourceClaim cache: {error}",
        "Wording.write_after": "checkpoint ResourceClaim state: {error}",
        "Wording.read": (
            "create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to get "
            "checkpoint dra_manager_state: {error}"
        ),
        "Wording.entries": "create ResourceClaim cache: GetEntries() on checkpoint: {error}",
        "Wording.no_info": (
            "internal error: unable to get claim info for ResourceClaim {claim} in namespace "
            "{namespace}"
        ),
        "Wording.no_info_extended": (
            "internal error: unable to get claim info for ResourceClaim {claim} in namespace "
            "{namespace}"
        ),
        "Wording.no_information": "unable to get information for ResourceClaim {claim}",
    }
