"""A node on paper as a snapshot shows it: devices, who holds them, NUMA nodes, CPUs, memory and
the kubelet's policy, with changes that somebody wants to try."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from devicemanager.cli.offline_node import Inventory, add_checkpoint, nodes_of
from devicemanager.cli.offline_providers import cpu_provider, memory_provider
from devicemanager.cli.options import CommandError
from devicemanager.core.api.deviceplugin import UNHEALTHY
from devicemanager.core.devices import WITHOUT_TOPOLOGY, Device
from devicemanager.core.ids import DeviceId, ResourceName
from devicemanager.core.topology import NumaTopology
from devicemanager.core.topology.numa import MAX_NODE_ID
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
from podresources import ContainerDevices

if TYPE_CHECKING:
    from devicemanager.cli.settings_options import Machine
    from devicemanager.core.providers.provider import HintProvider

__all__ = ["SnapshotNode", "what_if"]

POLICY, SCOPE = "policy", "scope"


def what_if(text: str) -> tuple[str, str]:
    """An argument's type: ``policy=restricted``, ``scope=pod`` or a policy option."""
    from devicemanager.cli.settings_options import POLICIES, SCOPES

    key, equals, value = text.partition("=")
    choices = {POLICY: POLICIES, SCOPE: SCOPES}.get(key)
    if not equals or not value or (choices is not None and value not in choices):
        allowed = f": choose from {', '.join(choices)}" if choices and equals else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not like policy=restricted{allowed}")
    return key, value


@attrs.frozen
class SnapshotNode:
    """What of a snapshot matters to an admission."""

    node: Node
    saved: Checkpoint
    """What pods hold that are on the node."""
    names: Mapping[str, str]
    aligned: Alignment
    dropped: frozenset[str] = frozenset()
    """UIDs of pods that are left out."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, node: Node) -> SnapshotNode:
        """The node as it was."""
        saved, notes = _held(node)
        gone = frozenset(uid for uid, is_sure in node.gone.items() if is_sure)
        notes += tuple(
            f"pod {node.title(uid)} is gone: its devices count as free, as for the kubelet"
            if is_sure
            else f"pod {node.title(uid)} may be gone, and its devices count as held: try "
            f"--without-pod {uid}"
            for uid, is_sure in sorted(node.gone.items())
        )
        is_own = node.saved is not None and saved is node.saved.checkpoint
        names = {**node.names, **({} if is_own else _own_names(saved))}
        kept = checkpoint.without_pods(saved, gone)
        return cls(node, kept, names, node.alignment, gone, notes)

    def changed(self, what_ifs: list[tuple[str, str]], without: list[str]) -> SnapshotNode:
        """The node with another policy, or without some pods, by name or UID. Raises
        CommandError for a pod that is not there."""
        aligned = self.aligned
        for key, value in what_ifs:
            if key == POLICY:
                aligned = attrs.evolve(aligned, policy=value)
            elif key == SCOPE:
                aligned = attrs.evolve(aligned, scope=value)
            else:
                aligned = attrs.evolve(aligned, options={**aligned.options, key: value})
        uids = frozenset(uid for name in without for uid in self._uids(name))
        return attrs.evolve(
            self,
            saved=checkpoint.without_pods(self.saved, uids),
            aligned=aligned,
            dropped=self.dropped | uids,
        )

    def _uids(self, name: str) -> frozenset[str]:
        """The pods of that name, with or without its namespace, or of that UID."""
        titles = {entry.pod_uid: "" for entry in self.saved.entries or ()}
        titles |= {uid: self.names.get(uid, "") for uid in (*titles, *self._exclusive())}
        found = frozenset(
            uid
            for uid, title in titles.items()
            if name in (uid, title) or (title and name == title.partition("/")[2])
        )
        if not found:
            known = sorted(title or uid for uid, title in titles.items())
            close = difflib.get_close_matches(name, known, n=1)
            there = ", ".join(known) or "none"
            hint = f"did you mean {close[0]}?" if close else f"there are: {there}"
            raise CommandError(f"--without-pod: no pod {name} holds anything; {hint}")
        return found

    def _exclusive(self) -> Iterator[str]:
        for state in (self._cpus(), self._memory()):
            if state is not None:
                yield from state.assigned

    def inventory(self) -> Inventory:
        """All devices; those that are not allocatable are unhealthy, as far as that is known."""
        inventory: Inventory = {}
        add_checkpoint(inventory, self.saved)
        allocatable = self.node.snapshot.allocatable
        if allocatable is None:
            return inventory
        for devices in inventory.values():
            for id_, device in devices.items():
                devices[id_] = attrs.evolve(device, health=UNHEALTHY)
        for (resource, id_), nodes in _offered(allocatable.devices).items():
            devices = inventory.setdefault(resource, {})
            devices[id_] = Device(id_, numa=tuple(sorted(nodes)) or None)
        return inventory

    def machine(self, inventory: Inventory) -> Machine | None:
        """NUMA nodes, and CPUs and memory if the kubelet hands them out; None if nothing is
        known."""
        numa = self.node.snapshot.numa
        named = nodes_of(inventory)
        if numa is None or not named <= set(numa.topology.nodes):
            # Of a kubelet whose NUMA nodes were made up, the machine's are others.
            return None if not named else (NumaTopology.up_to(max(named)), ())
        return numa.topology, tuple(self._providers(numa.topology, numa.cpus))

    def _providers(
        self, topology: NumaTopology, cpus: Mapping[int, tuple[int, ...]]
    ) -> Iterator[HintProvider]:
        if self.aligned.cpu_policy == STATIC_CPU and cpus:
            yield cpu_provider(topology, cpus, self.aligned, self._cpus(), self.dropped)
        state = self._memory()
        if self.aligned.memory_policy == STATIC_MEMORY and state is not None:
            yield memory_provider(topology, state, self.dropped)

    def _cpus(self) -> CpuState | None:
        data = self.node.snapshot.cpu_state
        try:
            return None if data is None else cpu_state(data)
        except SnapshotError:
            return None

    def _memory(self) -> MemoryState | None:
        data = self.node.snapshot.memory_state
        try:
            return None if data is None else memory_state(data)
        except SnapshotError:
            return None


def _held(node: Node) -> tuple[Checkpoint, tuple[str, ...]]:
    """What pods hold, from the checkpoint or else from PodResources, and what to know of it."""
    if node.saved is not None and not node.saved.problems:
        return node.saved.checkpoint, ()
    if node.snapshot.pods is not None:
        why = "was not read" if node.saved is None else "is damaged"
        return _from_pod_resources(node), (
            f"the checkpoint {why}: PodResources says who holds what",
        )
    if node.saved is not None:
        return node.saved.checkpoint, (
            "the checkpoint is damaged: what can be read of it says who holds what",
        )
    return Checkpoint(None, {}), ("nobody says who holds what: all devices count as free",)


def _from_pod_resources(node: Node) -> Checkpoint:
    """Entries for what PodResources shows; a pod's name stands for its UID."""
    entries: dict[tuple[str, str, str], dict[int, dict[str, None]]] = {}
    for pod in node.snapshot.pods or ():
        for container in pod.containers:
            for devices in container.devices:
                holder = (f"{pod.namespace}/{pod.name}", container.name, devices.resource_name)
                nodes = entries.setdefault(holder, {})
                for number in devices.nodes or (WITHOUT_TOPOLOGY,):
                    nodes.setdefault(number, {}).update(dict.fromkeys(devices.device_ids))
    made = tuple(
        PodDevicesEntry(*holder, {number: tuple(ids) for number, ids in nodes.items()}, b"")
        for holder, nodes in entries.items()
    )
    registered = {name: tuple(sorted(ids)) for name, ids in node.registered.items()}
    return Checkpoint(made or None, registered)


def _own_names(saved: Checkpoint) -> dict[str, str]:
    return {entry.pod_uid: entry.pod_uid for entry in saved.entries or ()}


def _offered(
    offered: Iterable[ContainerDevices],
) -> Mapping[tuple[ResourceName, DeviceId], set[int]]:
    """Each device that is allocatable, with its NUMA nodes."""
    found: dict[tuple[ResourceName, DeviceId], set[int]] = {}
    for each in offered:
        here = {number for number in each.nodes if 0 <= number <= MAX_NODE_ID}
        for id_ in each.device_ids:
            found.setdefault((ResourceName(each.resource_name), DeviceId(id_)), set()).update(here)
    return found
