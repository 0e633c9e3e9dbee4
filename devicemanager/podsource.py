"""What PodResources tells about this node: pods and ledger, seen as a source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import attrs

import podresources
from devicemanager.core import bitset
from devicemanager.core.devices import WITHOUT_TOPOLOGY
from devicemanager.core.ids import DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.ledger import Holding, PodHoldings
from devicemanager.core.pods import Pod
from devicemanager.state import State


@attrs.frozen
class Shown:
    """The pods that PodResources may tell of, as of one moment."""

    version: int
    """Changes whenever the pods do."""
    active: tuple[Pod, ...]
    failed: tuple[Pod, ...] = ()
    """Shown as long as they hold something: a pod refused after a reboot."""


class PodSource:
    """A ``podresources.Source`` over the manager's state.

    A pod's value stays the same object until it changes, so that its bytes are built once.
    """

    def __init__(self, state: State, shown: Callable[[], Shown]) -> None:
        self._state = state
        self._shown = shown
        # Guards everything below.
        self._lock = threading.Lock()
        self._built: dict[PodUid, tuple[int, podresources.Pod]] = {}
        self._sorted: tuple[int, list[Pod]] = (-1, [])
        self._allocatable: tuple[tuple[DeviceList, ...], podresources.Allocatable] | None = None

    def version(self) -> int:
        """Grows with every change of pods, holdings or lists."""
        return self._state.version + self._shown().version

    def pods(self) -> Sequence[podresources.Pod]:
        with self._lock:
            shown = self._shown()
            if self._sorted[0] != shown.version:
                self._sorted = shown.version, sorted(shown.active, key=_by_name)
            return self._build(self._sorted[1], shown.failed)

    def _build(self, active: list[Pod], failed: tuple[Pod, ...]) -> list[podresources.Pod]:
        state = self._state
        with state.lock:
            held_by_failed = [pod for pod in failed if pod.uid in state.ledger]
            pods = active if not held_by_failed else sorted(active + held_by_failed, key=_by_name)
            versions = state.pod_versions
            stale = [pod for pod in pods if not self._is_built(pod, versions)]
            held = {pod.uid: state.holdings(pod.uid) for pod in stale}
            known = {pod.uid: versions.get(pod.uid, 0) for pod in stale}
        for pod in stale:
            self._built[pod.uid] = known[pod.uid], _pod(pod, held[pod.uid])
        if len(self._built) > 2 * len(pods):
            self._built = {pod.uid: self._built[pod.uid] for pod in pods}
        built = self._built
        return [built[pod.uid][1] for pod in pods]

    def _is_built(self, pod: Pod, versions: dict[PodUid, int]) -> bool:
        built = self._built.get(pod.uid)
        return built is not None and built[0] == versions.get(pod.uid, 0)

    def allocatable(self) -> podresources.Allocatable:
        with self._state.lock:
            lists = dict(self._state.endpoints.resources())
        key = tuple(lists.values())
        with self._lock:
            if self._allocatable is None or self._allocatable[0] != key:
                devices = tuple(
                    entry for name, listed in lists.items() for entry in _healthy(name, listed)
                )
                self._allocatable = key, podresources.Allocatable(devices=devices)
            return self._allocatable[1]


def _by_name(pod: Pod) -> tuple[str, str, str]:
    return pod.namespace, pod.name, pod.uid


def _pod(pod: Pod, held: PodHoldings) -> podresources.Pod:
    shown = [
        (container, is_init)
        for container, is_init in pod.all_containers()
        if not is_init or container.restartable
    ]
    return podresources.Pod(
        name=pod.name,
        namespace=pod.namespace,
        containers=tuple(
            podresources.Container(
                name=container.name,
                devices=tuple(_devices(held.get(container.name, {}))),
                restartable_init=is_init,
            )
            for container, is_init in shown
        ),
    )


def _devices(held: dict[ResourceName, Holding]) -> Iterable[podresources.ContainerDevices]:
    """A container's devices, sorted by resource, then id; each with all its nodes."""
    for resource in sorted(held):
        nodes: dict[DeviceId, list[int]] = {}
        for node, ids in sorted(held[resource].devices.items()):
            for id_ in ids or ():
                on = nodes.setdefault(id_, [])
                if node != WITHOUT_TOPOLOGY:
                    on.append(node)
        yield from _grouped(resource, [(id_, tuple(on)) for id_, on in sorted(nodes.items())])


def _healthy(
    resource: ResourceName, devices: DeviceList
) -> Iterable[podresources.ContainerDevices]:
    numbering = devices.numbering
    numa = [nodes or () for nodes in bitset.select(numbering.numa, devices.healthy)]
    return _grouped(resource, list(zip(numbering.select(devices.healthy), numa, strict=True)))


def _grouped(
    resource: ResourceName, devices: Sequence[tuple[DeviceId, tuple[int, ...]]]
) -> Iterable[podresources.ContainerDevices]:
    """Neighbours on the same nodes together; the server tells them one by one."""
    for nodes, group in groupby(devices, key=lambda device: device[1]):
        ids = tuple(id_ for id_, _ in group)
        yield podresources.ContainerDevices(resource, ids, nodes)
