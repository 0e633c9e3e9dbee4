"""Rules for NUMA nodes, and for the state files of the CPU manager and the memory manager."""

from __future__ import annotations

from collections.abc import Iterator

from devicemanager.core.printable import counted
from devicemanager.snapshot.model import SnapshotError
from devicemanager.snapshot.node import Node
from devicemanager.snapshot.rules.finding import Finding, Kind, Severity
from devicemanager.snapshot.statefiles import (
    STATIC_CPU,
    STATIC_MEMORY,
    CpuState,
    MemoryState,
    cpu_state,
    memory_state,
)

__all__ = ["NO_START", "RULES", "cpus", "memory"]

NO_START = "the kubelet does not start with "
"""Beginning of the message about a state file with which the kubelet does not start. The file name
follows."""

# The kubelet's limit: defaultMaxAllowableNUMANodes (topologymanager/topology_manager.go, v1.36).
_MOST_NODES = 8
_MOST_NODES_OPTION = "max-allowable-numa-nodes"
_STRICT = "strict-cpu-reservation"


def cpus(node: Node) -> Iterator[Finding]:
    """Find problems of the file ``cpu_manager_state`` that prevent the kubelet from starting.

    Follows ``restoreState`` and ``validateState`` (cpumanager, v1.36).
    """
    data = node.snapshot.cpu_state
    if data is None:
        return
    try:
        state = cpu_state(data)
    except SnapshotError as error:
        yield _rejected(Kind.CPU_STATE, "cpu_manager_state cannot be read", str(error))
        return
    for detail in _cpu_problems(node, state):
        yield _rejected(Kind.CPU_STATE, f"{NO_START}cpu_manager_state", detail)


def _cpu_problems(node: Node, state: CpuState) -> Iterator[str]:
    if not state.is_intact:
        yield f"its checksum is {state.checksum}, expected {state.expected[0]}"
    # A kubelet compares the policy first, and stops if it differs.
    configured = node.alignment.cpu_policy
    if _is_configured(node) and state.policy != configured:
        yield f"it was written with policy {state.policy!r}, the kubelet now has {configured!r}"
    elif state.policy == STATIC_CPU:
        yield from _unexpected_cpus(node, state)


def _unexpected_cpus(node: Node, state: CpuState) -> Iterator[str]:
    for cpus in state.exclusive:
        if shared := cpus & state.default:
            yield f"CPUs that are both exclusive and shared: {_listed(shared)}"
    # The file must contain exactly the CPUs that are online, shared or exclusive.
    machine = node.snapshot.numa
    online = frozenset(cpu for ids in machine.cpus.values() for cpu in ids) if machine else None
    # With strict-cpu-reservation, the file does not contain the reserved CPUs.
    if not online or not state.known or _STRICT in node.alignment.cpu_options:
        return
    if state.known - online:
        yield f"it contains CPUs that the machine does not have: {_listed(state.known - online)}"
    if online - state.known:
        yield f"it lacks CPUs that the machine has: {_listed(online - state.known)}"


def memory(node: Node) -> Iterator[Finding]:
    """Find problems of the file ``memory_manager_state`` that prevent the kubelet from starting.

    Follows ``restoreState`` and ``validateState`` (memorymanager, v1.36).
    """
    data = node.snapshot.memory_state
    if data is None:
        return
    try:
        state = memory_state(data)
    except SnapshotError as error:
        yield _rejected(Kind.MEMORY_STATE, "memory_manager_state cannot be read", str(error))
        return
    for detail in _memory_problems(node, state):
        yield _rejected(Kind.MEMORY_STATE, f"{NO_START}memory_manager_state", detail)


def _memory_problems(node: Node, state: MemoryState) -> Iterator[str]:
    configured = node.alignment.memory_policy
    if _is_configured(node) and state.policy != configured:
        yield f"it was written with policy {state.policy!r}, the kubelet now has {configured!r}"
    elif state.policy == STATIC_MEMORY and node.snapshot.numa is not None:
        # The size of memory can change with a kernel update or a firmware setting, not only with
        # hardware.
        sizes = node.snapshot.numa.memory.get("memory", {})
        for number, totals in sorted(state.totals.items()):
            saved, actual = totals.get("memory"), sizes.get(number)
            if saved is not None and actual is not None and saved != actual:
                yield f"it has {saved} bytes of memory for NUMA node {number}, which has {actual}"


def too_many_nodes(node: Node) -> Iterator[Finding]:
    """Find a kubelet that does not start because the machine has too many NUMA nodes.

    Follows ``NewManager`` (topologymanager, v1.36).
    """
    machine, aligned = node.snapshot.numa, node.alignment
    if machine is None or aligned.policy == "none" or _MOST_NODES_OPTION in aligned.options:
        return
    count = len(machine.topology.nodes)
    if count > _MOST_NODES:
        yield Finding(
            Kind.TOO_MANY_NUMA_NODES,
            Severity.ERROR,
            f"the kubelet does not start: policy {aligned.policy} with {count} NUMA nodes, "
            f"limit {_MOST_NODES}",
        )


def no_nodes(node: Node) -> Iterator[Finding]:
    """Find devices without NUMA nodes, which the Topology Manager therefore cannot align."""
    if node.alignment.policy == "none" or node.snapshot.allocatable is None:
        return
    # The severity is only NOTE: many devices, such as virtual ones, belong to no NUMA node.
    without: dict[str, set[str]] = {}
    for devices in node.snapshot.allocatable.devices:
        if not devices.nodes:
            without.setdefault(devices.resource_name, set()).update(devices.device_ids)
    for resource, ids in sorted(without.items()):
        yield Finding(
            Kind.NO_NUMA_NODES,
            Severity.NOTE,
            f"{resource}: policy {node.alignment.policy} does not align "
            f"{counted(len(ids), 'device')}, because the plugin names no NUMA nodes",
            (),
            resource,
            tuple(sorted(ids)),
        )


def _is_configured(node: Node) -> bool:
    """True if the configuration file was read. Only then is it known that the fields missing in the
    file have their defaults."""
    return node.snapshot.config is not None and node.snapshot.config.source is not None


def _rejected(kind: Kind, message: str, detail: str) -> Finding:
    return Finding(kind, Severity.ERROR, f"{message}: {detail}")


def _listed(cpus: frozenset[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


RULES = (cpus, memory, too_many_nodes, no_nodes)
