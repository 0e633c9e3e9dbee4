"""Convert between the ledger and the entries of the checkpoint file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

import checkpoint
from checkpoint import PodDevicesEntry, RegisteredDevices
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.ledger import AllocatedDevices, Entry, Ledger

Holdings: TypeAlias = Mapping[ContainerName, Mapping[ResourceName, AllocatedDevices]]
"""Allocated devices of a pod, by container and resource."""


class Document(Protocol):
    """Contents of the checkpoint; guarded by the state's lock."""

    @property
    def registered(self) -> RegisteredDevices:
        """Healthy devices of each known resource."""

    def set_registered(self, registered: RegisteredDevices) -> None:
        """Replace the healthy devices of the known resources."""

    def put(self, pod: PodUid, held: Holdings) -> None:
        """Replace the entries of a pod. A known pod keeps its position."""

    def remove(self, pod: PodUid) -> None:
        """Remove a pod, if it is there."""

    def snapshot(self) -> Callable[[], checkpoint.Contents]:
        """Return a function that builds the file's contents as of now; call it without the lock."""


class TextDocument:
    """Text of each pod's entries, rendered once per change of the pod."""

    __slots__ = ("_text",)

    def __init__(self) -> None:
        self._text = checkpoint.Document()

    @property
    def registered(self) -> RegisteredDevices:
        return self._text.registered

    def set_registered(self, registered: RegisteredDevices) -> None:
        self._text.set_registered(registered)

    def put(self, pod: PodUid, held: Holdings) -> None:
        # Rendered now, under the lock, but only this pod's entries; joining them happens without
        # it.
        self._text.put(pod, [checkpoint.render_entry(each) for each in pod_entries(pod, held)])

    def remove(self, pod: PodUid) -> None:
        self._text.remove(pod)

    def snapshot(self) -> Callable[[], checkpoint.Contents]:
        return self._text.snapshot().parts


# -- between the ledger's values and the file's ---------------------------------------------


def pod_entries(pod: PodUid, holdings: Holdings) -> list[PodDevicesEntry]:
    """Return a pod's entries: containers in the order of allocation, resources sorted."""
    return [
        PodDevicesEntry(
            pod_uid=pod,
            container_name=container,
            resource_name=resource,
            device_ids=held[resource].devices,
            alloc_resp=held[resource].response,
        )
        for container, held in holdings.items()
        # Sorted, so that equal allocations make equal files; the kubelet's order is random.
        for resource in sorted(held)
    ]


def restore(ledger: Ledger, entries: Iterable[PodDevicesEntry]) -> None:
    """Enter the entries of a checkpoint into the ledger.

    The kubelet drops an entry with a response that it cannot parse (``fromCheckpointData``,
    v1.36): its devices are free.
    """
    # Imported here: a start without a checkpoint does not need protobuf messages.
    from devicemanager.kubelet.wire.settings import is_response

    ledger.restore(
        _ledger_entry(entry) for entry in entries if is_response(entry.alloc_resp or b"")
    )


def _ledger_entry(entry: PodDevicesEntry) -> Entry:
    # A node's IDs can be null in the file, and so can the whole mapping.
    devices = {
        node: tuple(DeviceId(id_) for id_ in ids or ())
        for node, ids in (entry.device_ids or {}).items()
    }
    return (
        PodUid(entry.pod_uid),
        ContainerName(entry.container_name),
        ResourceName(entry.resource_name),
        AllocatedDevices(devices, entry.alloc_resp),
    )
