"""What PodResources tells about this node: pods and ledger, seen as a source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, repeat
from operator import add, attrgetter
from typing import TYPE_CHECKING, Protocol, cast

import attrs

import podresources
from devicemanager.core import bitset
from devicemanager.core.devices import WITHOUT_TOPOLOGY
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.inventory import DeviceList
from devicemanager.core.ledger import AllocatedByContainer, AllocatedByResource
from devicemanager.core.pods import Pod
from devicemanager.core.providers.provider import CpusAndMemory
from devicemanager.kubelet.manager.state import State
from devicemanager.kubelet.pods.records import PodSnapshot, by_name
from podresources.reuse import Reuse, unequal

_NO_SHARE = CpusAndMemory()
_NEVER = None
_NOT_TOLD = cast("podresources.Pod", None)
"""In the place of one that is told for the first time, until it is made."""
_UID = attrgetter("uid")

if TYPE_CHECKING:
    Dynamic = Mapping[ContainerName, tuple[podresources.DynamicResource, ...]]
    """What each container has of claims."""


class ClaimSource(Protocol):
    """What structured claims tell of containers. Asked with no lock held but the source's."""

    @property
    def version(self) -> int:
        """Grows with every change."""

    def pod_version(self, pod: str) -> int:
        """Grows with every change of what a pod's containers have of claims."""

    def dynamic_resources(
        self, pod: Pod, container: ContainerName
    ) -> tuple[podresources.DynamicResource, ...]:
        """Each claim of the container, as soon as it is allocated and prepared."""


class PodSource:
    """A ``podresources.Source`` over the manager's state.

    A pod's value stays the same object until it changes, so that its bytes are built once.
    """

    def __init__(
        self,
        state: State,
        snapshot: Callable[[], PodSnapshot],
        *,
        pod_level: bool = False,
        allocatable_unhealthy: bool = False,
        shared_cpus: bool = False,
        quirks: frozenset[str] = frozenset(),
        claims: ClaimSource | None = None,
        free_inactive: Callable[[], None] = lambda: None,
    ) -> None:
        """``pod_level`` tells the CPUs and memory of a whole pod that has resources as such, too;
        ``allocatable_unhealthy`` counts unhealthy devices among the allocatable ones;
        ``shared_cpus`` tells of containers without CPUs of their own those that are shared;
        ``free_inactive`` frees what inactive pods hold, and is called before every answer."""
        # Without CPUs to hand out there is no pool either.
        self._shared_cpus = shared_cpus and bool(state.hint_providers)
        self._state = state
        self._free_inactive = free_inactive
        self._claims = claims
        self._pod_level = pod_level
        self._allocatable_unhealthy = allocatable_unhealthy
        self._quirks = quirks
        self._snapshot = snapshot
        # Guards everything below.
        self._lock = threading.Lock()
        # The pods as last told, as of which version of each, and what was told. All pods
        # are looked at after a change of one: nothing but that one may take time.
        self._pods: Sequence[Pod] = ()
        self._uids: Sequence[PodUid] = ()
        self._versions: Sequence[int | None] = ()
        self._previous: Sequence[podresources.Pod] = ()
        self._allocatable: tuple[tuple[DeviceList, ...], podresources.Allocatable] | None = None

    def version(self) -> int:
        """Grows with every change of pods, holdings, claims or lists."""
        # Every request asks for it, so a List tells nothing of what inactive pods held.
        self._free_inactive()
        claims = self._claims.version if self._claims else 0
        return self._state.version + self._snapshot().version + claims

    def pods(self) -> Sequence[podresources.Pod]:
        with self._lock:
            snapshot = self._snapshot()
            return self._build(snapshot)

    def _build(self, snapshot: PodSnapshot) -> list[podresources.Pod]:
        state = self._state
        pods: Sequence[Pod] = snapshot.active
        inactive: frozenset[PodUid] = frozenset()
        if snapshot.inactive:
            pods = sorted((*snapshot.active, *snapshot.inactive), key=by_name)
            inactive = frozenset(map(_UID, snapshot.inactive))
        reuse = Reuse(self._pods, pods)
        uids = reuse.values(self._uids, _UID)
        of_claims = self._claim_versions(uids)
        with state.lock:
            versions = list(map(state.pod_versions.get, uids, repeat(0)))
            if of_claims is not None:
                # Both only grow, so their sum changes if one of them does.
                versions = list(map(add, versions, of_claims))
            if self._shared_cpus:
                # The pool changes with the CPUs of any pod.
                versions = list(map(add, versions, repeat(state.version)))
            if inactive:
                # A version of its own: what was told of the active pod does not fit any more.
                versions = [
                    ~version if pod.uid in inactive else version
                    for version, pod in zip(versions, pods, strict=True)
                ]
            known = reuse.values(self._versions, lambda _: _NEVER)
            stale = unequal(versions, known)
            held = [self._held(pods[number]) for number in stale]
        previous = reuse.values(self._previous, lambda _: _NOT_TOLD)
        for number, its in zip(stale, held, strict=True):
            pod = pods[number]
            dynamic = self._dynamic(pod)
            previous[number] = _pod(pod, its, dynamic, active=pod.uid not in inactive)
        self._pods, self._uids = pods, uids
        self._versions, self._previous = versions, previous
        return previous

    def _claim_versions(self, uids: Sequence[PodUid]) -> list[int] | None:
        """Read before the claims themselves: what changes in between is looked at again."""
        # Most nodes have none: their lists of pods cost nothing more.
        if self._claims is None or not self._claims.version:
            return None
        return list(map(self._claims.pod_version, uids))

    def _dynamic(self, pod: Pod) -> Dynamic:
        claims = self._claims
        if claims is None:
            return {}
        return {c.name: claims.dynamic_resources(pod, c.name) for c, _ in pod.all_containers()}

    def _held(self, pod: Pod) -> _Held:
        """With the state's lock held: all that the pod holds."""
        hint_providers = self._state.hint_providers
        shares: dict[ContainerName, CpusAndMemory] = {}
        whole = CpusAndMemory()
        if hint_providers:
            shares = {
                c.name: hint_providers.allocated(pod.uid, c.name) for c, _ in pod.all_containers()
            }
            if self._shared_cpus:
                pool = hint_providers.shared_cpus()
                shares = {
                    name: held if held.cpu_ids else attrs.evolve(held, cpu_ids=pool)
                    for name, held in shares.items()
                }
            if self._pod_level and pod.has_resources:
                whole = hint_providers.pod_allocated(pod.uid)
        return _Held(self._state.ledger.pod(pod.uid), shares, whole)

    def allocatable(self) -> podresources.Allocatable:
        with self._state.lock:
            lists = dict(self._state.endpoints.resources())
        key = tuple(lists.values())
        with self._lock:
            if self._allocatable is None or self._allocatable[0] != key:
                devices = tuple(
                    entry for name, known in lists.items() for entry in self._available(name, known)
                )
                others = self._state.hint_providers.allocatable()
                self._allocatable = (
                    key,
                    podresources.Allocatable(devices, others.cpu_ids, _memory(others)),
                )
            return self._allocatable[1]

    def _available(
        self, resource: ResourceName, devices: DeviceList
    ) -> Iterable[podresources.ContainerDevices]:
        device_index = devices.device_index
        everything = (1 << len(device_index.ids)) - 1
        bits = everything if self._allocatable_unhealthy else devices.healthy
        if "Q13" in self._quirks:
            bits &= ~device_index.without_nodes
        numa = [nodes or () for nodes in bitset.select(device_index.numa, bits)]
        return _grouped(resource, list(zip(device_index.select(bits), numa, strict=True)))


@attrs.frozen(eq=False, repr=False)
class _Held:
    """All that one pod holds: devices, and its containers' shares of everything else."""

    devices: AllocatedByContainer
    shares: Mapping[ContainerName, CpusAndMemory]
    whole: CpusAndMemory


def _pod(pod: Pod, held: _Held, dynamic: Dynamic, *, active: bool) -> podresources.Pod:
    listed = [
        (container, is_init)
        for container, is_init in pod.all_containers()
        if not is_init or container.restartable
    ]
    return podresources.Pod(
        name=pod.name,
        namespace=pod.namespace,
        containers=tuple(
            _container(c.name, held, dynamic.get(c.name, ()), restartable=is_init)
            for c, is_init in listed
        ),
        cpu_ids=held.whole.cpu_ids,
        memory=_memory(held.whole),
        active=active,
    )


def _container(
    name: ContainerName,
    held: _Held,
    dynamic: tuple[podresources.DynamicResource, ...],
    *,
    restartable: bool,
) -> podresources.Container:
    share = held.shares.get(name, _NO_SHARE)
    return podresources.Container(
        name=name,
        devices=tuple(_devices(held.devices.get(name, {}))),
        cpu_ids=share.cpu_ids,
        memory=_memory(share),
        dynamic_resources=dynamic,
        restartable_init=restartable,
    )


def _memory(held: CpusAndMemory) -> tuple[podresources.ContainerMemory, ...]:
    return tuple(
        podresources.ContainerMemory(block.type, block.size, block.nodes) for block in held.memory
    )


def _devices(held: AllocatedByResource) -> Iterable[podresources.ContainerDevices]:
    """A container's devices, sorted by resource, then id; each with all its nodes."""
    for resource in sorted(held):
        nodes: dict[DeviceId, list[int]] = {}
        for node, ids in sorted(held[resource].devices.items()):
            for id_ in ids or ():
                on = nodes.setdefault(id_, [])
                if node != WITHOUT_TOPOLOGY:
                    on.append(node)
        yield from _grouped(resource, [(id_, tuple(on)) for id_, on in sorted(nodes.items())])


def _grouped(
    resource: ResourceName, devices: Sequence[tuple[DeviceId, tuple[int, ...]]]
) -> Iterable[podresources.ContainerDevices]:
    """Neighbours on the same nodes together; the server tells them one by one."""
    for nodes, group in groupby(devices, key=lambda device: device[1]):
        ids = tuple(id_ for id_, _ in group)
        yield podresources.ContainerDevices(resource, ids, nodes)
