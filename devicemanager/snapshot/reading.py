"""Read a snapshot from its archive. Needs the extra ``snapshot`` of the package.

The classes in this module describe the JSON files of an archive. They have the fields that commands
such as ``devicemanager pods -o json`` print. Wrong types are rejected, unknown fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from devicemanager.io import typed_json
from devicemanager.kubelet.host.numa import NumaError, from_content
from devicemanager.snapshot import layout
from devicemanager.snapshot.model import (
    KubeletConfig,
    Part,
    PodDirectories,
    Snapshot,
    SnapshotError,
    SocketSeen,
)
from devicemanager.snapshot.packing import unpack
from podresources.values import (
    Allocatable,
    Container,
    ContainerDevices,
    ContainerMemory,
    DynamicResource,
    Pod,
)

__all__ = ["read_snapshot"]

T = TypeVar("T")


def read_snapshot(data: bytes, source: str = "snapshot") -> Snapshot:
    """Return the snapshot in the archive ``data``. ``source`` is the archive's name in errors.

    Raises SnapshotError if the data is not a snapshot or has an unknown version.
    """
    files = _Files(unpack(data, source), source)
    index = files.index()
    pods, allocatable = files.get(layout.POD_RESOURCES, _Pods), files.allocatable()
    sockets = files.get(layout.SOCKETS, _Sockets)
    return Snapshot(
        taken=index.taken,
        tool=index.tool,
        node=index.node,
        root=index.root,
        parts=index.parts,
        pods=None if pods is None else tuple(pod.value() for pod in pods.pod_resources),
        allocatable=allocatable,
        checkpoint=files.raw(layout.CHECKPOINT),
        cpu_state=files.raw(layout.CPU_STATE),
        memory_state=files.raw(layout.MEMORY_STATE),
        dra_state=files.raw(layout.DRA_STATE),
        dra_health=files.raw(layout.DRA_HEALTH),
        sockets=None if sockets is None else sockets.sockets,
        numa=files.numa(),
        config=files.get(layout.CONFIG, KubeletConfig),
        directories=files.get(layout.PODS, PodDirectories),
    )


class _Files:
    """Decoder of the files in one archive."""

    def __init__(self, files: Mapping[str, bytes], source: str) -> None:
        self._files = files
        self._source = source

    def raw(self, name: str) -> bytes | None:
        return self._files.get(name)

    def get(self, name: str, kind: type[T]) -> T | None:
        """Return the decoded value of the JSON file ``name``; None if the archive lacks it."""
        data = self._files.get(name)
        if data is None:
            return None
        try:
            return typed_json.decode(data, kind)
        # RecursionError: archives are untrusted, and their JSON can be nested very deeply.
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SnapshotError(f"{self._source}: {name}: {error}") from None

    def index(self) -> _Index:
        """Return the index of the archive. Raises SnapshotError if its version is unknown."""
        # Check the version first: an index of another version may have different fields.
        head = self.get(layout.INDEX, _Head)
        if head is None or head.schema != layout.SCHEMA:
            # The error shows only a part of the text, because an untrusted text can be very long.
            schema = "" if head is None else head.schema
            raise SnapshotError(
                f"{self._source}: unknown schema {schema[:80]!r}: this version of devicemanager "
                f"reads {layout.SCHEMA}; use the version that wrote the file"
            )
        index = self.get(layout.INDEX, _Index)
        # The head was read from the same file, so the file exists.
        assert index is not None
        return index

    def allocatable(self) -> Allocatable | None:
        found = self.get(layout.ALLOCATABLE, _Holdings)
        return None if found is None else Allocatable(*found.values())

    def numa(self) -> Any:
        # Read without msgspec: from_content also reads the files of `--numa FILE`, which have the
        # same fields.
        data = self._files.get(layout.NUMA)
        if data is None:
            return None
        where = f"{self._source}: {layout.NUMA}"
        try:
            return from_content(where, json.loads(data))
        except NumaError as error:
            raise SnapshotError(str(error)) from None
        except (ValueError, RecursionError) as error:
            raise SnapshotError(f"{where}: {error}") from None


class _Head(msgspec.Struct):
    schema: str


class _Index(msgspec.Struct):
    taken: str
    tool: str
    node: str
    root: str
    parts: tuple[Part, ...] = ()


class _Devices(msgspec.Struct):
    resource_name: str
    device_ids: tuple[str, ...] = ()
    numa_nodes: tuple[int, ...] = ()


class _Memory(msgspec.Struct):
    memory_type: str
    size: int
    numa_nodes: tuple[int, ...] = ()


class _Holdings(msgspec.Struct):
    """Devices, CPUs and memory in the output of ``resources -o json``."""

    devices: tuple[_Devices, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[_Memory, ...] = ()

    def values(
        self,
    ) -> tuple[tuple[ContainerDevices, ...], tuple[int, ...], tuple[ContainerMemory, ...]]:
        """Return devices, CPUs and memory as PodResources values."""
        devices = (
            ContainerDevices(each.resource_name, each.device_ids, each.numa_nodes)
            for each in self.devices
        )
        memory = (
            ContainerMemory(each.memory_type, each.size, each.numa_nodes) for each in self.memory
        )
        return tuple(devices), self.cpu_ids, tuple(memory)


class _Container(_Holdings, kw_only=True):
    name: str
    dynamic_resources: tuple[DynamicResource, ...] = ()

    def value(self) -> Container:
        return Container(self.name, *self.values(), self.dynamic_resources)


class _Pod(msgspec.Struct):
    """Pod in the output of ``pods -o json``."""

    namespace: str
    name: str
    containers: tuple[_Container, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[_Memory, ...] = ()

    def value(self) -> Pod:
        _, cpu_ids, memory = _Holdings((), self.cpu_ids, self.memory).values()
        containers = tuple(each.value() for each in self.containers)
        return Pod(self.name, self.namespace, containers, cpu_ids, memory)


class _Pods(msgspec.Struct):
    pod_resources: tuple[_Pod, ...]


class _Sockets(msgspec.Struct):
    sockets: tuple[SocketSeen, ...]
