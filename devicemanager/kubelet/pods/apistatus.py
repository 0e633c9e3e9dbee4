"""The status of a pod in the API, made of what the node knows of the pod."""

from __future__ import annotations

from devicemanager.core.podstatus.conditions import Gates
from devicemanager.core.podstatus.status import (
    PodFacts,
    PodStatus,
    Resources,
    pod_status,
    rejected_status,
)
from devicemanager.kubelet.pods.records import PodRecord

__all__ = ["api_status"]


def api_status(
    record: PodRecord, resources: Resources | None = None, gates: Gates | None = None
) -> PodStatus:
    """A pod's status as the API has it; hold the store's lock. ``resources`` is what
    ``allocated_resources_status`` says of it."""
    facts = PodFacts(
        record.pod,
        record.phase,
        record.reason,
        record.message,
        record.start_time,
        record.has_sandbox,
        record.unready,
        record.disrupted,
    )
    if record.rejected:
        return rejected_status(facts)
    return pod_status(facts, record.status, resources, gates)
