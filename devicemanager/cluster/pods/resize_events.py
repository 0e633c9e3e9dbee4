"""Kubernetes events about resizes of pods (``pkg/kubelet/events/resize.go``, v1.37)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from devicemanager.client.recorder import EventType
from devicemanager.cluster.node_context import NodeContext
from devicemanager.cluster.pods.pod_manager import ACTIVE, PodState
from devicemanager.cluster.pods.sync_loop import SyncLoop
from devicemanager.core.ids import PodUid
from devicemanager.events.stream import EventKind

__all__ = ["ResizeEvents", "resize_summary"]

_DONE: Final = {
    EventKind.RESIZE_STARTED: ("ResizeStarted", "Pod resize started"),
    EventKind.RESIZE_COMPLETED: ("ResizeCompleted", "Pod resize completed"),
}


def resize_summary(spec: Mapping[str, Any]) -> str:
    """Return the resources of a pod's containers and init containers as JSON text. The kubelet's
    events about resizes have the same format."""
    found = {}
    for field in ("initContainers", "containers"):
        if spec.get(field):
            found[field] = [
                {"name": each["name"], "resources": each.get("resources") or {}}
                for each in spec[field]
            ]
    # Go's ``json.Marshal`` writes no spaces.
    return json.dumps(found, separators=(",", ":"))


class ResizeEvents:
    """Writer of the events about resizes of one node's pods.

    It also completes a resize after the ``resize_delay`` of the pod.
    """

    __slots__ = ("_loop", "_node")

    def __init__(self, node: NodeContext, loop: SyncLoop) -> None:
        self._node = node
        self._loop = loop

    def on_event(self, pod: PodState, kind: EventKind) -> None:
        """Write the Kubernetes event about a resize of a pod.

        Writes no event if real kubelets of the node's version write none. ``kind`` is
        RESIZE_STARTED, RESIZE_PENDING or RESIZE_COMPLETED. For the start of a resize with
        ``resize_delay``, also sets the timer that completes the resize. Must be called in the sync
        loop.
        """
        # Before the check of the version: a version without these events also completes resizes.
        delay = pod.behaviour.resize_delay
        if kind is EventKind.RESIZE_STARTED and delay > 0:
            self._loop.do_after(delay, partial(self._complete, pod))
        if not self._node.kubelet.settings.behaviour.resize_events:
            return
        if kind in _DONE:
            reason, text = _DONE[kind]
            self._record(pod, "Normal", reason, text)
            return
        # The pod can have been removed, or the resize started, while this call was queued.
        record = self._node.kubelet.pod_store.get(PodUid(pod.uid))
        resize = None if record is None else record.resize
        if resize is not None and (pending := resize.pending) is not None:
            text = f"Pod resize {pending.reason}"
            self._record(pod, "Warning", f"Resize{pending.reason}", text, pending.message)

    def _complete(self, pod: PodState) -> None:
        # The pod can have ended during the delay.
        if pod.stage in ACTIVE:
            self._node.kubelet.complete_resize(pod.uid)

    def _record(
        self, pod: PodState, kind: EventType, reason: str, text: str, error: str = ""
    ) -> None:
        summary = json.loads(pod.resize_summary or "{}")
        summary |= {"generation": pod.generation} | ({"error": error} if error else {})
        text = f"{text}: {json.dumps(summary, separators=(',', ':'))}"
        self._node.recorder.record(pod.reference, kind, reason, text)
