"""The kubelet's queue of pods whose devices changed health."""

from __future__ import annotations

import queue

from devicemanager.core.ids import PodUid

__all__ = ["HealthUpdates"]


class HealthUpdates(queue.SimpleQueue[PodUid]):
    """UIDs, oldest first; ``get_nowait`` raises ``queue.Empty``. A tenth of a ``queue.Queue`` in
    memory: every light node has one."""

    __slots__ = ("maxsize",)

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize

    def report(self, pod: PodUid) -> bool:
        """Put a pod in, unless ``maxsize`` are waiting; reports of the same moment may come to a
        few more. Returns whether it is in."""
        if self.qsize() >= self.maxsize:
            return False
        self.put(pod)
        return True
