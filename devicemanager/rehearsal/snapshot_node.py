"""The node of a snapshot, optionally with changes to try.

A snapshot can be incomplete, so these rules select the source of each fact:

* Allocations come from the checkpoint. If it is missing or damaged, they come from PodResources.
* NUMA nodes are those of the host, as stored in the snapshot. If the snapshot does not have them,
  they are those that the devices name. These are also used if a device names a NUMA node that the
  host lacks, and the snapshot has no kubelet process: the devices probably come from a mock
  kubelet, which can simulate NUMA nodes.
* Exclusive CPUs and memory come from the kubelet's state files, if the kubelet has the policies
  ``static`` (CPUs) and ``Static`` (memory).

``SnapshotNode.notes`` says where the allocations come from if the checkpoint is not valid. It also
lists pods that no longer exist, or may no longer exist.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import attrs

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry, dra
from devicemanager.core import bitset
from devicemanager.core.api.deviceplugin import UNHEALTHY
from devicemanager.core.devices import WITHOUT_TOPOLOGY, Device
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.providers.memory import MemoryProvider, PodMemory
from devicemanager.core.providers.provider import MemoryBlock
from devicemanager.core.topology import NumaTopology
from devicemanager.core.topology.numa import MAX_NODE_ID
from devicemanager.kubelet.host.numa import NumaError, id_list
from devicemanager.rehearsal.errors import RehearsalError
from devicemanager.rehearsal.inventory import Inventory, add_checkpoint, nodes_of
from devicemanager.snapshot import SnapshotError
from devicemanager.snapshot.kubeletconfig import Alignment
from devicemanager.snapshot.node import Node
from devicemanager.snapshot.statefiles import (
    STATIC_CPU,
    STATIC_MEMORY,
    CpuState,
    MemoryState,
    cpu_state,
    memory_state,
)
from devicemanager.snapshot.statefiles import MemoryBlock as AssignedMemory
from podresources import ContainerDevices

if TYPE_CHECKING:
    from devicemanager.core.providers.provider import HintProvider

T = TypeVar("T")
Machine: TypeAlias = "tuple[NumaTopology, tuple[HintProvider, ...]]"
"""NUMA nodes, and the providers of topology hints for CPUs and memory."""


@attrs.frozen
class SnapshotNode:
    """Node of a snapshot, with the facts that affect admissions."""

    node: Node
    saved: Checkpoint
    """Checkpoint contents with the devices that are allocated to the node's pods."""
    names: Mapping[str, str]
    aligned: Alignment
    dropped: frozenset[str] = frozenset()
    """UIDs of pods to leave out: their devices, CPUs and memory are free."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, node: Node) -> SnapshotNode:
        """Return the node of a snapshot, without changes."""
        saved, notes = _allocations(node)
        # Free only what is certainly unused. For other pods, a note says how to free their devices.
        gone = frozenset(uid for uid, is_sure in node.gone.items() if is_sure)
        gone |= _gone_with_claims(node)
        notes += tuple(
            f"pod {node.title(uid)} no longer exists: its devices count as free, because the "
            "kubelet frees them at the next admission"
            if is_sure
            else f"pod {node.title(uid)} may no longer exist, but its devices count as allocated: "
            f"to free them, use --without-pod {uid}"
            for uid, is_sure in sorted(node.gone.items())
        )
        names = dict(node.names)
        # Entries made from PodResources have the pod's name in place of an unknown UID.
        if node.saved is None or saved is not node.saved.checkpoint:
            uids = {entry.pod_uid for entry in saved.entries or ()}
            names |= {uid: uid for uid in uids if uid not in names}
        remaining = checkpoint.without_pods(saved, gone)
        return cls(node, remaining, names, node.alignment, gone, notes)

    def changed(self, what_ifs: list[tuple[str, str]], without: list[str]) -> SnapshotNode:
        """Return the node without some pods, and with a changed topology manager configuration.

        ``what_ifs``: pairs of a name (``policy``, ``scope`` or a policy option) and a value.
        ``without``: names or UIDs of pods. Raises RehearsalError for an unknown pod.
        """
        aligned = self.aligned
        for key, value in what_ifs:
            if key == "policy":
                aligned = attrs.evolve(aligned, policy=value)
            elif key == "scope":
                aligned = attrs.evolve(aligned, scope=value)
            else:
                # An unknown option is not rejected here, but when the kubelet starts with it.
                aligned = attrs.evolve(aligned, options={**aligned.options, key: value})
        uids = frozenset(uid for name in without for uid in self._uids(name))
        return attrs.evolve(
            self,
            saved=checkpoint.without_pods(self.saved, uids),
            aligned=aligned,
            dropped=self.dropped | uids,
        )

    def _uids(self, name: str) -> frozenset[str]:
        """Return the UIDs of the pods with the given name, ``namespace/name`` or UID. Raises
        RehearsalError if there is no such pod."""
        uids = [entry.pod_uid for entry in self.saved.entries or ()]
        # Pods without devices can still have exclusive CPUs or memory.
        for state in (self._cpus(), self._memory()):
            uids += [] if state is None else state.assigned
        titles = {uid: self.names.get(uid, "") for uid in uids}
        found = frozenset(
            uid
            for uid, title in titles.items()
            if name == uid or (title and name in (title, title.partition("/")[2]))
        )
        if not found:
            known = sorted(title or uid for uid, title in titles.items())
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"use one of {', '.join(known)}" if known else "no pod has devices"
            if close:
                hint = f"did you mean {close[0]}?"
            raise RehearsalError(f"unknown pod {name}: {hint}")
        return found

    @property
    def claims(self) -> tuple[dra.ClaimState, ...]:
        """Undamaged claims in the DRA manager's state file.

        Pods in the field ``dropped`` are removed from each claim. A claim that no other pod uses is
        omitted.
        """
        saved = self.node.dra_saved
        return () if saved is None else dra.without_pods(saved.state, self.dropped).claims or ()

    def inventory(self) -> Inventory:
        """Return all devices of the node, by resource and device ID.

        Devices that are not allocatable count as unhealthy. If the snapshot has no list of
        allocatable devices, registered devices count as healthy.
        """
        inventory: Inventory = {}
        add_checkpoint(inventory, self.saved)
        allocatable = self.node.snapshot.allocatable
        # add_checkpoint has already marked the registered devices as healthy.
        if allocatable is None:
            return inventory
        for devices in inventory.values():
            for id_, device in devices.items():
                # The list of allocatable devices has all healthy devices, so the others are
                # unhealthy.
                devices[id_] = attrs.evolve(device, health=UNHEALTHY)
        for (resource, id_), nodes in _allocatable(allocatable.devices).items():
            devices = inventory.setdefault(resource, {})
            devices[id_] = Device(id_, numa=tuple(sorted(nodes)) or None)
        return inventory

    def machine(self, inventory: Inventory) -> Machine | None:
        """Return the NUMA nodes, and the providers of topology hints for CPUs and memory.

        Only the policies ``static`` (CPUs) and ``Static`` (memory) have a provider. Return None if
        no NUMA nodes are known.
        """
        numa = self.node.snapshot.numa
        named = nodes_of(inventory)
        config = self.node.snapshot.config
        is_real = config is not None and config.pid is not None
        if numa is None or not (is_real or named <= set(numa.topology.nodes)):
            # A mock kubelet can simulate NUMA nodes that the machine does not have.
            return None if not named else (NumaTopology.up_to(max(named)), ())
        return numa.topology, tuple(self._providers(numa.topology, numa.cpus))

    def _providers(
        self, topology: NumaTopology, cpus: Mapping[int, tuple[int, ...]]
    ) -> Iterator[HintProvider]:
        # Under other policies, containers share all CPUs, so CPUs are not aligned.
        if self.aligned.cpu_policy == STATIC_CPU and cpus:
            yield _cpu_provider(topology, cpus, self.aligned, self._cpus(), self.dropped)
        state = self._memory()
        if self.aligned.memory_policy == STATIC_MEMORY and state is not None:
            yield _memory_provider(topology, state, self.dropped)

    @property
    def exclusive_cpus(self) -> Mapping[str, Mapping[str, frozenset[int]]]:
        """Exclusive CPUs of each container: pod UID → container name → CPU numbers.

        Pods in the field ``dropped`` are omitted.
        """
        state = self._cpus() if self.aligned.cpu_policy == STATIC_CPU else None
        return {} if state is None else self._remaining(state.assigned)

    @property
    def exclusive_memory(self) -> Mapping[str, Mapping[str, tuple[AssignedMemory, ...]]]:
        """Exclusive memory of each container: pod UID → container name → memory blocks.

        Pods in the field ``dropped`` are omitted.
        """
        state = self._memory() if self.aligned.memory_policy == STATIC_MEMORY else None
        return {} if state is None else self._remaining(state.assigned)

    def _remaining(self, assigned: Mapping[str, T]) -> Mapping[str, T]:
        return {uid: each for uid, each in assigned.items() if uid not in self.dropped}

    def _cpus(self) -> CpuState | None:
        data = self.node.snapshot.cpu_state
        try:
            # The kubelet reads this file only at a start. In a rehearsal of a start, `check_start`
            # reports a damaged file.
            return None if data is None else cpu_state(data)
        except SnapshotError:
            return None

    def _memory(self) -> MemoryState | None:
        data = self.node.snapshot.memory_state
        try:
            return None if data is None else memory_state(data)
        except SnapshotError:
            return None


def _gone_with_claims(node: Node) -> frozenset[str]:
    """Return the UIDs of pods that hold claims, but are certainly no longer on the node."""
    directories = node.snapshot.directories
    # PodResources cannot replace the directories, because it omits init containers.
    if directories is None or directories.uids is None:
        return frozenset()
    return frozenset(uid for claim in node.claims for uid in claim.pods) - {*directories.uids}


def _allocations(node: Node) -> tuple[Checkpoint, tuple[str, ...]]:
    """Return the allocated devices from the best available source, and notes about this source."""
    # Prefer the checkpoint: only it has UIDs, NUMA nodes and plugin responses.
    if node.saved is not None and not node.saved.problems:
        return node.saved.checkpoint, ()
    if node.snapshot.pods is not None:
        why = "could not be read" if node.saved is None else "is damaged"
        note = f"the checkpoint {why}: allocated devices are taken from PodResources"
        return _from_pod_resources(node), (note,)
    if node.saved is not None:
        note = "the checkpoint is damaged: only its readable part is used for allocated devices"
        return node.saved.checkpoint, (note,)
    return Checkpoint(None, {}), ("allocated devices are unknown: all devices count as free",)


def _from_pod_resources(node: Node) -> Checkpoint:
    """Return a checkpoint with the allocations in PodResources.

    PodResources has no UIDs. If no other part of the snapshot shows a pod's UID, the pod's name is
    used.
    """
    uids = _uids_here(node)
    entries: dict[tuple[str, str, str], dict[int, dict[str, None]]] = {}
    for pod in node.snapshot.pods or ():
        for container in pod.containers:
            for devices in container.devices:
                name = f"{pod.namespace}/{pod.name}"
                holder = (uids.get(name, name), container.name, devices.resource_name)
                nodes = entries.setdefault(holder, {})
                for number in devices.nodes or (WITHOUT_TOPOLOGY,):
                    nodes.setdefault(number, {}).update(dict.fromkeys(devices.device_ids))
    made = tuple(
        # The plugin's response is empty, because PodResources does not show it.
        PodDevicesEntry(*holder, {number: tuple(ids) for number, ids in nodes.items()}, b"")
        for holder, nodes in entries.items()
    )
    registered = {name: tuple(sorted(ids)) for name, ids in node.registered.items()}
    return Checkpoint(made or None, registered)


def _uids_here(node: Node) -> Mapping[str, str]:
    """Return UIDs by pod name, for pods on the node. Names that several pods have are omitted."""
    directories = node.snapshot.directories
    known = None if directories is None else directories.uids
    found: dict[str, list[str]] = {}
    for uid, name in node.names.items():
        # A log directory can outlive its pod, and a new pod can have the same name.
        if uid not in node.gone and (known is None or uid in known):
            found.setdefault(name, []).append(uid)
    return {name: uids[0] for name, uids in found.items() if len(uids) == 1}


def _allocatable(
    listed: Iterable[ContainerDevices],
) -> Mapping[tuple[ResourceName, DeviceId], set[int]]:
    """Return the NUMA nodes of each allocatable device, by resource and device ID."""
    found: dict[tuple[ResourceName, DeviceId], set[int]] = {}
    for each in listed:
        # The kubelet does not check the NUMA nodes that a plugin reports.
        here = {number for number in each.nodes if 0 <= number <= MAX_NODE_ID}
        for id_ in each.device_ids:
            found.setdefault((ResourceName(each.resource_name), DeviceId(id_)), set()).update(here)
    return found


def _cpu_provider(
    topology: NumaTopology,
    cpus: Mapping[int, tuple[int, ...]],
    aligned: Alignment,
    state: CpuState | None,
    dropped: frozenset[str],
) -> CpuProvider:
    """Return a provider of the node's CPUs, in which exclusive CPUs of pods in ``dropped`` are
    free."""
    try:
        reserved = id_list("reservedSystemCPUs", aligned.reserved_cpus)
    except NumaError as error:
        raise RehearsalError(str(error)) from None
    assigned = {
        PodUid(uid): {ContainerName(name): bitset.of(ids) for name, ids in by_container.items()}
        for uid, by_container in (state.assigned if state else {}).items()
        if uid not in dropped
    }
    used = bitset.union(ids for each in assigned.values() for ids in each.values())
    provider = CpuProvider.of(topology, cpus, reserved)
    return attrs.evolve(provider, assigned=assigned, used=used)


def _memory_provider(
    topology: NumaTopology, state: MemoryState, dropped: frozenset[str]
) -> MemoryProvider:
    """Return a provider of the node's memory, in which memory of pods in ``dropped`` is free."""
    provider = MemoryProvider.of(topology, state.allocatable)
    free = provider.free()
    pods = {}
    for uid, by_container in state.assigned.items():
        if uid in dropped:
            continue
        charged: dict[tuple[str, int], int] = {}
        for block in (block for blocks in by_container.values() for block in blocks):
            missing = block.size
            # The state file has only the size of a block, not its parts per NUMA node. The
            # kubelet fills one node after another (``updateExpectedMachineState``).
            for place in ((block.type, number) for number in block.nodes):
                amount = min(missing, free.get(place, 0))
                if amount:
                    free[place] -= amount
                    charged[place] = charged.get(place, 0) + amount
                    missing -= amount
        blocks = {
            ContainerName(name): tuple(MemoryBlock(b.type, b.size, b.nodes) for b in blocks)
            for name, blocks in by_container.items()
        }
        pods[PodUid(uid)] = PodMemory(blocks, charged)
    return attrs.evolve(provider, pods=pods, free=free)
