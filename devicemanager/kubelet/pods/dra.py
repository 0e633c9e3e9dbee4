"""The pods' access to the DRA manager, which is loaded at first use.

Most nodes have no DRA driver. Importing the DRA manager would slow down every start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod

if TYPE_CHECKING:
    from devicemanager.core.dra.explanation import Attempt
    from devicemanager.core.dra.report import ClaimExplanation
    from devicemanager.core.status import ResourceStatus
    from podresources import DynamicResource

__all__ = ["LazyDra", "PodDra"]


class PodDra(Protocol):
    """The part of the DRA manager that pods use; ``kubelet.dra.manager`` documents the members."""

    def prepare(self, pod: Pod) -> None: ...
    def unprepare(self, pod: Pod) -> None: ...
    def cancel(self, uid: str) -> None: ...
    def cdi_devices(self, pod: Pod, container: ContainerName) -> tuple[str, ...]: ...
    def devices(self, pod: Pod, container: ContainerName) -> dict[str, tuple[str, ...]]: ...
    def health(self, pod: Pod, container: ContainerName) -> tuple[ResourceStatus, ...]: ...
    def dynamic_resources(
        self, pod: Pod, container: ContainerName
    ) -> tuple[DynamicResource, ...]: ...
    @property
    def is_sources_ready(self) -> bool: ...
    def sources_ready(self) -> None: ...
    def pods(self) -> frozenset[str]: ...
    @property
    def version(self) -> int: ...
    def pod_version(self, pod: str) -> int: ...
    def explain(self, pod: Pod, attempt: Attempt) -> tuple[ClaimExplanation, ...]: ...
    def close(self) -> None: ...


Manager_co = TypeVar("Manager_co", bound=PodDra, covariant=True)


class LazyDra(Generic[Manager_co]):
    """Facade of the DRA manager of one kubelet process. It creates the manager at first use.

    Thread-safe.
    """

    # Slots: a cluster has thousands of in-memory kubelets in one process.
    __slots__ = ("_closed", "_create", "_is_used", "_lock", "_manager")

    def __init__(
        self,
        create: Callable[[], Manager_co] | None = None,
        is_used: Callable[[], bool] = lambda: False,
    ) -> None:
        """``create`` is a function that creates and starts the manager. It is None for a kubelet
        without DRA. The function ``is_used`` returns True if pods can have ResourceClaims."""
        self._create = create
        self._is_used = is_used
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._manager: Manager_co | None = None
        self._closed = False

    def manager(self) -> Manager_co:
        """Return the DRA manager, created by the first call.

        Raises StartError if its state file cannot be read, or if the kubelet is stopping.
        """
        from devicemanager.core.errors import StartError

        with self._lock:
            if self._manager is None:
                # A manager that is created after ``close`` would never be closed.
                if self._closed or self._create is None:
                    raise StartError("the kubelet is stopping")
                self._manager = self._create()
            return self._manager

    def start(self) -> None:
        """Create the manager now if pods can have ResourceClaims.

        Raises StartError for the same reasons as ``manager``.
        """
        if self._create is not None and self._is_used():
            self.manager()

    def close(self) -> None:
        """Close the manager, if it was created."""
        with self._lock:
            self._closed, manager = True, self._manager
        if manager is not None:
            manager.close()

    def serves(self, pod: Pod) -> bool:
        """True if the DRA manager prepares the claims of the pod."""
        if not pod.resource_claims and pod.extended_claim is None:
            return False
        return self._create is not None and (self._manager is not None or self._is_used())

    # -- delegates to the manager; for pods that it serves -------------------------------------

    def prepare(self, pod: Pod) -> None:
        self.manager().prepare(pod)

    def unprepare(self, pod: Pod) -> None:
        self.manager().unprepare(pod)

    # Most methods below do not create the manager: without it, this process has prepared no claim,
    # and the empty result is right.
    def cancel(self, uid: str) -> None:
        if self._manager is not None:
            self._manager.cancel(uid)

    def cdi_devices(self, pod: Pod, container: ContainerName) -> tuple[str, ...]:
        return self.manager().cdi_devices(pod, container)

    def devices(self, pod: Pod, container: ContainerName) -> dict[str, tuple[str, ...]]:
        return {} if self._manager is None else self._manager.devices(pod, container)

    def health(self, pod: Pod, container: ContainerName) -> tuple[ResourceStatus, ...]:
        return () if self._manager is None else self._manager.health(pod, container)

    def dynamic_resources(self, pod: Pod, container: ContainerName) -> tuple[DynamicResource, ...]:
        if self._manager is None or not self.serves(pod):
            return ()
        return self._manager.dynamic_resources(pod, container)

    def explain(self, pod: Pod, attempt: Attempt) -> tuple[ClaimExplanation, ...]:
        return () if self._manager is None else self._manager.explain(pod, attempt)

    @property
    def if_used(self) -> Manager_co | None:
        """The DRA manager; None if it was not created yet."""
        return self._manager

    def used(self) -> Manager_co | None:
        """Return the DRA manager. Create it first if pods can have ResourceClaims.

        Returns None if pods cannot have ResourceClaims and no earlier call created the manager.
        Raises StartError for the same reasons as ``manager``.
        """
        self.start()
        return self._manager

    @property
    def is_sources_ready(self) -> bool:
        return self._manager is None or self._manager.is_sources_ready

    def sources_ready(self) -> None:
        if self._manager is not None:
            self._manager.sources_ready()

    def pods(self) -> frozenset[str]:
        return frozenset() if self._manager is None else self._manager.pods()

    @property
    def version(self) -> int:
        return 0 if self._manager is None else self._manager.version

    def pod_version(self, pod: str) -> int:
        return 0 if self._manager is None else self._manager.pod_version(pod)
