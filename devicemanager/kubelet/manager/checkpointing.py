"""Convert between the ledger (all allocations) and the entries of the checkpoint file."""

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
    """Contents of the checkpoint, updated pod by pod; guarded by the state's lock."""

    @property
    def registered(self) -> RegisteredDevices:
        """IDs of the healthy devices of each known resource."""

    def set_registered(self, registered: RegisteredDevices) -> None:
        """Replace the IDs of the healthy devices of all known resources."""

    def put(self, pod: PodUid, held: Holdings) -> None:
        """Replace the checkpoint entries of a pod. The entries of a new pod are appended."""

    def remove(self, pod: PodUid) -> None:
        """Remove a pod's checkpoint entries, if it has any."""

    def snapshot(self) -> Callable[[], checkpoint.Contents]:
        """Return a function that builds the checkpoint file as of now.

        Later changes of the document do not change the result of the function. Call the function
        without the state's lock, because it can be slow.
        """


class TextDocument:
    """Contents of the checkpoint as text. ``put`` renders only the entries of one pod."""

    __slots__ = ("_text",)

    def __init__(self) -> None:
        self._text = checkpoint.Document()

    @property
    def registered(self) -> RegisteredDevices:
        return self._text.registered

    def set_registered(self, registered: RegisteredDevices) -> None:
        self._text.set_registered(registered)

    def put(self, pod: PodUid, held: Holdings) -> None:
        # Only this pod's entries are rendered under the lock. The file's text is joined without it.
        self._text.put(pod, [checkpoint.render_entry(each) for each in pod_entries(pod, held)])

    def remove(self, pod: PodUid) -> None:
        self._text.remove(pod)

    def snapshot(self) -> Callable[[], checkpoint.Contents]:
        return self._text.snapshot().parts


# -- between the ledger's values and the file's ---------------------------------------------


def pod_entries(pod: PodUid, holdings: Holdings) -> list[PodDevicesEntry]:
    """Return the checkpoint entries of a pod: one for each resource of each container.

    Containers are in the order of allocation. The resources of a container are sorted by name.
    """
    return [
        PodDevicesEntry(
            pod_uid=pod,
            container_name=container,
            resource_name=resource,
            device_ids=held[resource].devices,
            alloc_resp=held[resource].response,
        )
        for container, held in holdings.items()
        # Sorted, so that equal allocations result in equal files. The kubelet's order is random.
        for resource in sorted(held)
    ]


def restore(ledger: Ledger, entries: Iterable[PodDevicesEntry]) -> None:
    """Add the entries of a checkpoint to the ledger (all allocations).

    Entries with a response that cannot be parsed are dropped, and their devices are free, as in
    the kubelet (``fromCheckpointData``, v1.36).
    """
    # Imported here: a start without a checkpoint does not need protobuf messages.
    from devicemanager.kubelet.wire.settings import is_response

    ledger.restore(
        _ledger_entry(entry) for entry in entries if is_response(entry.alloc_resp or b"")
    )


def _ledger_entry(entry: PodDevicesEntry) -> Entry:
    # In the file, the IDs of a NUMA node can be null, and the whole mapping can be null.
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
