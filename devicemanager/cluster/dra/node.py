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
    """DRA of one node with simulated drivers. Thread-safe; methods only queue work."""

    __slots__ = ("_claims", "_kubelet", "_node", "_slices")

    def __init__(self, node: NodeContext, kubelet: DraKubelet, uid: Callable[[], str]) -> None:
        self._node = node
        self._kubelet = kubelet
        self._claims = NodeClaims(node)
        self._slices = NodeSlices(node, kubelet.drivers, uid) if node.options.drivers else None
        kubelet.use_claims(self._claims)

    @classmethod
    def of(cls, node: NodeContext, uid: Callable[[], str]) -> Self | None:
        """Return the DRA of a node; None for a kubelet that has real drivers.

        ``uid`` returns the UID of the Node object.
        """
        if not hasattr(node.kubelet, "use_claims"):
            return None
        return cls(node, cast(DraKubelet, node.kubelet), uid)

    def joined(self, is_new: bool) -> None:
        """Publish the slices of a node that has joined. ``is_new``: False if its Node already
        existed."""
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
        """Handle an event of the kubelet.

        After a restart, wipe the slices. After claims were prepared or the health of a device has
        changed, write the status of the pod's devices, if the option ``device_status`` is set.
        """
        if event.kind is EventKind.STARTED and self._slices is not None:
            self._slices.restarted()
        if event.kind in _WITH_DEVICES and event.pod and self._node.options.device_status:
            work = partial(self._write_devices, event.pod)
            self._node.work_queue.put(Priority.EVENT, f"claims/{self._node.name}", work)

    def _write_devices(self, uid: str) -> None:
        try:
            claims = self._kubelet.held_claims(uid)
        except RequestError:
            return  # the kubelet is restarting
        drivers = self._kubelet.drivers
        unhealthy = {each: drivers.state(each).unhealthy for each in drivers.devices}
        self._claims.write_devices(claims, unhealthy)
