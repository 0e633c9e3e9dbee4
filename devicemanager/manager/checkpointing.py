"""Keeping the ledger in the checkpoint file.

``Writer`` makes concurrent admissions share durable writes: a caller that comes while a write
is under way waits for the next one, which covers all callers that came in the meantime. No
caller returns before a write that began after its change has reached the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

import attrs

import checkpoint
from checkpoint import PodDevicesEntry, RegisteredDevices
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.ledger import Entry, Holding, Ledger

Holdings: TypeAlias = Mapping[ContainerName, Mapping[ResourceName, Holding]]
"""What a pod holds, by container and resource."""


class Store(Protocol):
    """Where the file is: ``checkpoint.FileStore``, or memory in tests."""

    def write(self, data: checkpoint.Contents) -> None:
        """Replace the contents, atomically and durably. Raises CheckpointWriteError."""


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


@attrs.define(eq=False, repr=False)
class MemoryStore:
    """A store without a disk, for tests and replays: keeps the last contents."""

    data: bytes | None = None
    writes: int = 0

    def write(self, data: checkpoint.Contents) -> None:
        self.data = data if isinstance(data, bytes) else b"".join(data)
        self.writes += 1


@attrs.define(eq=False, repr=False)
class _Round:
    """One durable write and those who wait for it."""

    done: bool = False
    error: BaseException | None = None


class Writer:
    """Shares durable writes among callers that ask for one at the same time.

    A caller joins the round that has not begun yet and waits for its turn. The first caller
    of a round writes for all of them; the others find the round done. A caller that is
    interrupted leaves the round to the next one.
    """

    def __init__(
        self,
        store: Store,
        render: Callable[[], checkpoint.Contents],
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """``written`` is called after each write that succeeded, once no caller waits for
        that write."""
        self._store = store
        self._render = render
        self._written = written
        # Held while rendering and writing. Guards every round's fields.
        self._turn = threading.Lock()
        self._next = _Round()
        self._closed = False

    def close(self) -> None:
        """Wait for the write under way; every later one fails. A kubelet that stops calls
        this, since its successor owns the file."""
        self._closed = True
        with self._turn:
            pass

    def flush(self) -> None:
        """Return once everything changed before this call is on disk.

        Raises CheckpointWriteError, to everybody who shared the write that failed.
        """
        # Read before taking the turn: a write that has begun may have missed our change.
        mine = self._next
        with self._turn:
            wrote = not mine.done
            if wrote:
                self._write(mine)
        if mine.error is not None:
            raise mine.error
        if wrote:
            self._written()

    def _write(self, mine: _Round) -> None:
        if self._closed:
            raise checkpoint.CheckpointWriteError(
                checkpoint.CHECKPOINT_NAME, "the kubelet is stopping"
            )
        self._next = _Round()  # later comers need a later write
        try:
            self._store.write(self._render())
        except checkpoint.CheckpointWriteError as error:
            mine.error = error
        mine.done = True


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
        Holding(devices, entry.alloc_resp),
    )
