"""The kubelet's way to structured claims, which are loaded when somebody uses them.

Most nodes have none: they do without the time that importing all of it takes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod
from devicemanager.events.stream import EventStream

if TYPE_CHECKING:
    from devicemanager.claims.manager import ClaimManager
    from devicemanager.claims.persistence import StateFile
    from devicemanager.core.status import ResourceStatus
    from podresources import DynamicResource


class LazyClaims:
    """What the kubelet asks of claims. May be called from any thread."""

    def __init__(
        self, events: EventStream, node: str, admin_namespaces: frozenset[str] | None = None
    ) -> None:
        """See ``ClaimManager``, which is made with these when claims are first used."""
        self._events = events
        self._node = node
        self._admin_namespaces = admin_namespaces
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._manager: ClaimManager | None = None
        self._file: StateFile | None = None

    @property
    def manager(self) -> ClaimManager:
        """Everything about claims; made now if nobody used them before. Raises StartError if
        their state file cannot be read."""
        with self._lock:
            if self._manager is None:
                manager = self._new()
                if self._file is not None:
                    manager.load(self._file)
                self._manager = manager
            return self._manager

    def _new(self) -> ClaimManager:
        from devicemanager.claims.manager import ClaimManager

        return ClaimManager(self._events, node=self._node, admin_namespaces=self._admin_namespaces)

    def load(self, file: StateFile) -> None:
        """A kubelet's process starts; see ``ClaimManager.load``."""
        with self._lock:
            self._file = file
            manager = self._manager
        if manager is not None:
            manager.load(file)
        elif os.path.lexists(file.path):
            _ = self.manager

    def close(self) -> None:
        """The process stops."""
        with self._lock:
            self._file = None
            manager = self._manager
        if manager is not None:
            manager.close()

    # -- what ClaimManager does, and nothing if there is none --------------------------------

    def admit(self, pod: Pod) -> None:
        if pod.resource_claims:
            self.manager.admit(pod)

    def admitted(self, pod: str) -> None:
        if self._manager is not None:
            self._manager.admitted(pod)

    def retreat(self, pod: str) -> None:
        if self._manager is not None:
            self._manager.retreat(pod)

    def clear(self) -> None:
        if self._manager is not None:
            self._manager.clear()

    def leave(self, *pods: str, also_allocated_before: bool = True) -> None:
        if self._manager is not None:
            self._manager.leave(*pods, also_allocated_before=also_allocated_before)

    def forget_all_but(self, pods: Iterable[str]) -> None:
        if self._manager is not None:
            self._manager.forget_all_but(pods)

    def settle(self) -> None:
        if self._manager is not None:
            self._manager.settle()

    @property
    def is_sources_ready(self) -> bool:
        return self._manager is None or self._manager.is_sources_ready

    def pods(self) -> frozenset[str]:
        return frozenset() if self._manager is None else self._manager.pods()

    def prepare(self, pod: Pod) -> None:
        if pod.resource_claims and self._manager is not None:
            self._manager.prepare(pod)

    def cdi_devices(self, pod: Pod, container: ContainerName) -> tuple[str, ...]:
        if self._manager is None or not pod.resource_claims:
            return ()
        return self._manager.cdi_devices(pod, container)

    def devices(self, pod: Pod, container: ContainerName) -> dict[str, tuple[str, ...]]:
        if self._manager is None or not pod.resource_claims:
            return {}
        return self._manager.devices(pod, container)

    def health(self, pod: Pod, container: ContainerName) -> tuple[ResourceStatus, ...]:
        if self._manager is None or not pod.resource_claims:
            return ()
        return self._manager.health(pod, container)

    def dynamic_resources(self, pod: Pod, container: ContainerName) -> tuple[DynamicResource, ...]:
        if self._manager is None or not pod.resource_claims:
            return ()
        return self._manager.dynamic_resources(pod, container)

    @property
    def version(self) -> int:
        return 0 if self._manager is None else self._manager.version

    def pod_version(self, pod: str) -> int:
        return 0 if self._manager is None else self._manager.pod_version(pod)
