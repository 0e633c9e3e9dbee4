"""One instance of an in-memory kubelet's process, and its checkpoint in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

import checkpoint
from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import PodUid
from devicemanager.core.providers.provider import HintProvider
from devicemanager.events.stream import EventStream
from devicemanager.io.clock import Clock
from devicemanager.kubelet.manager.checkpointing import Holdings, pod_entries
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.records import PodStore
from devicemanager.kubelet.pods.workers import PodWorkers
from devicemanager.kubelet.settings import Settings

__all__ = ["InMemoryLifecycle", "InMemoryProcess", "SharedStore"]

_Contents: TypeAlias = tuple[
    tuple[tuple[checkpoint.PodDevicesEntry, ...], ...], checkpoint.RegisteredDevices
]
"""Entries of each pod, and the registered devices."""


# The classes have slots: a process holds one of each per node, and has thousands of nodes.


class SharedStore:
    """Store of the last checkpoint, as values.

    A checkpoint as text would cost more than the rest of the admission, and thousands of nodes
    share one process.
    """

    __slots__ = ("_made", "_written")

    def __init__(self) -> None:
        # The checkpoint writer passes the text from ``make`` to ``write``. Here it is empty,
        # and the values are passed in this attribute.
        self._made: _Contents | None = None
        self._written: _Contents | None = None

    def make(self, contents: _Contents) -> bytes:
        """Prepare what the next ``write`` stores; return an empty text."""
        self._made = contents
        return b""

    def write(self, _: checkpoint.Contents) -> None:
        """Store what was prepared. Never fails."""
        self._written = self._made

    def load(self) -> checkpoint.Checkpoint | None:
        """Return the stored checkpoint; None before the first write."""
        if self._written is None:
            return None
        pods, registered = self._written
        entries = tuple(entry for pod in pods for entry in pod)
        return checkpoint.Checkpoint(entries or None, registered)


class _Document:
    """Like ``manager.checkpointing.Document``, but for the store: as values."""

    __slots__ = ("_pods", "_store", "registered")

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._pods: dict[PodUid, tuple[checkpoint.PodDevicesEntry, ...]] = {}
        self.registered: checkpoint.RegisteredDevices = {}

    def set_registered(self, registered: checkpoint.RegisteredDevices) -> None:
        self.registered = registered

    def put(self, pod: PodUid, held: Holdings) -> None:
        if entries := tuple(pod_entries(pod, held)):
            self._pods[pod] = entries
        else:
            self.remove(pod)

    def remove(self, pod: PodUid) -> None:
        self._pods.pop(pod, None)

    def snapshot(self) -> Callable[[], checkpoint.Contents]:
        return partial(self._store.make, (tuple(self._pods.values()), self.registered))


class InMemoryProcess:
    """Device manager and pod workers, without servers."""

    __slots__ = ("manager", "workers")

    def __init__(
        self,
        settings: Settings,
        store: SharedStore,
        clock: Clock,
        events: EventStream,
        pods: PodStore,
        claims: LazyClaims,
        providers: Iterable[HintProvider] | None,
    ) -> None:
        self.manager = DeviceManager(
            settings,
            store=store,
            clock=clock,
            events=events,
            providers=providers,
            document=_Document(store),
        )
        # Events name pods as users know them, and only the pod store knows the names.
        self.manager.plugins.title_of = pods.title_of
        self.workers = PodWorkers(pods, self.manager, settings, events, claims)

    def stop(self) -> None:
        """Cancel all timers and close the manager."""
        # Timers of containers first: they call the manager.
        self.workers.life.close()
        self.manager.close()


class InMemoryLifecycle:
    """Holder of the running process."""

    __slots__ = ("process",)

    def __init__(self) -> None:
        self.process: InMemoryProcess | None = None

    def serving(self) -> InMemoryProcess:
        """Return the running process. Raises RequestError if there is none."""
        if self.process is None:
            raise RequestError("the in-memory kubelet is not running: start it")
        return self.process
