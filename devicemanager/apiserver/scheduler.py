"""A minimal scheduler: it considers resources, node selectors, taints and resource claims."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.registry import is_terminal, timestamp
from devicemanager.apiserver.server import FakeApiServer
from devicemanager.apiserver.store import Object
from devicemanager.core.errors import DeviceManagerError
from devicemanager.core.quantity import parse_quantity

if TYPE_CHECKING:
    from devicemanager.apiserver.pod_claims import Plan, PodClaims

__all__ = ["schedule", "tolerates"]

_NAMES: Final = (None, "", "default-scheduler")
"""Values of ``schedulerName`` of the pods to bind. Other schedulers bind the other pods."""


def schedule(server: FakeApiServer) -> None:
    """Bind each pending pod of the default scheduler to a node where it fits.

    If several nodes fit, choose the node with the smallest sum of pods and devices in use. Before a
    pod is bound, its claims are allocated. If the pod requests an extended resource that DRA serves
    on the node, a claim for the resource is created, too.
    """
    pods = server.all("pods")
    pending = [pod for pod in pods if not pod["spec"].get("nodeName") and _is_pending(pod)]
    pending = [pod for pod in pending if pod["spec"].get("schedulerName") in _NAMES]
    if not pending:
        return
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        if not is_terminal(pod):
            used[pod["spec"].get("nodeName", "")].update(_requests(pod))
    nodes = server.all("nodes")
    devices = _Devices(server)
    for pod in pending:
        try:
            requests = _requests(pod)
            name = _bind(server, pod, requests, nodes, used, devices)
        except StatusError:  # the pod was deleted meanwhile, or its claims were changed
            continue
        if name is not None:
            # Count the pod at once: the next pod of this loop must not get the same devices.
            used[name].update(requests)


def _bind(
    server: FakeApiServer,
    pod: Object,
    requests: Mapping[str, int],
    nodes: Iterable[Object],
    used: Mapping[str, Counter[str]],
    devices: _Devices,
) -> str | None:
    """Bind a pod to the best node and return the node's name; None if the pod must wait.

    Raises StatusError if the server rejects a request.
    """
    metadata = pod["metadata"]
    why = devices.why_not(pod)
    if why is not None:
        _set_unschedulable(server, pod, why)
        return None
    every = list(nodes)
    fitting = [
        node
        for node in every
        if _fits(pod, requests, node, used[node["metadata"]["name"]], devices)
    ]
    reasons = list[str]()
    for node in sorted(fitting, key=lambda node: _load(used[node["metadata"]["name"]])):
        name = str(node["metadata"]["name"])
        try:
            plan = devices.plan(pod, node)
        except DeviceManagerError as error:
            reasons = [str(error)]
            break
        if isinstance(plan, str):
            reasons.append(plan)
            continue
        if plan is None or devices.commit(plan):
            server.bind(metadata["name"], name, metadata["namespace"])
        return name
    text = "".join(f"; {reason}" for reason in dict.fromkeys(reasons))
    _set_unschedulable(server, pod, f"0/{len(every)} nodes are available{text}")
    return None


class _Devices:
    """Devices for the claims of pods. The allocator is imported when the first pod needs it."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self._claims: PodClaims | None = None
        self._resources: Mapping[str, str] = {}
        classes = server.all("deviceclasses")
        if classes:
            from devicemanager.claims.dra.extended import classes_by_resource

            self._resources = classes_by_resource(classes)

    def why_not(self, pod: Object) -> str | None:
        """Return the reason why the pod's claims cannot be used on any node now; None if they
        can."""
        return self._all.why_not(pod) if pod["spec"].get("resourceClaims") else None

    def plan(self, pod: Object, node: Object) -> Plan | str | None:
        """Plan devices for a pod on a node. Return the reason if that is impossible; None if the
        pod needs none.

        Raises ClaimsError for an error that does not depend on the node.
        """
        if not pod["spec"].get("resourceClaims") and not self.served(pod, node):
            return None
        return self._all.plan(pod, node)

    def served(self, pod: Object, node: Object) -> Mapping[str, str]:
        """Return the extended resources of a pod that DRA serves on a node: names of DeviceClasses
        by resource."""
        if not self._resources:
            return {}
        from devicemanager.apiserver.pod_claims import allocatable
        from devicemanager.claims.dra.extended import served_by_dra

        return served_by_dra(pod, allocatable(node), self._resources)

    def commit(self, plan: Plan) -> bool:
        """Write a plan. Return True if the pod can be bound now. Raises StatusError if the server
        rejects the plan."""
        self._all.commit(plan)
        return self._all.is_ready(plan)

    @property
    def _all(self) -> PodClaims:
        if self._claims is None:
            from devicemanager.apiserver.pod_claims import PodClaims

            self._claims = PodClaims(self._server, self._resources)
        return self._claims


def _is_pending(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") == "Pending"


def _requests(pod: Object) -> Counter[str]:
    """Return the pod's requests, and 1 for ``pods``, in nano-units."""
    found: Counter[str] = Counter({"pods": 10**9})
    claim = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    by_dra = {each["resourceName"] for each in claim.get("requestMappings") or ()}
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, text in wanted.items():
            if name not in by_dra:
                found[name] += parse_quantity(str(text))
    return found


def _load(used: Mapping[str, int]) -> int:
    """Return the number of pods and devices in use, in nano-units.

    CPU and memory are left out, because their amounts cannot be added to a number of devices.
    """
    return sum(count for name, count in used.items() if _is_number(name))


def _is_number(name: str) -> bool:
    return name == "pods" or "/" in name


def _fits(
    pod: Object,
    requests: Mapping[str, int],
    node: Object,
    used: Mapping[str, int],
    devices: _Devices,
) -> bool:
    wanted = pod["spec"].get("nodeSelector") or {}
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    if not _has_affinity(pod, node):
        return False
    if node["spec"].get("unschedulable") or not tolerates(pod, node["spec"].get("taints") or ()):
        return False
    allocatable = node["status"].get("allocatable") or {}
    by_dra = devices.served(pod, node)
    return all(
        used.get(name, 0) + count <= parse_quantity(str(allocatable.get(name, 0)))
        for name, count in requests.items()
        # Nodes that a test creates can leave CPU and memory out: then they have enough.
        if count and name not in by_dra and (name in allocatable or _is_number(name))
    )


def _has_affinity(pod: Object, node: Object) -> bool:
    """True if a node matches the required node affinity of a pod."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    # Imported here, because few pods have an affinity.
    from devicemanager.claims.dra.nodes import InvalidSelector, Node, selects

    metadata = node["metadata"]
    try:
        return selects(required, Node(metadata["name"], metadata.get("labels") or {}))
    except InvalidSelector:
        return False


def tolerates(pod: Mapping[str, Any], taints: Iterable[Mapping[str, str]]) -> bool:
    """True if a pod tolerates all ``taints`` with the effect NoSchedule or NoExecute."""
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


def _set_unschedulable(server: FakeApiServer, pod: Object, message: str) -> None:
    conditions = pod["status"].get("conditions") or ()
    if any(each.get("message") == message for each in conditions):
        return
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": timestamp(),
    }

    def changed(value: Object) -> Object:
        others = [
            each
            for each in value["status"].get("conditions") or ()
            if each["type"] != condition["type"]
        ]
        value["status"]["conditions"] = [*others, condition]
        return value

    metadata = pod["metadata"]
    with suppress(StatusError):  # the pod was deleted meanwhile
        server.change(
            "pods", metadata["name"], changed, metadata["namespace"], subresource="status"
        )
