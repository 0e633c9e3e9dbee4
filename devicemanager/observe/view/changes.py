"""What two pictures of one builder differ in, told by identity: cheap for a big node."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from operator import attrgetter
from typing import TypeVar

import attrs

from devicemanager.events.stream import Event
from devicemanager.kubelet.pods.pod_info import PodInfo
from devicemanager.observe.view.values import NodeView, PluginView, ResourceView

__all__ = ["Delta", "DevicesDelta", "delta"]

T = TypeVar("T")


@attrs.frozen
class DevicesDelta:
    """Devices of one resource that have changed; its layout is the same as before."""

    resource: ResourceView
    numbers: tuple[int, ...]
    """Those whose state, health or holder is another one. Ascending."""


@attrs.frozen
class Delta:
    """What leads from one picture to a later one."""

    revision: int
    resources: tuple[ResourceView, ...] = ()
    """New ones, and those with other devices: to be drawn anew."""
    devices: tuple[DevicesDelta, ...] = ()
    removed_resources: tuple[str, ...] = ()
    plugins: tuple[PluginView, ...] | None = None
    """All of them, if one has changed; else None."""
    pods: tuple[PodInfo, ...] = ()
    """New and changed ones."""
    removed_pods: tuple[str, ...] = ()
    """UIDs."""
    events: tuple[Event, ...] = ()
    """Later than those of the picture before."""
    node: bool = False
    """Whether anything else is different: serving, NUMA nodes, names."""


def delta(before: NodeView, after: NodeView) -> Delta:
    """What is different. Values that are one object count as the same."""
    old = {resource.name: resource for resource in before.resources}
    changed = [each for each in after.resources if old.get(each.name) is not each]
    same_layout = [each for each in changed if not _is_other_layout(old.get(each.name), each)]
    return Delta(
        after.revision,
        tuple([each for each in changed if _is_other_layout(old.get(each.name), each)]),
        tuple([_devices(old[each.name], each) for each in same_layout]),
        _gone(before.resources, after.resources, "name"),
        None if before.plugins is after.plugins else after.plugins,
        _put(before.pods, after.pods),
        _gone(before.pods, after.pods, "uid"),
        _later(before, after),
        _facts(before) != _facts(after),
    )


def _is_other_layout(old: ResourceView | None, new: ResourceView) -> bool:
    return old is None or old.layout is not new.layout


def _devices(old: ResourceView, new: ResourceView) -> DevicesDelta:
    numbers = [
        number
        for number, (state, was) in enumerate(zip(new.states, old.states, strict=True))
        if state is not was
    ]
    found = set(numbers)
    if old.health is not new.health:
        pairs = zip_longest(new.health, old.health)
        found.update(number for number, (health, was) in enumerate(pairs) if health != was)
    others = {id_ for id_, holders in new.holders.items() if old.holders.get(id_) != holders}
    others |= old.holders.keys() - new.holders.keys()
    if others:
        found.update(number for number, id_ in enumerate(new.layout.ids) if id_ in others)
    return DevicesDelta(new, tuple(sorted(found)))


def _put(before: tuple[PodInfo, ...], after: tuple[PodInfo, ...]) -> tuple[PodInfo, ...]:
    if before is after:
        return ()
    same = set(map(id, before))
    return tuple([pod for pod in after if id(pod) not in same])


def _gone(before: Iterable[object], after: Iterable[object], key: str) -> tuple[str, ...]:
    if before is after:
        return ()
    name = attrgetter(key)
    there = set(map(name, after))
    return tuple([name(each) for each in before if name(each) not in there])


def _later(before: NodeView, after: NodeView) -> tuple[Event, ...]:
    last = before.events[-1].number if before.events else 0
    return tuple([event for event in after.events or () if event.number > last])


def _facts(picture: NodeView) -> tuple[object, ...]:
    return (
        picture.source,
        picture.name,
        picture.kubelet_version,
        picture.serving,
        picture.policy,
        picture.scope,
        picture.numa_nodes,
        picture.notes,
    )
