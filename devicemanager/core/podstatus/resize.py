"""In-place resize: changed CPU and memory of a running pod (pkg/kubelet/allocation, v1.37)."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from devicemanager.core.ids import ContainerName, ResourceName
from devicemanager.core.pods import Amounts, Container, Pod
from devicemanager.core.podstatus.conditions import Condition, ResizeCondition

RESIZABLE = (ResourceName("cpu"), ResourceName("memory"))
"""The resources that can be resized."""
DEFERRED = "Deferred"
"""Reason of a pending resize that waits until other pods free CPU or memory of the node."""
INFEASIBLE = "Infeasible"
"""Reason of a pending resize that this node can never carry out."""


@attrs.frozen
class PendingResize:
    """A requested resize that the kubelet cannot start.

    ``reason`` is ``Deferred`` if the kubelet will try again. It is ``Infeasible`` if this node can
    never carry out the resize.
    """

    wanted: Pod
    """The pod with the CPU and memory that the resize requests."""
    reason: str
    message: str
    generation: int
    """``metadata.generation`` of the Pod object that requests the resize."""
    since: float
    """Time of the last change of ``reason``, in seconds since the epoch."""


@attrs.frozen
class ResizeInProgress:
    """A resize that the kubelet has accepted but not completed: containers still have the earlier
    resources."""

    before: Pod
    """The pod with the resources that its containers still have."""
    generation: int
    since: float


@attrs.frozen
class Resize:
    """The resizes of one pod that are not complete."""

    pending: PendingResize | None = None
    in_progress: ResizeInProgress | None = None

    def conditions(self) -> Iterator[Condition]:
        """Yield the conditions that report these resizes in the pod's status."""
        # Both conditions are possible: a newer resize can wait while an earlier one is in progress.
        if (pending := self.pending) is not None:
            yield Condition(
                ResizeCondition.PENDING,
                True,
                pending.reason,
                pending.message,
                pending.since,
                pending.generation,
            )
        if (progress := self.in_progress) is not None:
            yield Condition(
                ResizeCondition.IN_PROGRESS,
                True,
                since=progress.since,
                generation=progress.generation,
            )


def resized(pod: Pod, wanted: Pod) -> Pod:
    """Return ``pod`` with the CPU and memory of ``wanted``; the same object if nothing changes.

    ``wanted`` is a newer object of the same pod. Its other changes are ignored.
    """
    newer = {container.name: container for container, _ in wanted.all_containers()}

    def changed(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(_resized(each, newer.get(each.name, each)) for each in containers)

    containers, init_containers = changed(pod.containers), changed(pod.init_containers)
    # The caller tests with ``is`` whether anything changed, so an equal copy is not enough.
    if (containers, init_containers) == (pod.containers, pod.init_containers):
        return pod
    return attrs.evolve(pod, containers=containers, init_containers=init_containers)


def _resized(container: Container, newer: Container) -> Container:
    limits = _amounts(container.limits, newer.limits)
    requests = _amounts(container.requests, newer.requests)
    if (limits, requests) == (container.limits, container.requests):
        return container
    return attrs.evolve(container, limits=limits, requests=requests)


def _amounts(old: Amounts, new: Amounts) -> Amounts:
    others = {name: amount for name, amount in old.items() if name not in RESIZABLE}
    return others | {name: new[name] for name in RESIZABLE if name in new}


def changed_resources(old: Container, new: Container) -> frozenset[str]:
    """Return the resources whose request or limit differs between ``old`` and ``new``.

    Only ``cpu`` and ``memory`` are compared.
    """
    return frozenset(
        name
        for name in RESIZABLE
        if (old.limits.get(name), old.requests.get(name))
        != (new.limits.get(name), new.requests.get(name))
    )


def to_restart(before: Pod, after: Pod) -> list[ContainerName]:
    """Return the names of the containers that must restart because of their ``resizePolicy``.

    ``before`` is the pod before its resize, and ``after`` is the pod after its resize.
    """
    old = {container.name: container for container, _ in before.all_containers()}
    return [
        container.name
        for container, _ in after.all_containers()
        if changed_resources(old[container.name], container) & set(container.restarts_on_resize)
    ]
