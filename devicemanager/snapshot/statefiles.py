"""Read the state files of the CPU manager and the memory manager.

Needs the pip extra ``snapshot``.

A kubelet does not start if one of these files is invalid. In contrast, it only logs that a device
checkpoint is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import attrs
import msgspec

from checkpoint.fnv import fnv1a_32
from devicemanager.io import typed_json
from devicemanager.kubelet.host.numa import NumaError, id_list
from devicemanager.snapshot.model import SnapshotError

__all__ = ["CpuState", "MemoryBlock", "MemoryState", "cpu_state", "is_text_mapping", "memory_state"]

T = TypeVar("T")

STATIC_CPU: Final = "static"
STATIC_MEMORY: Final = "Static"
_POD_LEVEL: Final = " PodEntries:(state.PodCPUAssignments)map[]"
"""Text that is added to the hashed text since v1.36 with the feature gate
PodLevelResourceManagers."""


@attrs.frozen
class CpuState:
    """Contents of ``cpu_manager_state``."""

    policy: str
    default: frozenset[int]
    """Shared CPUs: no container has them exclusively."""
    assigned: Mapping[str, Mapping[str, frozenset[int]]]
    """Exclusive CPUs by pod UID and container name."""
    checksum: int
    expected: tuple[int, ...]
    """Correct checksums for this data: without and with the feature gate PodLevelResourceManagers.
    Empty if they cannot be computed."""

    @property
    def known(self) -> frozenset[int]:
        """All CPUs in the file, shared and exclusive."""
        return self.default.union(*self.exclusive)

    @property
    def exclusive(self) -> tuple[frozenset[int], ...]:
        """Sets of exclusive CPUs: one set for each container that has exclusive CPUs."""
        return tuple(cpus for containers in self.assigned.values() for cpus in containers.values())

    @property
    def is_intact(self) -> bool:
        """True if the checksum is correct or 0, or if the correct checksum is unknown.

        0 means that the file has no checksum (VerifyChecksum, v1.36).
        """
        # If the correct checksum is unknown, the file counts as intact: after a false alarm, an
        # administrator would drain the node.
        return not self.checksum or not self.expected or self.checksum in self.expected


@attrs.frozen
class MemoryBlock:
    """Memory that is assigned to a container: its type, its size in bytes, and its NUMA nodes."""

    type: str
    size: int
    nodes: tuple[int, ...]


@attrs.frozen
class MemoryState:
    """Contents of ``memory_manager_state``. The checksum of the file is not verified."""

    policy: str
    totals: Mapping[int, Mapping[str, int]]
    """Total bytes of memory, by NUMA node and memory type."""
    allocatable: Mapping[str, Mapping[int, int]]
    """Bytes of memory that containers can get, by memory type and NUMA node."""
    assigned: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]]
    """Memory blocks by pod UID and container name."""


def cpu_state(data: bytes) -> CpuState:
    """Parse the contents of ``cpu_manager_state``. Raises SnapshotError for invalid contents."""
    file = _decoded(data, _CpuFile)
    # The hashed text of pod-level assignments is unknown, so the checksum of a file with such
    # assignments is not verified.
    expected: tuple[int, ...] = ()
    if not file.podEntries and all(isinstance(each, dict) for each in file.entries.values()):
        expected = tuple(_checksum(file, more) for more in ("", _POD_LEVEL))
    assigned = {
        uid: {name: _cpus(text) for name, text in containers.items()}
        for uid, containers in file.entries.items()
        # Other entries have the format of kubelets before v1.19, which names no pods.
        if isinstance(containers, dict)
    }
    return CpuState(file.policyName, _cpus(file.defaultCpuSet), assigned, file.checksum, expected)


def memory_state(data: bytes) -> MemoryState:
    """Parse the contents of ``memory_manager_state``. Raises SnapshotError for invalid contents."""
    file = _decoded(data, _MemoryFile)
    totals = {
        node: {type_: table.total for type_, table in state.memoryMap.items()}
        for node, state in file.machineState.items()
    }
    # The file has one table per NUMA node and type. Callers need the values by type.
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
        return typed_json.decode(data, kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotError(str(error)) from None


def _cpus(text: str) -> frozenset[int]:
    try:
        return frozenset(id_list("CPUs", text))
    except NumaError as error:
        raise SnapshotError(str(error)) from None


def _checksum(file: _CpuFile, more: str) -> int:
    """Return the 32-bit FNV-1a hash of the text that Go prints for the contents of the file
    (CPUManagerCheckpoint, v1.36).

    ``more`` is text that newer versions add to this text.
    """
    # Go prints maps sorted by key, so the order in the file does not matter.
    entries = _printed((uid, _printed(each.items())) for uid, each in file.entries.items())
    text = (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){file.policyName} "
        f"DefaultCPUSet:(string){file.defaultCpuSet} "
        f"Entries:(map[string]map[string]string){entries}{more} Checksum:(checksum.Checksum)0}}"
    )
    return fnv1a_32(text.encode(errors="replace"))


def _printed(items: Iterable[tuple[str, str]]) -> str:
    return f"map[{' '.join(f'{name}:{value}' for name, value in sorted(items))}]"


# The fields of the following classes have the names of the fields in the JSON files.
class _CpuFile(msgspec.Struct):
    policyName: str = ""
    defaultCpuSet: str = ""
    entries: dict[str, Any] = {}
    podEntries: dict[str, Any] = {}
    checksum: int = 0

    def __post_init__(self) -> None:
        for each in self.entries.values():
            # Before v1.19, entries mapped container IDs to CPUs and had no pods.
            if not isinstance(each, str) and not is_text_mapping(each):
                raise ValueError("invalid entries: expected CPUs by pod UID and container name")


def is_text_mapping(value: object) -> bool:
    """True if the value is a dict with strings as its values."""
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
