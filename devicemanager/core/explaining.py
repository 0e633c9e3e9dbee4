"""From the steps that an admission wrote down to its explanation."""

from __future__ import annotations

from devicemanager.core.allocator import PodAllocation, Seen, Step
from devicemanager.core.errors import Refused
from devicemanager.core.explain import (
    AdmissionExplanation,
    ResourceExplanation,
    StepExplanation,
    explain_merge,
)
from devicemanager.core.ids import ResourceName
from devicemanager.core.topology import TopologyPolicy


def explain(
    allocation: PodAllocation, policy: TopologyPolicy, refused: Refused | None = None
) -> AdmissionExplanation:
    """Why the pod got what it got, or why it was refused."""
    return AdmissionExplanation(
        allocation.pod,
        policy,
        tuple(_step(allocation, policy, step) for step in allocation.steps),
        refused.reason if refused else "",
        refused.message if refused else "",
    )


def _step(allocation: PodAllocation, policy: TopologyPolicy, step: Step) -> StepExplanation:
    return StepExplanation(
        step.container,
        tuple(_resource(allocation, step, resource, seen) for resource, seen in step.seen.items()),
        explain_merge(policy, step.hints) if step.hints is not None else None,
        step.error,
    )


def _resource(
    allocation: PodAllocation, step: Step, resource: ResourceName, seen: Seen
) -> ResourceExplanation:
    chosen = 0
    if step.container is not None:
        holding = allocation.drafted(step.container).get(resource)
        if holding is not None:
            chosen = seen.devices.numbering.bits(holding.ids)
    return ResourceExplanation(resource, seen.request, seen.devices, seen.in_use, chosen)
