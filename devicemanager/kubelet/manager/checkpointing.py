"""Conversion between the ledger and the entries of the checkpoint file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

import checkpoint
from checkpoint import PodDevicesEntry, RegisteredDevices
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.ledger import AllocatedDevices, Entry, Ledger

Holdings: TypeAlias = Mapping[ContainerName, Mapping[ResourceName, AllocatedDevices]]
"""What a pod holds, by container and resource."""


class Document(Protocol):
    """What the checkpoint is to hold. The state's lock guards it."""

    @property
    def registered(self) -> RegisteredDevices:
        """The healthy devices of each resource that is known."""

    def set_registered(self, registered: RegisteredDevices) -> None:
        """These are known now."""

    def put(self, pod: PodUid, held: Holdings) -> None:
        """A pod holds this, or nothing. One that is known already keeps its place."""

    def remove(self, pod: PodUid) -> None:
        """Drop a pod; nothing happens if it is not there."""

    def snapshot(self) -> Callable[[], checkpoint.Contents]:
        """Makes the file's contents as of now; to be called without the lock."""


class TextDocument:
    """Keeps the text of each pod's entries, so that only what has changed is made again."""

    __slots__ = ("_text",)

    def __init__(self) -> None:
        self._text = checkpoint.Document()

    @property
    def registered(self) -> RegisteredDevices:
        return self._text.registered

    def set_registered(self, registered: RegisteredDevices) -> None:
        self._text.set_registered(registered)

    def put(self, pod: PodUid, held: Holdings) -> None:
        self._text.put(pod, [checkpoint.render_entry(each) for each in pod_entries(pod, held)])

    def remove(self, pod: PodUid) -> None:
        self._text.remove(pod)

    def snapshot(self) -> Callable[[], checkpoint.Contents]:
        return self._text.snapshot().parts


# -- between the ledger's values and the file's -------------------------------------------


def pod_entries(pod: PodUid, holdings: Holdings) -> list[PodDevicesEntry]:
    """A pod's entries: containers in the order they were allocated, resources sorted."""
    return [
        PodDevicesEntry(
            pod_uid=pod,
            container_name=container,
            resource_name=resource,
            device_ids=held[resource].devices,
            alloc_resp=held[resource].response,
        )
        for container, held in holdings.items()
        for resource in sorted(held)
    ]


def restore(ledger: Ledger, entries: Iterable[PodDevicesEntry]) -> None:
    """Take over what a checkpoint holds."""
    ledger.restore(map(_ledger_entry, entries))


def _ledger_entry(entry: PodDevicesEntry) -> Entry:
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
