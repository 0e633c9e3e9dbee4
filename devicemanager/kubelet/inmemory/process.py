"""One run of an in-memory kubelet, from start to stop, and its checkpoint in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import checkpoint
from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.errors import RequestError
from devicemanager.core.ids import PodUid
from devicemanager.core.providers.provider import HintProvider
from devicemanager.events.stream import EventStream
from devicemanager.io.clock import Clock
from devicemanager.kubelet.manager.checkpointing import Holdings, pod_entries
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.dra import LazyDra
from devicemanager.kubelet.pods.records import PodStore
from devicemanager.kubelet.pods.workers import PodWorkers
from devicemanager.kubelet.settings import Settings

if TYPE_CHECKING:
    from devicemanager.kubelet.inmemory.dra import InMemoryDra

__all__ = ["InMemoryLifecycle", "InMemoryProcess", "SharedStore"]

_Contents: TypeAlias = tuple[
    tuple[tuple[checkpoint.PodDevicesEntry, ...], ...], checkpoint.RegisteredDevices
]
"""Contents of a checkpoint: the entries of each pod, and the registered devices."""


# The classes have slots to save memory: one process has thousands of nodes.


class SharedStore:
    """Store of the latest checkpoint in memory, as Python objects instead of text.

    Rendering the text would take longer than the rest of an admission.
    """

    __slots__ = ("_made", "_written")

    def __init__(self) -> None:
        # The checkpoint writer passes the result of ``make`` to ``write``. Here that is an empty
        # text, and this attribute has the values.
        self._made: _Contents | None = None
        self._written: _Contents | None = None

    def make(self, contents: _Contents) -> bytes:
        """Keep ``contents`` for the next ``write``. Return ``b""``: ``write`` needs no text."""
        self._made = contents
        return b""

    def write(self, _: checkpoint.Contents) -> None:
        """Store the contents that were last passed to ``make``. Never fails."""
        self._written = self._made

    def clear(self) -> None:
        """Forget the stored checkpoint."""
        self._written = None

    def load(self) -> checkpoint.Checkpoint | None:
        """Return the stored checkpoint; None if no checkpoint is stored."""
        if self._written is None:
            return None
        pods, registered = self._written
        entries = tuple(entry for pod in pods for entry in pod)
        return checkpoint.Checkpoint(entries or None, registered)


class _Document:
    """Contents of the next checkpoint as Python objects; implements
    ``manager.checkpointing.Document``."""

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
    """One run of an in-memory kubelet: its device manager, DRA manager and pod workers."""

    __slots__ = ("dra", "manager", "workers")

    def __init__(
        self,
        settings: Settings,
        store: SharedStore,
        clock: Clock,
        events: EventStream,
        pods: PodStore,
        claims: LazyClaims,
        dra: Callable[[DeviceManager], LazyDra[InMemoryDra]],
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
        # Events show pod names, and only the pod store has them.
        self.manager.plugins.title_of = pods.title_of
        self.dra = dra(self.manager)
        self.workers = PodWorkers(pods, self.manager, settings, events, claims, self.dra)

    def stop(self) -> None:
        """Close the pod workers, the DRA manager and the device manager, with all their timers."""
        # The timers of containers call the manager, so they are cancelled first.
        self.workers.close()
        self.dra.close()
        self.manager.close()


class InMemoryLifecycle:
    """Holder of a kubelet's running ``InMemoryProcess``; empty while the kubelet is stopped."""

    __slots__ = ("process",)

    def __init__(self) -> None:
        self.process: InMemoryProcess | None = None

    def serving(self) -> InMemoryProcess:
        """Return the running process. Raises RequestError if the kubelet is stopped."""
        if self.process is None:
            raise RequestError("the in-memory kubelet is not running: call start")
        return self.process
