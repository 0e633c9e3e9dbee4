"""Explain the admission or rejection of a pod, from the steps recorded in its ``PodAllocation``."""

from __future__ import annotations

from collections.abc import Mapping

from devicemanager.core.allocation.container import PodAllocation, ResourceSnapshot, Step
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.explanation.model import (
    AdmissionExplanation,
    ResourceExplanation,
    StepExplanation,
    explain_merge,
)
from devicemanager.core.ids import ResourceName
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import Rejected
from devicemanager.core.topology import TopologyPolicy


def explain(allocation: PodAllocation, rejected: Rejected | None = None) -> AdmissionExplanation:
    """Return the explanation of a pod's allocation, or of its rejection.

    Must be called with the manager's lock held, because the explanation includes the devices
    of all pods.
    """
    policy = allocation.policy
    return AdmissionExplanation(
        allocation.pod,
        policy,
        tuple(_step(allocation, policy, step) for step in allocation.steps),
        rejected.reason if rejected else "",
        rejected.message if rejected else "",
        allocation.ledger.snapshot(),
    )


def _step(allocation: PodAllocation, policy: TopologyPolicy, step: Step) -> StepExplanation:
    return StepExplanation(
        step.container,
        tuple(
            _resource(allocation, step, resource, snapshot)
            for resource, snapshot in step.snapshots.items()
        ),
        explain_merge(policy, step.hints) if step.hints is not None else None,
        step.error,
        _unknown(allocation.pod, step),
    )


def _resource(
    allocation: PodAllocation, step: Step, resource: ResourceName, snapshot: ResourceSnapshot
) -> ResourceExplanation:
    chosen = snapshot.allocated
    # A step for the whole pod only computes hints. Devices are chosen in the containers' steps.
    if step.container is not None:
        given = allocation.draft.allocated.get(step.container, {}).get(resource)
        # The draft has no entry if the container kept its devices or was rejected.
        chosen = chosen if given is None else given.ids
    bits = snapshot.devices.device_index.bits(chosen)
    return ResourceExplanation(
        resource,
        snapshot.request,
        snapshot.devices,
        snapshot.in_use,
        bits,
        # ``own`` is for the pod's other containers. Devices that this one had are removed.
        snapshot.own & ~bits,
    )


def _unknown(pod: Pod, step: Step) -> Mapping[ResourceName, int]:
    """Return the requested numbers of devices, by resource, for resources that no plugin has
    registered."""
    return {
        resource: count
        for container, _ in pod.all_containers()
        if container.name == step.container
        for resource, count in sorted(container.limits.items())
        # Native resources such as cpu never have a plugin, and a limit of 0 needs none.
        if count and resource not in step.snapshots and is_extended_resource_name(resource)
    }
