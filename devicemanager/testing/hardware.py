"""Fake hardware: directory trees like ``/sys`` and ``/dev``, for plugins that read these.

There are three ways to use the trees:

* with a plugin that has a flag such as ``--sysfs-root``;
* with ``plugin_process(..., at_node_paths=True, sys=..., dev=...)``;
* with ``devicemanager exec --sys DIR --dev DIR``.

Links are relative, so a tree can be mounted anywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from itertools import groupby
from pathlib import Path
from typing import Self

from devicemanager.core import bitset
from devicemanager.core.errors import RequestError
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.providers.memory import MemoryProvider
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.settings import Settings

__all__ = ["FakeDev", "FakeSysfs", "HardwareError"]

_ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):[01][0-9a-f]\.[0-7]")
# The prefix is optional: sysfs shows it, but `lspci -n` does not.
_ID = re.compile(r"(?:0x)?([0-9a-fA-F]{4})")
_DEFAULT_MEMORY = 1 << 30
_NO_NODE = -1
"""NUMA node that sysfs shows for a device without NUMA affinity."""


class HardwareError(RequestError):
    """Error in the description of fake hardware, such as a device on an unknown NUMA node."""


class FakeSysfs:
    """Fake ``/sys`` in the directory ``directory``: NUMA nodes, CPUs, PCI devices and drivers.

    It has only the files that plugins read. Existing files are overwritten. ``topology`` has the
    NUMA nodes; by default, the only node is 0.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        topology: NumaTopology | None = None,
        *,
        cpus: dict[int, Iterable[int]] | None = None,
        memory: dict[int, int] | None = None,
    ) -> None:
        """Write the tree without PCI devices.

        ``cpus``: CPU IDs by NUMA node. ``memory``: bytes by NUMA node, 1 GiB by default. Raises
        HardwareError for a NUMA node that is not in ``topology``.
        """
        self.directory = Path(directory)
        self.topology = topology or NumaTopology.up_to(0)
        self._cpus = {node: sorted((cpus or {}).get(node, ())) for node in self.topology.nodes}
        # Check before anything is written, so that an error leaves no incomplete tree.
        for node in {*(cpus or {}), *(memory or {})} - set(self.topology.nodes):
            raise HardwareError(
                f"unknown NUMA node {node}: use one of {_list(self.topology.nodes)}"
            )
        self._write_cpus()
        for node in self.topology.nodes:
            self._write_node(node, (memory or {}).get(node, _DEFAULT_MEMORY))

    @classmethod
    def of_kubelet(cls, directory: str | os.PathLike[str], settings: Settings) -> Self:
        """Write a tree with the NUMA nodes, CPUs and memory of a kubelet's settings."""
        cpus: dict[int, Iterable[int]] = {}
        memory: dict[int, int] = {}
        for provider in settings.providers:
            if isinstance(provider, CpuProvider):
                cpus |= {node: bitset.numbers(ids) for node, ids in provider.per_node.items()}
            elif isinstance(provider, MemoryProvider):
                memory |= {
                    n: size for (kind, n), size in provider.capacity.items() if kind == "memory"
                }
        return cls(directory, settings.topology, cpus=cpus, memory=memory)

    def add_pci(
        self,
        address: str,
        vendor: str,
        device: str,
        *,
        pci_class: str = "0x030200",
        numa_node: int | None = None,
        driver: str | None = None,
    ) -> Path:
        """Add a PCI device; return its directory.

        ``address`` has a form such as ``0000:3b:00.0``. ``vendor`` and ``device`` are four
        hexadecimal digits, such as ``10de``. The default class is a 3D controller; ``0x020000`` is
        an Ethernet controller. Without ``numa_node``, the device has no NUMA affinity (-1).
        ``driver``: name of the driver that the device is bound to. Raises HardwareError for an
        invalid address, ID or NUMA node.
        """
        match = _ADDRESS.fullmatch(address)
        if match is None:
            raise HardwareError(f"invalid PCI address {address!r}: use a form such as 0000:3b:00.0")
        if numa_node is not None and numa_node not in self.topology.nodes:
            raise HardwareError(
                f"{address}: unknown NUMA node {numa_node}: use one of {_list(self.topology.nodes)}"
            )
        ids = _id(vendor), _id(device)
        # Like in the kernel, a device without affinity is local to all CPUs.
        local = self._cpus[numa_node] if numa_node is not None else self._all_cpus
        # The device's directory is below its bus; all other paths are links to this directory.
        path = self.directory / f"devices/pci{match[1]}:{match[2]}" / address
        _write(path / "vendor", f"0x{ids[0]}")
        _write(path / "device", f"0x{ids[1]}")
        _write(path / "class", pci_class)
        _write(path / "numa_node", str(_NO_NODE if numa_node is None else numa_node))
        _write(path / "local_cpulist", _list(local))
        uevent = [f"PCI_ID={ids[0].upper()}:{ids[1].upper()}", f"PCI_SLOT_NAME={address}"]
        _write(path / "uevent", "\n".join([*([f"DRIVER={driver}"] if driver else []), *uevent]))
        _link(self.directory / "bus/pci/devices" / address, path)
        _link(path / "subsystem", self.directory / "bus/pci")
        if driver is not None:
            drivers = self.directory / "bus/pci/drivers" / driver
            _link(path / "driver", drivers)
            _link(drivers / address, path)
        return path

    @property
    def _all_cpus(self) -> list[int]:
        return sorted(cpu for ids in self._cpus.values() for cpu in ids)

    def _write_cpus(self) -> None:
        base = self.directory / "devices/system/cpu"
        for name in ("online", "present", "possible"):
            _write(base / name, _list(self._all_cpus))
        # One physical package per NUMA node, as on most servers.
        for package, (node, ids) in enumerate(self._cpus.items()):
            for cpu in ids:
                path = base / f"cpu{cpu}"
                _write(path / "topology/physical_package_id", str(package))
                # Without hyper-threading: each CPU is a core of its own.
                _write(path / "topology/core_id", str(cpu))
                _write(path / "topology/thread_siblings_list", str(cpu))
                _link(path / f"node{node}", self.directory / f"devices/system/node/node{node}")

    def _write_node(self, node: int, memory: int) -> None:
        base = self.directory / "devices/system/node"
        for name in ("online", "possible"):
            _write(base / name, _list(self.topology.nodes))
        path, cpus = base / f"node{node}", self._cpus[node]
        row = self.topology.distances[self.topology.nodes.index(node)]
        _write(path / "distance", " ".join(map(str, row)))
        _write(path / "cpulist", _list(cpus))
        _write(path / "meminfo", f"Node {node} MemTotal:       {memory // 1024} kB")
        for cpu in cpus:
            _link(path / f"cpu{cpu}", self.directory / f"devices/system/cpu/cpu{cpu}")


class FakeDev:
    """Fake ``/dev`` in the directory ``directory``.

    Each device node is a link to ``/dev/null``, because only root can create real device nodes.
    """

    def __init__(self, directory: str | os.PathLike[str], names: Iterable[str] = ()) -> None:
        """Create the directory with device nodes of these names.

        A name can contain directories, such as ``infiniband/uverbs0``.
        """
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in names:
            self.add(name)

    def add(self, name: str) -> Path:
        """Add a device node; return its path.

        Raises HardwareError for a name that leads outside the directory.
        """
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A device node needs CAP_MKNOD, a link does not.
        path.unlink(missing_ok=True)
        path.symlink_to(os.devnull)
        return path

    def remove(self, name: str) -> None:
        """Remove a device node, as if a card was unplugged.

        Raises FileNotFoundError if the device node does not exist, and HardwareError like ``add``.
        """
        self._path(name).unlink()

    def _path(self, name: str) -> Path:
        # `name` can be absolute or contain `..`.
        inner = Path(os.path.relpath(self.directory / name, self.directory))
        if inner.parts[:1] in ((), ("..",)):
            raise HardwareError(f"invalid name {name!r}: expected a path below {self.directory}")
        return self.directory / inner


def _id(text: str) -> str:
    match = _ID.fullmatch(text)
    if match is None:
        raise HardwareError(f"invalid vendor or device ID {text!r}: use four hexadecimal digits")
    return match[1].lower()


def _write(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{line}\n")


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    # Use relative links, so that the tree works at any mount point.
    path.symlink_to(os.path.relpath(target, path.parent))


def _list(ids: Collection[int]) -> str:
    """Return IDs in the kernel's list format: ``0-3,8``."""
    # The difference of ID and index is constant for consecutive IDs.
    runs = groupby(enumerate(sorted(ids)), key=lambda pair: pair[1] - pair[0])
    parts = [[each for _, each in run] for _, run in runs]
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
