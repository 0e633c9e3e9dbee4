"""A scheduler: counts what nodes have and what pods ask for, and looks at taints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from devicemanager.cluster.fake_apiserver.answers import Rejection
from devicemanager.cluster.fake_apiserver.kinds import KINDS, Target
from devicemanager.cluster.fake_apiserver.objects import has_ended, timestamp
from devicemanager.core.quantity import parse_quantity

if TYPE_CHECKING:
    from devicemanager.cluster.fake_apiserver.server import FakeApiServer

__all__ = ["step"]

Pod = Mapping[str, Any]


def step(stub: FakeApiServer) -> None:
    """Bind every pod that fits somewhere, to the node with the most room."""
    pods = stub.all("pods")
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName") and _is_wanted(pod)]
    if not waiting:
        return
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        if not has_ended(pod):
            used[pod["spec"].get("nodeName", "")].update(_asked(pod))
    nodes = stub.all("nodes")
    for pod in waiting:
        fitting = [node for node in nodes if _fits(pod, node, used[node["metadata"]["name"]])]
        if not fitting:
            _say_unschedulable(stub, pod, len(nodes))
            continue
        best = min(fitting, key=lambda node: used[node["metadata"]["name"]].total())
        name = best["metadata"]["name"]
        used[name].update(_asked(pod))
        _bind(stub, pod, name)


def _is_wanted(pod: Pod) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") == "Pending"


def _asked(pod: Pod) -> Counter[str]:
    """Devices and other whole things; milli-CPU and bytes do not fill these nodes."""
    found: Counter[str] = Counter({"pods": 1})
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        found.update({name: _number(text) for name, text in asked.items() if "/" in name})
    return found


def _number(text: object) -> int:
    return parse_quantity(str(text)) // 10**9  # of nano-units


def _fits(pod: Pod, node: Mapping[str, Any], used: Mapping[str, int]) -> bool:
    chosen = pod["spec"].get("nodeSelector") or {}
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in chosen.items()):
        return False
    if node["spec"].get("unschedulable") or not _tolerates(pod, node["spec"].get("taints") or ()):
        return False
    has = node["status"].get("allocatable") or {}
    return all(
        used.get(name, 0) + count <= _number(has.get(name, 0))
        for name, count in _asked(pod).items()
        if count
    )


def _tolerates(pod: Pod, taints: Iterable[Mapping[str, str]]) -> bool:
    tolerations = pod["spec"].get("tolerations") or ()
    return all(
        any(_matches(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint["effect"] in ("NoSchedule", "NoExecute")
    )


def _matches(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    same = exists or toleration.get("value", "") == taint.get("value", "")
    return toleration["key"] == taint["key"] and same


def _bind(stub: FakeApiServer, pod: Pod, node: str) -> None:
    metadata = pod["metadata"]
    target = Target(KINDS["pods"], metadata["namespace"], metadata["name"], "binding")
    try:
        stub.objects.bind(target, {"target": {"kind": "Node", "name": node}})
    except Rejection:
        return  # deleted meanwhile


def _say_unschedulable(stub: FakeApiServer, pod: Pod, nodes: int) -> None:
    if any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ())):
        return
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": f"0/{nodes} nodes are available",
        "lastTransitionTime": timestamp(),
    }
    metadata = pod["metadata"]
    target = Target(KINDS["pods"], metadata["namespace"], metadata["name"], "status")

    def said(value: dict[str, Any]) -> dict[str, Any]:
        value["status"]["conditions"] = [condition]
        return value

    try:
        stub.objects.change(target, said)
    except Rejection:
        return
