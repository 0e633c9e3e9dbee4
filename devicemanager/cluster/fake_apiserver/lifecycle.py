"""The node lifecycle: the not-ready taint, nodes nobody hears of, pods of nodes that are gone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from devicemanager.cluster.fake_apiserver.answers import Rejection
from devicemanager.cluster.fake_apiserver.kinds import KINDS, Target
from devicemanager.cluster.fake_apiserver.objects import NOT_READY, timestamp

if TYPE_CHECKING:
    from devicemanager.cluster.fake_apiserver.server import FakeApiServer

__all__ = ["Lifecycle"]

_STOPPED = "Kubelet stopped posting node status."
Object = dict[str, Any]


class Lifecycle:
    """Remembers when each lease was seen to change; used by one thread."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._renewed: dict[str, tuple[str, float]] = {}
        self.not_ready = 0
        """How often a node became NotReady because its lease was late."""

    def step(self, stub: FakeApiServer) -> None:
        """Look at every node once."""
        now = time.monotonic()
        leases = {
            each["metadata"]["name"]: each["spec"]["renewTime"] for each in stub.all("leases")
        }
        names = set()
        for node in stub.all("nodes"):
            name = node["metadata"]["name"]
            names.add(name)
            renewed = leases.get(name, "")
            if self._renewed.get(name, ("", 0.0))[0] != renewed or name not in self._renewed:
                self._renewed[name] = renewed, now
            if now - self._renewed[name][1] > self._grace:
                self._lost(stub, node)
            else:
                _taint(stub, node, not _is_ready(node))
        for name in set(self._renewed) - names:
            del self._renewed[name]
        _collect(stub, names)

    def _lost(self, stub: FakeApiServer, node: Object) -> None:
        if not _is_ready(node):
            return
        self.not_ready += 1

        def unknown(value: Object) -> Object:
            for condition in value["status"]["conditions"]:
                condition |= {
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "message": _STOPPED,
                    "lastTransitionTime": timestamp(),
                }
            return value

        _change(stub, node, unknown, "status")


def _is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _taint(stub: FakeApiServer, node: Object, wanted: bool) -> None:
    there = any(each["key"] == NOT_READY["key"] for each in node["spec"].get("taints") or ())
    if there is wanted:
        return

    def tainted(value: Object) -> Object:
        others = [e for e in value["spec"].get("taints") or () if e["key"] != NOT_READY["key"]]
        value["spec"]["taints"] = [*others, dict(NOT_READY)] if wanted else others
        return value

    _change(stub, node, tainted)


def _change(stub: FakeApiServer, node: Object, change: Any, below: str = "") -> None:
    try:
        stub.objects.change(Target(KINDS["nodes"], "", node["metadata"]["name"], below), change)
    except Rejection:
        return  # gone meanwhile


def _collect(stub: FakeApiServer, names: set[str]) -> None:
    """Pod GC: pods that are bound to nodes that are no more."""
    for pod in stub.all("pods"):
        node = pod["spec"].get("nodeName")
        if node and node not in names and stub.get("nodes", node) is None:
            metadata = pod["metadata"]
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
            target = Target(KINDS["pods"], metadata["namespace"], metadata["name"])
            try:
                stub.objects.delete(target, options)
            except Rejection:
                continue
