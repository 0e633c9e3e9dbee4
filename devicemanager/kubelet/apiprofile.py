"""PodResources as the kubelet of a version has it."""

from __future__ import annotations

from devicemanager.kubelet.settings import Settings
from podresources.profile import Profile

__all__ = ["api_profile"]


def api_profile(settings: Settings) -> Profile:
    """PodResources as the kubelet of that version has it."""
    behaviour = settings.behaviour
    disabled = behaviour.has_get_allocatable and not behaviour.get_allocatable_enabled
    return Profile(
        has_get_allocatable=behaviour.has_get_allocatable,
        get_allocatable_disabled=behaviour.get_allocatable_disabled if disabled else "",
        has_get=behaviour.has_get,
        get_enabled=behaviour.get_enabled,
        list_inactive=settings.pod_resources_list_inactive,
        get_inactive=behaviour.get_inactive,
        sidecars=behaviour.lists_sidecars,
        memory=behaviour.reports_memory,
        share_id=behaviour.reports_share_id,
        dynamic_resources=behaviour.reports_dynamic_resources,
        counted=behaviour.podresources_metrics,
        counts_allocatable_twice=behaviour.counts_allocatable_twice,
        claim_devices=behaviour.reports_claim_devices,
        repeats_cdi="Q26" in settings.quirks,
        groups_devices=not behaviour.one_entry_per_device,
    )
