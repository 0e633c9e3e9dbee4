"""Read NUMA nodes from sysfs, from a file, or from node IDs in the value of a flag."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from devicemanager.core.errors import RequestError
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.providers.memory import MemoryProvider
from devicemanager.core.topology import NumaTopology, NumaTopologyError
from devicemanager.io.safe_read import FileRejected, read_regular

HOST = "host"
SYSFS_NODES = Path("sys/devices/system/node")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MEM_TOTAL = re.compile(r"MemTotal:\s+([0-9]+) kB")
_MAX_SIZE = 1 << 20
# Far more than the 8192 CPUs and 1024 NUMA nodes that Linux supports on x86.
_MAX_LISTED = 1 << 16
_KEYS = ("nodes", "distances", "cpus", "memory")


class NumaError(RequestError):
    """Error for invalid NUMA nodes; its text is one line and names the file or the flag."""

    def __init__(self, text: str) -> None:
        # The text can quote a file; line ends would break the one-line form.
        super().__init__(" ".join(text.split()))


@attrs.frozen
class NumaMachine:
    """NUMA nodes of a machine, with their CPUs and memory if they are known."""

    topology: NumaTopology
    cpus: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict)
    """Mapping from NUMA node IDs to the IDs of the node's CPUs."""
    memory: Mapping[str, Mapping[int, int]] = attrs.field(factory=dict)
    """Sizes of memory: memory type (``memory``, ``hugepages-<size>``) → NUMA node ID → bytes."""

    def cpu_provider(self) -> CpuProvider | None:
        """Return a hint provider for exclusive CPUs; None if the CPUs are unknown."""
        return CpuProvider.of(self.topology, self.cpus) if self.cpus else None

    def memory_provider(self) -> MemoryProvider | None:
        """Return a hint provider for memory; None if the memory is unknown."""
        return MemoryProvider.of(self.topology, self.memory) if self.memory else None


def read_numa(text: str, root: Path = Path("/")) -> NumaMachine:
    """Return the NUMA nodes for ``text``, a value of the flag ``--numa``.

    The value is ``host`` (read sysfs under ``root``), node IDs such as ``0,1`` or ``0-3``, or the
    path of a file. Raises NumaError for an invalid value or file.
    """
    if text == HOST:
        return from_host(root)
    # Before the file: a file named 0-3 would be surprising.
    if re.fullmatch(r"[0-9,\-\s]*", text):
        return from_ids(text)
    # lexists, so that the error for a dangling link names the link.
    if not os.path.lexists(text):
        forms = f"`{HOST}`, NUMA nodes such as 0,1 or 0-3, or an existing file"
        raise NumaError(f"invalid --numa {text!r}: use {forms}")
    return from_file(Path(text))


def from_ids(text: str) -> NumaMachine:
    """Return NUMA nodes with the IDs in ``text``, such as ``0-3``.

    Two different nodes have the distance 20. The CPUs and memory of the nodes are unknown.
    """
    return NumaMachine(_topology("--numa", id_list("--numa", text)))


def from_host(root: Path = Path("/")) -> NumaMachine:
    """Read the online NUMA nodes of the machine whose file system is mounted at ``root``.

    A kernel without NUMA support has only NUMA node 0.
    """
    return from_sysfs(root / "sys")


def online_nodes(sys: Path) -> list[int]:
    """Return the IDs of the online NUMA nodes in the directory ``sys``. Raises NumaError."""
    online = sys / SYSFS_NODES.relative_to("sys") / "online"
    return id_list(online, _line(online))


def from_sysfs(sys: Path) -> NumaMachine:
    """Read the online NUMA nodes from ``sys``, a directory with the layout of ``/sys``.

    A kernel without NUMA support has only NUMA node 0.
    """
    base = sys / SYSFS_NODES.relative_to("sys")
    if not base.is_dir():
        return NumaMachine(NumaTopology.of([0]))
    nodes = online_nodes(sys)
    distances, cpus, memory = {}, {}, {}
    for node in nodes:
        path = base / f"node{node}"
        distances[node] = _numbers(path / "distance", _line(path / "distance"))
        cpus[node] = tuple(id_list(path / "cpulist", _line(path / "cpulist")))
        memory[node] = _total_bytes(path / "meminfo")
    return NumaMachine(_topology(base, nodes, distances), cpus, {"memory": memory})


def from_file(path: Path) -> NumaMachine:
    """Read NUMA nodes from a JSON or YAML file with the key ``nodes``. Other keys are optional.

    ``distances`` is a list of rows, or a mapping from node IDs to rows. A row is the list of
    distances from one node to every node. ``cpus`` maps a node ID to a list of CPU IDs or to a text
    such as ``0-3,8``. ``memory`` maps a memory type to a mapping from node IDs to quantities, such
    as ``4Gi``.
    """
    return from_content(path, _load(path))


def from_content(path: object, content: object) -> NumaMachine:
    """Convert the parsed content of a file to NUMA nodes; errors name ``path``."""
    if not isinstance(content, Mapping) or not content:
        raise NumaError(f"{path}: expected a mapping with the key `nodes`")
    unknown = sorted(str(key) for key in content if key not in _KEYS)
    if unknown:
        raise NumaError(f"{path}: unknown key `{unknown[0]}`: use one of {', '.join(_KEYS)}")
    where = f"{path}: nodes"
    nodes = _ids(where, content.get("nodes"))
    topology = _topology(path, nodes, _rows(path, content.get("distances")))
    cpus = {
        node: tuple(_ids(f"{path}: cpus of node {node}", ids))
        for node, ids in _by_node(f"{path}: cpus", content.get("cpus"), topology)
    }
    memory = {
        str(type_): {
            node: _bytes(f"{path}: {type_} of node {node}", size)
            for node, size in _by_node(f"{path}: memory `{type_}`", sizes, topology)
        }
        for type_, sizes in _mapping(f"{path}: memory", content.get("memory")).items()
    }
    _check_each_once(path, cpus)
    return NumaMachine(topology, cpus, memory)


def as_content(machine: NumaMachine) -> dict[str, object]:
    """Convert NUMA nodes to plain data that ``from_content`` accepts."""
    topology = machine.topology
    distances = [list(row) for row in topology.distances] if topology.has_distances else None
    return {
        "nodes": list(topology.nodes),
        "distances": distances,
        "cpus": {str(node): list(ids) for node, ids in machine.cpus.items()},
        "memory": {
            type_: {str(node): size for node, size in sizes.items()}
            for type_, sizes in machine.memory.items()
        },
    }


def _topology(where: object, nodes: list[int], distances: Any = None) -> NumaTopology:
    try:
        if distances is None:
            return NumaTopology.equidistant(nodes)
        return NumaTopology.of(nodes, distances)
    except NumaTopologyError as error:
        raise NumaError(f"{where}: {error}") from None


def id_list(where: object, text: str) -> list[int]:
    """Parse numbers in the kernel's list format, such as ``0-3,8``; return [] for an empty text.

    Raises NumaError for an invalid text. ``where``, such as a path, is the beginning of the error's
    text.
    """
    ids: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise NumaError(f"{where}: invalid `{part}`: expected a number or a range such as 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise NumaError(f"{where}: invalid range `{part}`: put the lower number first")
        # Checked before the range is expanded, because 0-999999999 would exhaust the memory.
        if last - first >= _MAX_LISTED:
            raise NumaError(f"{where}: range `{part}` too long: limit {_MAX_LISTED} numbers")
        ids.extend(range(first, last + 1))
        # Several ranges, each below the limit, can together be too long.
        if len(ids) > 2 * _MAX_LISTED:
            raise NumaError(f"{where}: list too long: limit {2 * _MAX_LISTED} numbers")
    return ids


def _ids(where: str, value: object) -> list[int]:
    """Convert a number, a list of numbers, or a text in the kernel's list format to IDs."""
    if isinstance(value, str):
        return id_list(where, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return [_id(where, value)]
    if not isinstance(value, list):
        raise NumaError(f"{where}: expected a list of numbers")
    return [_id(where, item) for item in value]


def _id(where: str, value: object) -> int:
    # YAML reads ``yes`` as True, and bool is a subclass of int.
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise NumaError(f"{where}: invalid `{value}`: expected a number of at least 0")
    return value


def _numbers(where: object, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split()]
    except ValueError:
        raise NumaError(f"{where}: invalid `{text}`: expected a list of numbers") from None


def _rows(path: object, value: object) -> dict[int, list[int]] | list[list[int]] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        where = f"{path}: distances"
        return {_node_key(where, key): _ids(where, row) for key, row in value.items()}
    if not isinstance(value, list):
        raise NumaError(f"{path}: distances: expected a list of numbers for every NUMA node")
    return [_ids(f"{path}: distances", row) for row in value]


def _by_node(where: str, value: object, topology: NumaTopology) -> Iterator[tuple[int, object]]:
    for key, item in _mapping(where, value).items():
        node = _node_key(where, key)
        if node not in topology.nodes:
            known = ", ".join(map(str, topology.nodes))
            raise NumaError(f"{where}: unknown NUMA node {node}: use one of {known}")
        yield node, item


def _mapping(where: str, value: object) -> Mapping[Any, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise NumaError(f"{where}: expected a mapping with NUMA node IDs or memory types as keys")
    return value


def _node_key(where: str, key: object) -> int:
    # In JSON, keys are always strings.
    if isinstance(key, str) and key.isascii() and key.isdigit():
        return int(key)
    return _id(where, key)


def _bytes(where: str, value: object) -> int:
    from devicemanager.core.quantity import whole_units
    from devicemanager.objects.manifests.resources import parse_quantity

    try:
        size = whole_units(parse_quantity(str(value)))
    except ValueError:
        size = -1
    if isinstance(value, bool) or size < 0:
        raise NumaError(f"{where}: invalid `{value}`: expected a quantity of bytes such as 4Gi")
    return size


def _total_bytes(path: Path) -> int:
    # ``search``, because the line begins with the number of the node, such as ``Node 0``.
    match = _MEM_TOTAL.search(_text(path))
    if match is None:
        raise NumaError(f"{path}: expected a line `MemTotal: <n> kB`")
    # The kernel's kB are KiB.
    return int(match[1]) * 1024


def _check_each_once(path: object, cpus: Mapping[int, tuple[int, ...]]) -> None:
    seen: set[int] = set()
    for node, ids in cpus.items():
        for cpu in ids:
            if cpu in seen:
                raise NumaError(
                    f"{path}: cpus of node {node}: CPU {cpu} is listed twice: a CPU belongs to one "
                    "NUMA node"
                )
            seen.add(cpu)


def _load(path: Path) -> object:
    # Imported here, because it loads the YAML parser, which only files need.
    from devicemanager.objects.manifests.documents import load_documents
    from devicemanager.objects.manifests.errors import ManifestError

    try:
        documents = load_documents(_text(path))
    except ManifestError as error:
        raise NumaError(f"{path}: {error}") from None
    # None leads to the error for a file that is not a mapping.
    return documents[0] if len(documents) == 1 else None


def _line(path: Path) -> str:
    return _text(path).strip()


def _text(path: Path) -> str:
    try:
        return read_regular(path, _MAX_SIZE).decode()
    except (OSError, FileRejected, UnicodeDecodeError) as error:
        raise NumaError(f"cannot read {path}: {_cause(error)}") from error


def _cause(error: Exception) -> object:
    if isinstance(error, OSError):
        return error.strerror
    return "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"it is {error}"
