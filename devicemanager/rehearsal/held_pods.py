"""The pods of a snapshot. Each pod requests exactly what is allocated to it.

A snapshot contains no pod specs. Therefore each container requests its allocated devices, exclusive
CPUs and exclusive memory, and each pod names the ResourceClaims that are prepared for it.

The checkpoint can have a container that PodResources lacks, although PodResources has its pod. This
container is an init container, because PodResources lists only containers that can still run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import attrs

from checkpoint import PodDevicesEntry, dra
from devicemanager.core.api.names import is_extended_resource_name
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.rehearsal.result import Devices
from devicemanager.rehearsal.snapshot_node import SnapshotNode

__all__ = ["HeldPod", "held_pods"]

_CPU, _MEMORY = ResourceName("cpu"), ResourceName("memory")
_SOME: Mapping[ResourceName, int] = {_CPU: 100, _MEMORY: 1}
"""Requests of a container without exclusive CPUs, in a pod with exclusive CPUs.

They make the pod Guaranteed. Without a whole CPU, the container gets no exclusive CPU.
"""


@attrs.frozen
class HeldPod:
    """A pod of the snapshot with devices, exclusive CPUs, exclusive memory or ResourceClaims; or a
    new pod, which a step admits."""

    pod: Pod
    name: str
    """``namespace/name``; the UID if the snapshot lacks the name."""
    devices: Devices
    """The pod's devices from device plugins, by resource."""
    claims: tuple[dra.ClaimState, ...] = ()
    """The claims that are prepared for the pod."""
    has_cpus_or_memory: bool = False
    """True if the pod has exclusive CPUs or exclusive memory."""

    @classmethod
    def new(cls, pod: Pod) -> HeldPod:
        """Return the ``HeldPod`` of a new pod, which has no devices yet."""
        return cls(pod, f"{pod.namespace}/{pod.name}", {})

    @property
    def resources(self) -> tuple[str, ...]:
        """The extended resources that the pod requests, sorted."""
        containers = (each for each, _ in self.pod.all_containers())
        return tuple(sorted({str(name) for each in containers for name in _devices_of(each)}))

    def missing(self, devices: Mapping[str, Mapping[str, Collection[str]]]) -> set[str]:
        """Return the requested resources for which an app container or a sidecar has no device.

        ``devices``: IDs of the devices that the pod has from plugins, by container and resource.
        A resource whose devices come from a ResourceClaim is not returned.
        """
        return {
            str(name)
            for each, is_init in self.pod.all_containers()
            # An ordinary init container runs before the app containers, which can reuse its
            # devices.
            if each.restartable or not is_init
            for name in _devices_of(each)
            if not devices.get(each.name, {}).get(name) and (each.name, name) not in self.pod.backed
        }


def _devices_of(container: Container) -> Iterator[ResourceName]:
    return (
        name
        for name, count in container.limits.items()
        if count and is_extended_resource_name(name)
    )


def held_pods(node: SnapshotNode) -> tuple[HeldPod, ...]:
    """Return the pods with devices, exclusive CPUs, exclusive memory or ResourceClaims, sorted by
    name."""
    amounts = _Amounts(node)
    listed = {
        (f"{pod.namespace}/{pod.name}", container.name)
        for pod in node.node.snapshot.pods or ()
        for container in pod.containers
    }
    names = {name for name, _ in listed}
    pods = []
    for uid in amounts.uids():
        name = node.names.get(uid, uid)
        requests = amounts.of(uid)
        containers = [Container(ContainerName(c), each, each) for c, each in requests.items()]
        # If PodResources does not list the pod, nothing shows which containers are init containers.
        inits = [c for c in containers if name in names and (name, c.name) not in listed]
        # A pod needs at least one app container.
        apps = [c for c in containers if c not in inits] or [Container(ContainerName("main"))]
        # A pod whose name is unknown has its UID as name, without a namespace.
        namespace, _, short = name.rpartition("/")
        claims = tuple(each for each in node.claims if uid in each.pods)
        # A claim is in the namespace of its pods.
        namespace = namespace or next((each.namespace for each in claims), "unknown")
        pod = Pod(
            PodUid(uid),
            short,
            namespace,
            tuple(apps),
            tuple(inits),
            resource_claims={each.name: each.name for each in claims},
        )
        is_exclusive = amounts.has_cpus_or_memory(uid)
        pods.append(HeldPod(pod, name, amounts.devices(uid), claims, is_exclusive))
    return tuple(sorted(pods, key=lambda each: each.name))


class _Amounts:
    """Devices, CPUs and memory of all containers of a node, and the pods with claims."""

    def __init__(self, node: SnapshotNode) -> None:
        self._saved = node.saved.entries or ()
        self._cpus = dict(node.exclusive_cpus)
        self._memory = dict(node.exclusive_memory)
        self._users = sorted({uid for claim in node.claims for uid in claim.pods})

    def uids(self) -> list[str]:
        """Return the UIDs of all pods, in the order of the checkpoint."""
        saved = (entry.pod_uid for entry in self._saved)
        uids = [*saved, *self._cpus, *self._memory, *self._users]
        # Unlike a set, a dict keeps the order, so a rehearsal has the same result each time.
        return list(dict.fromkeys(uids))

    def of(self, uid: str) -> Mapping[str, Mapping[ResourceName, int]]:
        """Return the amounts of a pod by container and resource: milli-CPUs, bytes, numbers of
        devices."""
        found: dict[str, dict[ResourceName, int]] = {}
        for entry in self._entries(uid):
            # A device on several NUMA nodes is listed under each node, but is requested once.
            ids = {id_ for part in (entry.device_ids or {}).values() for id_ in part or ()}
            found.setdefault(entry.container_name, {})[ResourceName(entry.resource_name)] = len(ids)
        for container, cpus in self._cpus.get(uid, {}).items():
            # The static policy gives exclusive CPUs only to a container that requests whole CPUs.
            found.setdefault(container, {})[_CPU] = 1000 * len(cpus)
        for container, blocks in self._memory.get(uid, {}).items():
            sizes = found.setdefault(container, {})
            for block in blocks:
                name = ResourceName(block.type)
                sizes[name] = sizes.get(name, 0) + block.size
        if self.has_cpus_or_memory(uid):
            return {name: {**_SOME, **amounts} for name, amounts in found.items()}
        return found

    def has_cpus_or_memory(self, uid: str) -> bool:
        """True if the pod has exclusive CPUs or exclusive memory."""
        return uid in self._cpus or uid in self._memory

    def devices(self, uid: str) -> Devices:
        """Return the devices of a pod by resource."""
        found: dict[str, set[str]] = {}
        for entry in self._entries(uid):
            for ids in (entry.device_ids or {}).values():
                found.setdefault(entry.resource_name, set()).update(ids or ())
        return {name: tuple(sorted(ids)) for name, ids in sorted(found.items())}

    def _entries(self, uid: str) -> Iterator[PodDevicesEntry]:
        return (entry for entry in self._saved if entry.pod_uid == uid)
