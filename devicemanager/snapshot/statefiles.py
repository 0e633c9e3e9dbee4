"""State files of the CPU manager and the memory manager. Needs the extra ``snapshot``.

A kubelet does not start if one of them is invalid. A damaged device checkpoint, in contrast, is
only logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import attrs
import msgspec

from checkpoint.fnv import fnv1a_32
from devicemanager.kubelet.host.numa import NumaError, id_list
from devicemanager.snapshot.model import SnapshotError

__all__ = ["CpuState", "MemoryBlock", "MemoryState", "cpu_state", "memory_state"]

T = TypeVar("T")

STATIC_CPU: Final = "static"
STATIC_MEMORY: Final = "Static"
_POD_LEVEL: Final = " PodEntries:(state.PodCPUAssignments)map[]"
"""Addition to the hashed text since v1.36 with gate PodLevelResourceManagers."""


@attrs.frozen
class CpuState:
    """Contents of ``cpu_manager_state``."""

    policy: str
    default: frozenset[int]
    """Shared CPUs, which no container has exclusively."""
    assigned: Mapping[str, Mapping[str, frozenset[int]]]
    """By pod UID and container."""
    checksum: int
    expected: tuple[int, ...]
    """Correct checksums for this data; empty if they cannot be computed."""

    @property
    def known(self) -> frozenset[int]:
        """All CPUs in the file."""
        return self.default.union(*self.exclusive)

    @property
    def exclusive(self) -> tuple[frozenset[int], ...]:
        """Exclusive CPUs of each container that has some."""
        return tuple(cpus for containers in self.assigned.values() for cpus in containers.values())

    @property
    def is_intact(self) -> bool:
        """False if the checksum is wrong. 0 means that there is none (VerifyChecksum, v1.36)."""
        # An unknown checksum counts as intact: a false alarm would make an admin drain the node.
        return not self.checksum or not self.expected or self.checksum in self.expected


@attrs.frozen
class MemoryBlock:
    """Memory of one type on some NUMA nodes, assigned to a container."""

    type: str
    size: int
    nodes: tuple[int, ...]


@attrs.frozen
class MemoryState:
    """Contents of ``memory_manager_state``. Its checksum is not verified."""

    policy: str
    totals: Mapping[int, Mapping[str, int]]
    """Bytes by NUMA node and type of memory."""
    allocatable: Mapping[str, Mapping[int, int]]
    """Bytes for containers, by type of memory and NUMA node."""
    assigned: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]]
    """By pod UID and container."""


def cpu_state(data: bytes) -> CpuState:
    """Read ``cpu_manager_state``. Raises SnapshotError."""
    file = _decoded(data, _CpuFile)
    # The text of pod-level assignments is not known, so a file with some is not verified.
    expected: tuple[int, ...] = ()
    if not file.podEntries and all(isinstance(each, dict) for each in file.entries.values()):
        expected = tuple(_checksum(file, more) for more in ("", _POD_LEVEL))
    assigned = {
        uid: {name: _cpus(text) for name, text in containers.items()}
        for uid, containers in file.entries.items()
        if isinstance(containers, dict)
    }
    return CpuState(file.policyName, _cpus(file.defaultCpuSet), assigned, file.checksum, expected)


def memory_state(data: bytes) -> MemoryState:
    """Read ``memory_manager_state``. Raises SnapshotError."""
    file = _decoded(data, _MemoryFile)
    totals = {
        node: {type_: table.total for type_, table in state.memoryMap.items()}
        for node, state in file.machineState.items()
    }
    # The file has a table per node and type; the users ask by type.
    allocatable: dict[str, dict[int, int]] = {}
    for node, state in file.machineState.items():
        for type_, table in state.memoryMap.items():
            allocatable.setdefault(type_, {})[node] = table.allocatable
    assigned = {
        uid: {
            name: tuple(MemoryBlock(b.type, b.size, b.numaAffinity) for b in blocks)
            for name, blocks in containers.items()
        }
        for uid, containers in file.entries.items()
    }
    return MemoryState(file.policyName, totals, allocatable, assigned)


def _decoded(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotError(str(error)) from None


def _cpus(text: str) -> frozenset[int]:
    try:
        return frozenset(id_list("CPUs", text))
    except NumaError as error:
        raise SnapshotError(str(error)) from None


def _checksum(file: _CpuFile, more: str) -> int:
    """Return FNV-1a 32 of the value's text as Go prints it (CPUManagerCheckpoint, v1.36)."""
    # Go prints maps sorted by key, so the text does not depend on their order.
    entries = _printed((uid, _printed(each.items())) for uid, each in file.entries.items())
    text = (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){file.policyName} "
        f"DefaultCPUSet:(string){file.defaultCpuSet} "
        f"Entries:(map[string]map[string]string){entries}{more} Checksum:(checksum.Checksum)0}}"
    )
    return fnv1a_32(text.encode(errors="replace"))


def _printed(items: Iterable[tuple[str, str]]) -> str:
    return f"map[{' '.join(f'{name}:{value}' for name, value in sorted(items))}]"


# The fields have the names of the files.
class _CpuFile(msgspec.Struct):
    policyName: str = ""
    defaultCpuSet: str = ""
    entries: dict[str, Any] = {}
    podEntries: dict[str, Any] = {}
    checksum: int = 0

    def __post_init__(self) -> None:
        for each in self.entries.values():
            # Before v1.19, entries had the CPUs by container ID, without pods.
            if not isinstance(each, str) and not _is_texts(each):
                raise ValueError("entries: expected CPUs by pod and container")


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


class _Table(msgspec.Struct):
    total: int = 0
    allocatable: int = 0


class _NodeState(msgspec.Struct):
    memoryMap: dict[str, _Table] = {}


class _Block(msgspec.Struct):
    numaAffinity: tuple[int, ...] = ()
    type: str = ""
    size: int = 0


class _MemoryFile(msgspec.Struct):
    policyName: str = ""
    machineState: dict[int, _NodeState] = {}
    entries: dict[str, dict[str, tuple[_Block, ...]]] = {}
