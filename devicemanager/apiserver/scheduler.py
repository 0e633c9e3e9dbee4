"""A minimal scheduler, which considers resources, node selectors and taints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress

from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.registry import is_terminal, timestamp
from devicemanager.apiserver.server import FakeApiServer
from devicemanager.apiserver.store import Object
from devicemanager.core.quantity import parse_quantity

__all__ = ["schedule"]


def schedule(server: FakeApiServer) -> None:
    """Bind every pending pod to a node on which it fits.

    Of several such nodes, choose the one with the smallest sum of pods and devices in use.
    """
    pods = server.all("pods")
    pending = [pod for pod in pods if not pod["spec"].get("nodeName") and _is_pending(pod)]
    if not pending:
        return
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        if not is_terminal(pod):
            used[pod["spec"].get("nodeName", "")].update(_requests(pod))
    nodes = server.all("nodes")
    for pod in pending:
        fitting = [node for node in nodes if _fits(pod, node, used[node["metadata"]["name"]])]
        if not fitting:
            _set_unschedulable(server, pod, len(nodes))
            continue
        best = min(fitting, key=lambda node: used[node["metadata"]["name"]].total())
        name = best["metadata"]["name"]
        # Counted immediately, because the next pod of this loop must not get the same devices.
        used[name].update(_requests(pod))
        with suppress(StatusError):  # the pod was deleted meanwhile
            server.bind(pod["metadata"]["name"], name, pod["metadata"]["namespace"])


def _is_pending(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") == "Pending"


def _requests(pod: Object) -> Counter[str]:
    """Return the pod's requests for extended resources, and 1 for ``pods``.

    CPU and memory are ignored, because virtual nodes always have enough.
    """
    found: Counter[str] = Counter({"pods": 1})
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        found.update({name: _number(text) for name, text in wanted.items() if "/" in name})
    return found


def _number(text: object) -> int:
    return parse_quantity(str(text)) // 10**9  # quantities are in nano-units


def _fits(pod: Object, node: Object, used: Mapping[str, int]) -> bool:
    wanted = pod["spec"].get("nodeSelector") or {}
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    if node["spec"].get("unschedulable") or not _tolerates(pod, node["spec"].get("taints") or ()):
        return False
    allocatable = node["status"].get("allocatable") or {}
    return all(
        used.get(name, 0) + count <= _number(allocatable.get(name, 0))
        for name, count in _requests(pod).items()
        if count
    )


def _tolerates(pod: Object, taints: Iterable[Mapping[str, str]]) -> bool:
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


def _set_unschedulable(server: FakeApiServer, pod: Object, nodes: int) -> None:
    if any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ())):
        return
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": f"0/{nodes} nodes are available",
        "lastTransitionTime": timestamp(),
    }

    def changed(value: Object) -> Object:
        value["status"]["conditions"] = [condition]
        return value

    metadata = pod["metadata"]
    with suppress(StatusError):  # the pod was deleted meanwhile
        server.change(
            "pods", metadata["name"], changed, metadata["namespace"], subresource="status"
        )
