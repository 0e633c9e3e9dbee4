"""Find the differences between two views of a node. Both views must come from the same builder.

A builder reuses the objects of unchanged parts. Therefore most parts are compared only by identity,
which is fast even for large nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from operator import attrgetter
from typing import TypeVar

import attrs

from devicemanager.core.dra.report import DraStatus
from devicemanager.events.stream import Event
from devicemanager.kubelet.pods.pod_info import PodInfo
from devicemanager.observe.view.values import NodeView, PluginView, ResourceView

__all__ = ["Delta", "DevicesDelta", "delta"]

T = TypeVar("T")


@attrs.frozen
class DevicesDelta:
    """The changed devices of one resource whose layout (device IDs and NUMA nodes) is unchanged."""

    resource: ResourceView
    numbers: tuple[int, ...]
    """Numbers of the devices whose state, health or containers have changed, in ascending order."""


@attrs.frozen
class Delta:
    """The changes from one view to a later view."""

    revision: int
    resources: tuple[ResourceView, ...] = ()
    """New resources, and resources whose device IDs or NUMA nodes have changed. All devices of
    these resources must be redrawn."""
    devices: tuple[DevicesDelta, ...] = ()
    removed_resources: tuple[str, ...] = ()
    plugins: tuple[PluginView, ...] | None = None
    """All plugins if any plugin has changed, else None."""
    pods: tuple[PodInfo, ...] = ()
    """New and changed pods."""
    removed_pods: tuple[str, ...] = ()
    """UIDs of pods that are no longer in the view."""
    dra: DraStatus | None = None
    """All drivers, claims and slices if any of them has changed, else None."""
    events: tuple[Event, ...] = ()
    """Events that are newer than those of the earlier view."""
    node: bool = False
    """True if a field of the node itself has changed, such as ``serving`` or ``numa_nodes``."""


def delta(before: NodeView, after: NodeView) -> Delta:
    """Return the changes from the view ``before`` to the view ``after``. Identical objects count as
    equal without a comparison."""
    old = {resource.name: resource for resource in before.resources}
    # Identity is enough, because the builder reuses the object of an unchanged resource.
    changed = [each for each in after.resources if old.get(each.name) is not each]
    same_layout = [each for each in changed if not _is_other_layout(old.get(each.name), each)]
    # With another layout, device numbers stand for other devices, so the whole resource is sent.
    return Delta(
        after.revision,
        tuple([each for each in changed if _is_other_layout(old.get(each.name), each)]),
        tuple([_devices(old[each.name], each) for each in same_layout]),
        _gone(before.resources, after.resources, "name"),
        None if before.plugins is after.plugins else after.plugins,
        _new(before.pods, after.pods),
        _gone(before.pods, after.pods, "uid"),
        None if before.dra is after.dra else after.dra,
        _newer_events(before, after),
        _node_fields(before) != _node_fields(after),
    )


def _is_other_layout(old: ResourceView | None, new: ResourceView) -> bool:
    return old is None or old.layout is not new.layout


def _devices(old: ResourceView, new: ResourceView) -> DevicesDelta:
    # States are enum members, so ``is`` compares 10,000 states without calling ``__eq__``.
    numbers = [
        number
        for number, (state, was) in enumerate(zip(new.states, old.states, strict=True))
        if state is not was
    ]
    changed = set(numbers)
    if old.health is not new.health:
        # The columns differ in length if a device has been added to or removed from the list.
        pairs = zip_longest(new.health, old.health)
        changed.update(number for number, (health, was) in enumerate(pairs) if health != was)
    # Holders can change without the state, for example from an init container to an app container.
    others = {id_ for id_, holders in new.holders.items() if old.holders.get(id_) != holders}
    others |= old.holders.keys() - new.holders.keys()
    if others:
        changed.update(number for number, id_ in enumerate(new.layout.ids) if id_ in others)
    return DevicesDelta(new, tuple(sorted(changed)))


def _new(before: tuple[PodInfo, ...], after: tuple[PodInfo, ...]) -> tuple[PodInfo, ...]:
    if before is after:
        return ()
    # ``id`` is safe, because ``before`` keeps its objects alive, so no ID can be reused.
    same = set(map(id, before))
    return tuple([pod for pod in after if id(pod) not in same])


def _gone(before: Iterable[object], after: Iterable[object], key: str) -> tuple[str, ...]:
    if before is after:
        return ()
    name = attrgetter(key)
    present = set(map(name, after))
    return tuple([name(each) for each in before if name(each) not in present])


def _newer_events(before: NodeView, after: NodeView) -> tuple[Event, ...]:
    # Compared by number, because the buffer drops old events while new events are added.
    last = before.events[-1].number if before.events else 0
    return tuple([event for event in after.events or () if event.number > last])


def _node_fields(view: NodeView) -> tuple[object, ...]:
    return (
        view.source,
        view.name,
        view.kubelet_version,
        view.serving,
        view.policy,
        view.scope,
        view.numa_nodes,
        view.notes,
    )
