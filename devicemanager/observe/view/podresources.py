"""Build views of a node from the PodResources API of any kubelet, including a real one.

The API returns pods, the devices allocated to their containers, and allocatable devices. It does
not return plugins, events, rejected pods or unhealthy devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

import attrs

import podresources
from devicemanager.kubelet.pods.pod_info import ContainerInfo, PodInfo
from devicemanager.observe.view.devices import by_node
from devicemanager.observe.view.reuse import reuse_equal, reuse_unchanged
from devicemanager.observe.view.values import (
    DeviceState,
    Holder,
    Layout,
    NodeView,
    ResourceView,
)

__all__ = ["NOTES", "PodResourcesView"]

NOTES = (
    "Not listed by PodResources: unhealthy devices that are not allocated.",
    "An allocated device that is not allocatable is shown as gone; it may be unhealthy.",
    "Not listed by PodResources: plugins, events and rejected pods.",
)
"""Notes on the information that PodResources does not return."""

NO_ALLOCATABLE = "This kubelet does not list allocatable devices: only allocated ones are shown."
"""Note for kubelets that do not serve GetAllocatableResources, such as those before 1.23."""

# NUMA nodes by device ID; empty if unknown.
_Nodes = dict[str, tuple[int, ...]]

T = TypeVar("T")


class PodResourcesView:
    """Builder of views from PodResources responses. It reuses the objects of unchanged parts."""

    def __init__(self, source: str) -> None:
        """Create a builder. ``source`` describes the kubelet, for the user."""
        self._view = NodeView(0, source, notes=NOTES)

    def refresh(
        self, pods: Sequence[podresources.Pod], allocatable: podresources.Allocatable | None
    ) -> NodeView:
        """Return the view for the responses to List and GetAllocatableResources. ``allocatable`` is
        None if the kubelet does not serve GetAllocatableResources."""
        before = self._view
        # Without the list, no device can be shown as gone, so only the last of the notes applies.
        notes = NOTES if allocatable is not None else (NO_ALLOCATABLE, *NOTES[2:])
        views = _reuse(before.pods, tuple(map(_pod, pods)), attrgetter("uid"))
        resources = _reuse(
            before.resources, _resources(before, pods, allocatable), attrgetter("name")
        )
        if views is before.pods and resources is before.resources and notes == before.notes:
            return before
        nodes = {node for each in resources for node in each.layout.by_node if node is not None}
        self._view = attrs.evolve(
            before,
            revision=before.revision + 1,
            numa_nodes=tuple(sorted(nodes)),
            resources=resources,
            pods=views,
            notes=notes,
        )
        return self._view


def _reuse(before: tuple[T, ...], after: tuple[T, ...], key: Callable[[T], str]) -> tuple[T, ...]:
    """Return ``after``. An element that equals the element of ``before`` with the same key is
    replaced by that object."""
    old = {key(view): view for view in before}
    return reuse_unchanged(before, [reuse_equal(old.get(key(view)), view) for view in after])


# -- pods --------------------------------------------------------------------------------


def _pod(pod: podresources.Pod) -> PodInfo:
    return PodInfo(
        # The API has no UIDs. At any moment a name is unique, which is enough for a view.
        uid=f"{pod.namespace}/{pod.name}",
        name=pod.name,
        namespace=pod.namespace,
        containers=tuple(map(_container, pod.containers)),
    )


def _container(container: podresources.Container) -> ContainerInfo:
    return ContainerInfo(
        name=container.name,
        devices={
            name: tuple(sorted(ids))
            for name, ids in sorted(podresources.ids_by_resource(container.devices).items())
        },
        claim_devices={
            claim.claim_name: tuple(
                [f"{given.pool_name}/{given.device_name}" for given in claim.claim_resources]
            )
            for claim in container.dynamic_resources
        },
    )


# -- resources ---------------------------------------------------------------------------


def _resources(
    before: NodeView,
    pods: Sequence[podresources.Pod],
    allocatable: podresources.Allocatable | None,
) -> tuple[ResourceView, ...]:
    listed: dict[str, _Nodes] = {}
    for devices in () if allocatable is None else allocatable.devices:
        _note(listed, devices)
    others: dict[str, _Nodes] = {}
    holders: dict[str, dict[str, tuple[Holder, ...]]] = {}
    for pod in pods:
        for container in pod.containers:
            holder = (Holder(f"{pod.namespace}/{pod.name}", container.name),)
            for devices in container.devices:
                _note(others, devices)
                held = holders.setdefault(devices.resource_name, {})
                for id_ in devices.device_ids:
                    # A device on two NUMA nodes can appear once per node.
                    if holder[0] not in held.get(id_, ()):
                        held[id_] = held.get(id_, ()) + holder
    if allocatable is None:
        # Without a list of allocatable devices, allocated devices are shown as listed.
        listed = others
    layouts = {resource.name: resource.layout for resource in before.resources}
    return tuple(
        [
            _resource(
                name,
                listed.get(name, {}),
                others.get(name, {}),
                holders.get(name, {}),
                layouts.get(name),
            )
            for name in sorted(listed.keys() | others.keys())
        ]
    )


def _note(nodes: dict[str, _Nodes], devices: podresources.ContainerDevices) -> None:
    # A device on two NUMA nodes can appear once per node, so its nodes are collected.
    by_id = nodes.setdefault(devices.resource_name, {})
    for id_ in devices.device_ids:
        before = by_id.get(id_)
        by_id[id_] = devices.nodes if before is None else tuple({*before, *devices.nodes})


def _resource(
    name: str,
    listed: _Nodes,
    held: _Nodes,
    holders: Mapping[str, tuple[Holder, ...]],
    layout: Layout | None,
) -> ResourceView:
    # The order is that of ``devices``: listed devices first, then devices that are gone.
    ids = (*sorted(listed), *sorted(held.keys() - listed.keys()))
    numa = tuple([tuple(sorted(listed.get(id_, held.get(id_, ())))) or None for id_ in ids])
    if layout is None or (layout.ids, layout.numa) != (ids, numa):
        layout = Layout(ids, numa, by_node(numa))
    states = [
        DeviceState.ALLOCATED if id_ in holders else DeviceState.FREE for id_ in ids[: len(listed)]
    ]
    gone = (DeviceState.GONE,) * (len(ids) - len(listed))
    return ResourceView(
        name, True, len(ids), len(listed), layout, (*states, *gone), (), dict(holders)
    )
