"""Facade of structured claims for the kubelet. The facade imports the modules of structured claims
at first use."""

# Most nodes have no structured claims. Importing the search, the objects and the constraints
# would slow down every start.

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod
from devicemanager.events.stream import EventStream

if TYPE_CHECKING:
    from devicemanager.claims.persistence import StateFile
    from devicemanager.claims.pod_claims import PodClaims
    from devicemanager.core.status import ResourceStatus
    from podresources import DynamicResource


class LazyClaims:
    """Facade that creates ``PodClaims``, the kubelet's claim manager, at first use. Thread-safe."""

    def __init__(
        self, events: EventStream, node: str, admin_namespaces: frozenset[str] | None = None
    ) -> None:
        """Store the arguments for ``ClaimManager``; create no manager yet."""
        self._events = events
        self._node = node
        self._admin_namespaces = admin_namespaces
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._manager: PodClaims | None = None
        self._file: StateFile | None = None

    @property
    def manager(self) -> PodClaims:
        """The claim manager, created by the first access.

        Raises StartError if the state file cannot be read.
        """
        # Created with the lock held: two managers would write the same state file.
        with self._lock:
            if self._manager is None:
                manager = self._create()
                if self._file is not None:
                    manager.load(self._file)
                self._manager = manager
            return self._manager

    def _create(self) -> PodClaims:
        from devicemanager.claims.pod_claims import PodClaims

        return PodClaims(self._events, node=self._node, admin_namespaces=self._admin_namespaces)

    def load(self, file: StateFile) -> None:
        """Set the state file. If the file exists, restore the allocations in it.

        The file exists if claims were used before the last stop. A corrupt file is renamed. Raises
        StartError if the file exists but cannot be read.
        """
        with self._lock:
            self._file = file
            manager = self._manager
        if manager is not None:
            manager.load(file)
        elif os.path.lexists(file.path):
            # Claims were used before the last stop: their devices are still allocated.
            _ = self.manager

    def close(self) -> None:
        """Stop writing the state file. The allocations stay in the file."""
        with self._lock:
            self._file = None
            manager = self._manager
        if manager is not None:
            manager.close()

    # -- delegates to PodClaims; without a PodClaims there is nothing to do --------------------

    # These methods read ``_manager`` without the lock: it is set once, and then never changes.
    def admit(self, pod: Pod) -> None:
        if pod.resource_claims:
            self.manager.admit(pod)

    def serves(self, pod: Pod) -> bool:
        """True if the pod names claims, and all of them are structured claims of this node."""
        return self._manager is not None and self._manager.has_claims(pod)

    def admitted(self, pod: str) -> None:
        if self._manager is not None:
            self._manager.admitted(pod)

    def unreserve(self, pod: str) -> None:
        if self._manager is not None:
            self._manager.unreserve(pod)

    def clear(self) -> None:
        if self._manager is not None:
            self._manager.clear()

    def remove_pods(self, *pods: str, also_allocated_before: bool = True) -> None:
        if self._manager is not None:
            self._manager.remove_pods(*pods, also_allocated_before=also_allocated_before)

    def remove_other_pods(self, pods: Iterable[str]) -> None:
        if self._manager is not None:
            self._manager.remove_other_pods(pods)

    def flush(self) -> None:
        if self._manager is not None:
            self._manager.flush()

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
