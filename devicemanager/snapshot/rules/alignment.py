"""What can be wrong with NUMA nodes, CPUs and memory, and the state files about them."""

from __future__ import annotations

from collections.abc import Iterator

from devicemanager.snapshot.errors import SnapshotError
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

__all__ = ["RULES"]

_MOST_NODES = 8
_MOST_NODES_OPTION = "max-allowable-numa-nodes"
_STRICT = "strict-cpu-reservation"


def cpus(node: Node) -> Iterator[Finding]:
    """``restoreState`` and ``validateState`` (cpumanager, v1.36)."""
    data = node.snapshot.cpu_state
    if data is None:
        return
    try:
        state = cpu_state(data)
    except SnapshotError as error:
        yield _rejected(Kind.CPU_STATE, "cpu_manager_state cannot be read", str(error))
        return
    for detail in _cpu_problems(node, state):
        yield _rejected(Kind.CPU_STATE, "the kubelet will not start with cpu_manager_state", detail)


def _cpu_problems(node: Node, state: CpuState) -> Iterator[str]:
    if not state.is_intact:
        yield f"its checksum is {state.checksum}, and its data has {state.expected[0]}"
    configured = node.alignment.cpu_policy
    if _is_configured(node) and state.policy != configured:
        yield f"it was written under policy {state.policy!r}, and the kubelet has {configured!r}"
    elif state.policy == STATIC_CPU:
        yield from _foreign_cpus(node, state)


def _foreign_cpus(node: Node, state: CpuState) -> Iterator[str]:
    for cpus in state.exclusive:
        if cpus & state.default:
            yield f"CPUs {_listed(cpus & state.default)} are both exclusive and shared"
    machine = node.snapshot.numa
    online = frozenset(cpu for ids in machine.cpus.values() for cpu in ids) if machine else None
    # With a strict reservation the reserved CPUs are in no set of the file.
    if not online or not state.known or _reserves(node):
        return
    if state.known - online:
        yield f"it names CPUs that the machine does not have: {_listed(state.known - online)}"
    if online - state.known:
        yield f"the machine has CPUs that it does not name: {_listed(online - state.known)}"


def _reserves(node: Node) -> bool:
    config = node.snapshot.config
    if config is None:
        return False
    return _STRICT in str(config.settings.get("cpuManagerPolicyOptions")) + str(
        config.flags.get("cpu-manager-policy-options")
    )


def memory(node: Node) -> Iterator[Finding]:
    """``restoreState`` and ``validateState`` (memorymanager, v1.36)."""
    data = node.snapshot.memory_state
    if data is None:
        return
    try:
        state = memory_state(data)
    except SnapshotError as error:
        yield _rejected(Kind.MEMORY_STATE, "memory_manager_state cannot be read", str(error))
        return
    for detail in _memory_problems(node, state):
        message = "the kubelet will not start with memory_manager_state"
        yield _rejected(Kind.MEMORY_STATE, message, detail)


def _memory_problems(node: Node, state: MemoryState) -> Iterator[str]:
    configured = node.alignment.memory_policy
    if _is_configured(node) and state.policy != configured:
        yield f"it was written under policy {state.policy!r}, and the kubelet has {configured!r}"
    elif state.policy == STATIC_MEMORY and node.snapshot.numa is not None:
        sizes = node.snapshot.numa.memory.get("memory", {})
        for number, totals in sorted(state.totals.items()):
            said, has = totals.get("memory"), sizes.get(number)
            if said is not None and has is not None and said != has:
                yield f"it says {said} bytes of memory on NUMA node {number}, which has {has}"


def too_many_nodes(node: Node) -> Iterator[Finding]:
    """``NewManager`` (topologymanager, v1.36)."""
    machine, aligned = node.snapshot.numa, node.alignment
    if machine is None or aligned.policy == "none" or _MOST_NODES_OPTION in aligned.options:
        return
    count = len(machine.topology.nodes)
    if count > _MOST_NODES:
        yield Finding(
            Kind.TOO_MANY_NUMA_NODES,
            Severity.ERROR,
            f"the kubelet will not start: policy {aligned.policy} and {count} NUMA nodes, of "
            f"which it takes {_MOST_NODES}",
        )


def no_nodes(node: Node) -> Iterator[Finding]:
    """Devices without topology have no say in alignment."""
    if node.alignment.policy == "none" or node.snapshot.allocatable is None:
        return
    without: dict[str, set[str]] = {}
    for devices in node.snapshot.allocatable.devices:
        if not devices.nodes:
            without.setdefault(devices.resource_name, set()).update(devices.device_ids)
    for resource, ids in sorted(without.items()):
        yield Finding(
            Kind.NO_NUMA_NODES,
            Severity.NOTE,
            f"{resource}: the plugin names no NUMA node for {len(ids)} devices: policy "
            f"{node.alignment.policy} does not align them",
            (),
            resource,
            tuple(sorted(ids)),
        )


def _is_configured(node: Node) -> bool:
    """Whether the configuration was read; what it does not name has its default then."""
    return node.snapshot.config is not None and node.snapshot.config.source is not None


def _rejected(kind: Kind, message: str, detail: str) -> Finding:
    return Finding(kind, Severity.ERROR, f"{message}: {detail}")


def _listed(cpus: frozenset[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


RULES = (cpus, memory, too_many_nodes, no_nodes)
