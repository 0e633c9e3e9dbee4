"""The pods and allocations of this node as a ``podresources.Source`` for the PodResources server.

Theory of operation. The server calls ``version()`` for each request, and ``pods()`` only if the
version has changed. Usually only one pod of many has changed. Therefore ``_build`` keeps its last
result, which has a ``podresources.Pod`` for each pod. ``Reuse`` finds the pods that still exist.
``unequal`` finds the pods whose version has changed, in one fast pass. Only for these pods, and for
new pods, ``_build`` creates a new ``podresources.Pod``. The server reuses the encoded bytes of all
others.

A pod's version changes with its allocations, its claims and the shared CPUs. Each of the three has
a counter, and the version is their sum. The counter of the claims falls to 0 when the pod has no
more claims. The other two counters only grow. If they grew by the same number at that moment, the
sum would not change. To prevent this, the counter of the claims is multiplied by 2**40 first.

Versions are read before the data: if the data changes in between, the next request reads it again.

PodResources shows claims in the field ``dynamic_resources``. They are ResourceClaims or *structured
claims*: requests for devices in the API ``devmgmtproto.k8s.io``, the predecessor of DRA.

Lock order: the lock of ``PodSource``, then that of the device manager's state. Claims are read
without the second lock.
"""

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
_CLAIM_BITS = 40
_NEVER = None
_NOT_BUILT = cast("podresources.Pod", None)
"""Placeholder for the value of a new pod until it is built."""
_UID = attrgetter("uid")

if TYPE_CHECKING:
    Dynamic = Mapping[ContainerName, tuple[podresources.DynamicResource, ...]]
    """Dynamic resources (structured claims or ResourceClaims) by container."""


class ClaimSource(Protocol):
    """Source of the dynamic resources of pods: their ResourceClaims or their structured claims.

    All members are used without the device manager's lock.
    """

    @property
    def version(self) -> int:
        """Number that grows with every change of dynamic resources."""

    def pod_version(self, pod: str) -> int:
        """Return a number that grows with every change of the pod's dynamic resources.

        Returns 0 for a pod without claims, even if it had claims before.
        """

    def dynamic_resources(
        self, pod: Pod, container: ContainerName
    ) -> tuple[podresources.DynamicResource, ...]:
        """Return the container's claims and their devices, as PodResources shows them."""


class PodSource:
    """A ``podresources.Source`` that reads the device manager's state; thread-safe.

    The ``podresources.Pod`` of a pod stays the same object until the pod changes, so the server
    encodes it only once.
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
        claims: Sequence[ClaimSource] = (),
        free_inactive: Callable[[], None] = lambda: None,
    ) -> None:
        """Three arguments are True or False depending on the simulated kubelet version.

        With ``pod_level``, the CPUs and memory of pods with pod-level resources are listed. With
        ``allocatable_unhealthy``, unhealthy devices count as allocatable. With ``shared_cpus``,
        containers without exclusive CPUs have the CPUs of the shared pool.

        The function ``free_inactive`` frees the devices of inactive pods. It is called for every
        request.
        """
        # Without exclusive CPUs there is no shared pool.
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
        # The last result: its pods, their versions and their values. After a change of one pod,
        # the versions of all pods are compared, so no other step may take time for every pod.
        self._pods: Sequence[Pod] = ()
        self._uids: Sequence[PodUid] = ()
        self._versions: Sequence[int | None] = ()
        self._previous: Sequence[podresources.Pod] = ()
        self._allocatable: tuple[tuple[DeviceList, ...], podresources.Allocatable] | None = None

    def version(self) -> int:
        """Return a number that grows with every change of the data that PodResources shows.

        This data is the pods, the allocations, the claims and the device lists.
        """
        # Every request calls this method first, so no response has devices of inactive pods.
        self._free_inactive()
        claims = sum(each.version for each in self._claims)
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
        # Pods keep their order, so two sequences differ by few insertions and removals.
        reuse = Reuse(self._pods, pods)
        uids = reuse.values(self._uids, _UID)
        of_claims = self._claim_versions(uids)
        with state.lock:
            versions = list(map(state.pod_versions.get, uids, repeat(0)))
            if of_claims is not None:
                versions = list(map(add, versions, of_claims))
            if self._shared_cpus:
                # The pool changes with the CPUs of any pod.
                versions = list(map(add, versions, repeat(state.version)))
            if inactive:
                # The version of an inactive pod is inverted, so that the value that was built while
                # the pod was active is not reused.
                versions = [
                    ~version if pod.uid in inactive else version
                    for version, pod in zip(versions, pods, strict=True)
                ]
            known = reuse.values(self._versions, lambda _: _NEVER)
            stale = unequal(versions, known)
            # Values are immutable: they are collected under the lock and converted without it.
            held = [self._held(pods[number]) for number in stale]
        previous = reuse.values(self._previous, lambda _: _NOT_BUILT)
        for number, allocated in zip(stale, held, strict=True):
            pod = pods[number]
            dynamic = self._dynamic(pod)
            previous[number] = _pod(pod, allocated, dynamic, active=pod.uid not in inactive)
        self._pods, self._uids = pods, uids
        self._versions, self._previous = versions, previous
        return previous

    def _claim_versions(self, uids: Sequence[PodUid]) -> list[int] | None:
        """Return the version of each pod's claims, in higher bits than all other versions; None if
        the node has no claims."""
        # Most nodes have no claims: a List needs no further time for them.
        used = [each for each in self._claims if each.version]
        if not used:
            return None
        # Versions of claims also fall, to 0. In the same bits, the sum with other versions, which
        # only grow, could then be the same as before.
        return [sum(each.pod_version(uid) for each in used) << _CLAIM_BITS for uid in uids]

    def _dynamic(self, pod: Pod) -> Dynamic:
        if not self._claims:
            return {}
        return {
            container.name: tuple(
                listed
                for claims in self._claims
                for listed in claims.dynamic_resources(pod, container.name)
            )
            for container, _ in pod.all_containers()
        }

    def _held(self, pod: Pod) -> _Held:
        """Return everything allocated to a pod. Must be called with the state's lock held."""
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
        # Device lists have no __eq__, so comparing keys compares the identities of the lists.
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
    """The devices, CPUs and memory allocated to one pod."""

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
    """Yield a container's devices with their NUMA nodes, sorted by resource and ID."""
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
    """Yield one entry for each run of consecutive devices that have the same NUMA nodes.

    If the kubelet version has one entry for each device, the server splits these entries.
    """
    for nodes, group in groupby(devices, key=lambda device: device[1]):
        ids = tuple(id_ for id_, _ in group)
        yield podresources.ContainerDevices(resource, ids, nodes)
