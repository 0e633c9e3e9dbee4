"""The source of a node's ResourceClaims: an API server, or the memory of this Python process.

The setting ``kubeconfig`` selects the API server. Without it, tests and other callers add the
claims to the ``ResourceClaims`` object of the node: these are the claims in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicemanager.events.stream import EventStream
    from devicemanager.kubelet.dra.allocation import ClaimAllocation
    from devicemanager.kubelet.dra.claim_source import ClaimSource, ResourceClaims

__all__ = ["LazyResourceClaims"]


class LazyResourceClaims:
    """The ResourceClaims of a node, from an API server or in memory. Thread-safe.

    Claims in memory survive restarts of the kubelet.
    """

    def __init__(self, kubeconfig: Path | None, node: str, events: EventStream) -> None:
        """``kubeconfig`` selects an API server; None selects claims in memory.

        With claims in memory, each change of a claim or other DRA object is published to
        ``events``. With an API server, each change of a ResourceSlice of ``node`` is published.
        """
        self._kubeconfig = kubeconfig
        self._node = node
        self._events = events
        self._lock = threading.Lock()
        self._in_memory: ResourceClaims | None = None
        self._allocation: ClaimAllocation | None = None

    @property
    def is_used(self) -> bool:
        """True if pods can have ResourceClaims: an API server is configured, at least one claim was
        added in memory, or the kubelet allocates claims."""
        return self._kubeconfig is not None or bool(self._in_memory) or self.are_allocated

    @property
    def in_memory(self) -> ResourceClaims:
        """Object that has the claims in memory, created by the first access."""
        # Imported here, so that a kubelet without claims does not load it.
        from devicemanager.kubelet.dra.claim_source import ResourceClaims

        with self._lock:
            if self._in_memory is None:
                self._in_memory = ResourceClaims(self._changed)
            return self._in_memory

    def _changed(self, text: str) -> None:
        from devicemanager.events.stream import EventKind

        self._events.publish(EventKind.DRA_OBJECTS_CHANGED, text)

    @property
    def are_allocated(self) -> bool:
        """True if the kubelet allocates the claims of a pod when it admits the pod."""
        return self._in_memory is not None and self._in_memory.are_allocated

    def allocation(
        self, node: str, allocatable: Callable[[], Mapping[str, int]]
    ) -> ClaimAllocation:
        """Return the object that allocates the claims of pods. The first call creates it."""
        from devicemanager.kubelet.dra.allocation import ClaimAllocation

        # Read before the lock is taken: ``in_memory`` takes the same lock, which is not reentrant.
        claims = self.in_memory
        with self._lock:
            if self._allocation is None:
                self._allocation = ClaimAllocation(claims, node, self._events, allocatable)
            return self._allocation

    def source(self) -> ClaimSource:
        """Return the source of claims for one kubelet process. The process must close the source.

        Raises StartError for an invalid kubeconfig.
        """
        if self._kubeconfig is None:
            return self.in_memory
        from devicemanager.kubelet.dra.api_claims import ApiClaims

        return ApiClaims.open(self._kubeconfig, self._node, self._changed)

    def clear(self) -> None:
        """Delete all claims and other DRA objects in memory."""
        if self._in_memory is not None:
            self._in_memory.clear()
