"""A node without sockets that ``KubeletView`` can read."""

from __future__ import annotations

from devicemanager.core.dra.report import DraStatus
from devicemanager.core.errors import RequestError
from devicemanager.events.calls import CallLog
from devicemanager.observe.view import KubeletView
from tests.node import Node


class ViewedNode:
    """The part of a ``MockKubelet`` that ``KubeletView`` uses."""

    root = "/node"

    def __init__(self, node: Node) -> None:
        self.node = node
        self.settings, self.events = node.settings, node.events
        self.calls = CallLog(node.events, 100, 1 << 20)
        self.stopped = False
        self.dra = DraStatus()

    @property
    def manager(self):
        if self.stopped:
            raise RequestError("the kubelet is not running")
        return self.node.manager

    @property
    def pod_store(self):
        return self.node.pods

    def dra_status(self):
        if self.stopped:
            raise RequestError("the kubelet is not running")
        return self.dra

    def claim_devices(self, uid):
        return {"app": {"claim": ("pool/a",)}}


def view_of(node: Node) -> KubeletView:
    return KubeletView(ViewedNode(node))
