"""One life of a light kubelet's process, and its checkpoint in memory."""

from __future__ import annotations

from collections.abc import Iterable

import checkpoint
from devicemanager.claims.door import ClaimsDoor
from devicemanager.clock import Clock
from devicemanager.core.errors import RequestError
from devicemanager.core.providers.provider import HintProvider
from devicemanager.events import EventStream
from devicemanager.manager.manager import DeviceManager
from devicemanager.pods.records import PodStore
from devicemanager.pods.workers import PodWorkers
from devicemanager.settings import Settings

__all__ = ["LightLife", "LightProcess", "SharedStore"]


class SharedStore:
    """Keeps the last checkpoint as the parts that it was given, which the document has anyway."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: checkpoint.Contents | None = None

    def write(self, data: checkpoint.Contents) -> None:
        """Never fails."""
        self._parts = data

    def load(self) -> checkpoint.Checkpoint | None:
        """None if nothing was ever written."""
        parts = self._parts
        if parts is None:
            return None
        data = parts if isinstance(parts, bytes) else b"".join(parts)
        return checkpoint.loads(data)


class LightProcess:
    """Manager and workers."""

    __slots__ = ("manager", "workers")

    def __init__(
        self,
        settings: Settings,
        store: SharedStore,
        clock: Clock,
        events: EventStream,
        pods: PodStore,
        claims: ClaimsDoor,
        providers: Iterable[HintProvider] | None,
    ) -> None:
        self.manager = DeviceManager(
            settings, store=store, clock=clock, events=events, providers=providers
        )
        self.manager.plugins.title_of = pods.title_of
        self.workers = PodWorkers(pods, self.manager, settings, events, claims)

    def stop(self) -> None:
        """Nothing happens by itself any more."""
        self.manager.plugins.ignore()
        self.workers.life.close()
        self.manager.close()


class LightLife:
    """Knows the process that serves."""

    __slots__ = ("process",)

    def __init__(self) -> None:
        self.process: LightProcess | None = None

    def serving(self) -> LightProcess:
        """Raises RequestError if there is none."""
        if self.process is None:
            raise RequestError("the light kubelet is not running: start it")
        return self.process
