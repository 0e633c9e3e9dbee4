"""DRA of one node: connects its kubelet to the ResourceSlices and ResourceClaims of the server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self, cast

from devicemanager.client.work_queue import Priority
from devicemanager.cluster.dra.claims import NodeClaims
from devicemanager.cluster.dra.slices import NodeSlices
from devicemanager.cluster.kubelet import DraKubelet
from devicemanager.cluster.node_context import NodeContext
from devicemanager.core.errors import RequestError
from devicemanager.events.stream import Event, EventKind

__all__ = ["NodeDra"]

_WITH_DEVICES = (EventKind.CLAIMS_PREPARED, EventKind.DEVICE_HEALTH)


class NodeDra:
    """DRA of one in-memory node: publishes ResourceSlices, and gets claims for the kubelet.

    Thread-safe. Methods only queue work.
    """

    __slots__ = ("_claims", "_kubelet", "_node", "_queued", "_slices")

    def __init__(self, node: NodeContext, kubelet: DraKubelet, uid: Callable[[], str]) -> None:
        self._node = node
        self._kubelet = kubelet
        self._claims = NodeClaims(node)
        self._slices = NodeSlices(node, kubelet.drivers, uid) if node.options.drivers else None
        self._queued: set[str] = set()
        """UIDs of the pods for which a write of ``status.devices`` is queued. It needs no lock: two
        events at the same time can at most queue two writes."""
        kubelet.use_claims(self._claims)

    @classmethod
    def of(cls, node: NodeContext, uid: Callable[[], str]) -> Self | None:
        """Set up DRA for an in-memory node. Return None for a node with real drivers.

        ``uid`` returns the UID of the Node object.
        """
        # The real drivers of a ``MockKubelet`` publish their ResourceSlices themselves.
        if not hasattr(node.kubelet, "use_claims"):
            return None
        return cls(node, cast(DraKubelet, node.kubelet), uid)

    def joined(self, is_new: bool) -> None:
        """Publish the slices of a node that has joined.

        ``is_new`` is False if an earlier process ran the node. The slices of the earlier process
        are then deleted first.
        """
        if self._slices is not None:
            self._slices.joined(is_new=is_new)

    def close(self) -> None:
        """Stop writing slices."""
        if self._slices is not None:
            self._slices.close()

    def refresh(self) -> None:
        """Publish the slices again if devices have changed."""
        if self._slices is not None:
            self._slices.refresh()

    def on_kubelet_event(self, event: Event) -> None:
        """Queue the work that an event of the kubelet requires.

        After a restart of the kubelet, this is the deletion of the node's ResourceSlices. With the
        option ``device_status``, a pod's claims get a new ``status.devices`` when they were
        prepared, or when the health of a device has changed.
        """
        if event.kind is EventKind.STARTED and self._slices is not None:
            self._slices.restarted()
        if event.kind in _WITH_DEVICES and event.pod and self._node.options.device_status:
            # Otherwise, the work of a silent node would grow with each event.
            if event.pod in self._queued:
                return
            self._queued.add(event.pod)
            work = partial(self._write_devices, event.pod)
            self._node.writes.put(Priority.EVENT, f"claims/{self._node.name}", work)

    def _write_devices(self, uid: str) -> None:
        # Removed before the claims are read, so that a later event queues another write.
        self._queued.discard(uid)
        try:
            claims = self._kubelet.held_claims(uid)
        except RequestError:
            return  # the kubelet is restarting
        drivers = self._kubelet.drivers
        unhealthy = {each: drivers.state(each).unhealthy for each in drivers.devices}
        self._claims.write_devices(claims, unhealthy)
