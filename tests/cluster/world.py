"""A cluster in memory: the stub's objects without sockets, threads and real time.

Requests go straight to the stub's rules; what changes is told to the nodes at once. Work waits
in the lane until ``World.settle``, so that a test sees every step.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from devicemanager.cluster.client.errors import ClientClosing, api_error
from devicemanager.cluster.client.protocol import JsonObject, Priority
from devicemanager.cluster.facts import Facts
from devicemanager.cluster.fake_apiserver.answers import Rejection
from devicemanager.cluster.fake_apiserver.faults import Faults
from devicemanager.cluster.fake_apiserver.handling import Handling
from devicemanager.cluster.fake_apiserver.objects import Objects
from devicemanager.cluster.fake_apiserver.rights import Rights
from devicemanager.cluster.fake_apiserver.store import Store
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.nodecontext import Shared
from devicemanager.cluster.nodes.node import ClusterNode
from devicemanager.cluster.options import NodeOptions
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.kubelet.settings import Settings

GPU = "vendor.com/gpu"
_CONTENT = {
    None: "application/json",
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
}
_GROUPS = {"noderesourcetopologies": "/apis/topology.node.k8s.io/v1alpha2"}
_PODS = "/api/v1/namespaces/default/pods"


class FakeLane:
    """Keeps work until it is run, by one thread."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Priority, str, Callable[[], None]]] = deque()

    def put(self, priority: Priority, key: str, work: Callable[[], None]) -> None:
        self.waiting.append((priority, key, work))

    def run(self) -> int:
        """Everything there is to do; how many works that were."""
        done = 0
        while self.waiting:
            done += 1
            assert done < 10_000, "this never comes to rest"
            _, _, work = self.waiting.popleft()
            work()
        return done


class FakeHeartbeats:
    """Notes who has a lease."""

    def __init__(self) -> None:
        self.uids: dict[str, str] = {}
        self.silent: set[str] = set()

    def add(self, node: str, uid: str) -> None:
        self.uids[node] = uid

    def remove(self, node: str) -> None:
        self.uids.pop(node, None)

    def silence(self, node: str, silent: bool) -> None:
        (self.silent.add if silent else self.silent.discard)(node)


class World:
    """The API server, its nodes, and what was asked of it."""

    def __init__(self, *, keeps_health: bool = True) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.lane = FakeLane()
        self.heartbeat = FakeHeartbeats()
        self.warnings: list[str] = []
        self.left: list[str] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.nodes: dict[str, ClusterNode] = {}
        self.shared = Shared()
        self._store = Store()
        objects = Objects(self._store, keeps_resource_health=keeps_health)
        self.rights = Rights()
        self._handling = Handling(objects, Faults(), self.rights, None)
        self._told = 0
        self.is_closed = False

    # -- as the client ---------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patch: Any = None,
        user: str | None = None,
    ) -> JsonObject:
        if self.is_closed:
            raise ClientClosing
        self.asked.append((method, path, body))
        return self.ask(method, path, body, patch=patch)

    def ask(self, method: str, path: str, body: Any = None, *, patch: Any = None) -> JsonObject:
        """As somebody else."""
        headers = {"Content-Type": _CONTENT[patch]}
        text = b"" if body is None else json.dumps(body).encode()
        try:
            asked = self._handling.read(method, path, headers, text)
            self._handling.authorize(asked)
            _, answer = self._handling.answer(asked)
        except Rejection as rejection:
            raise api_error(
                rejection.code, rejection.reason, rejection.message, method, path
            ) from None
        found: JsonObject = json.loads(answer)
        return found

    # -- nodes -----------------------------------------------------------------------

    def join(
        self,
        name: str = "n",
        kubelet: NodeKubelet | None = None,
        *,
        facts: Facts | None = None,
        gpus: int | str = 4,
        settings: Settings | None = None,
        **options: Any,
    ) -> ClusterNode:
        """A node that has joined and knows its pods."""
        node = ClusterNode(
            name,
            kubelet or InMemoryKubelet(settings, {GPU: gpus}, clock=self.clock),
            api=self,
            lane=self.lane,
            heartbeat=self.heartbeat,
            clock=self.clock,
            options=NodeOptions(**options),
            facts=facts,
            shared=self.shared,
            warn=self.warnings.append,
            left=self.left.append,
        )
        node.join()
        self.nodes[name] = node
        self.tell()
        node.pods.listed([each for each in self.all("pods") if _on(each) == name])
        self.settle()
        return node

    def settle(self) -> None:
        """Until nothing is left to do now."""
        while self.tell() or self.lane.run():
            pass

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in steps, and do what comes."""
        while seconds > 0:
            step = min(seconds, 1.0)
            self.clock.advance(step)
            self.settle()
            seconds -= step

    def tell(self) -> int:
        """Tell the nodes what has changed; how much it was."""
        changes = list(self._store.after(self._told, 0.0, lambda: True))
        for change in changes:
            self._told = change.version
            self._tell_one(change)
        return len(changes)

    def _tell_one(self, change: Any) -> None:
        stored = change.after or change.before
        value = json.loads(stored.text)
        kind = "DELETED" if change.after is None else "MODIFIED"
        if change.before is None:
            kind = "ADDED"
        if change.kind.name == "Pod":
            before = change.before is not None and _on(change.before.value)
            node = self.nodes.get(_on(value))
            if node is not None:
                node.pods.seen(kind if before else "ADDED", value)
        elif change.kind.name == "Node" and value["metadata"]["name"] in self.nodes:
            self.nodes[value["metadata"]["name"]].seen(kind, value)

    # -- as a user -------------------------------------------------------------------

    def run(
        self,
        name: str,
        node: str = "n",
        *,
        gpus: int = 1,
        annotations: Mapping[str, str] | None = None,
        owner: str = "",
        settle: bool = True,
        **spec: Any,
    ) -> str:
        """A pod that is bound to a node; its UID."""
        limits = {GPU: str(gpus)} if gpus else {}
        container = {"name": "main", "image": "i:1", "resources": {"limits": limits}}
        metadata: JsonObject = {"name": name, "annotations": dict(annotations or {})}
        if owner:
            metadata["ownerReferences"] = [{"kind": owner, "name": "o", "controller": True}]
        made = {
            "metadata": metadata,
            "spec": {"containers": [container], "nodeName": node, **spec},
        }
        uid: str = self.ask("POST", _PODS, made)["metadata"]["uid"]
        if settle:
            self.settle()
        return uid

    def pod(self, name: str) -> JsonObject:
        return self.ask("GET", f"{_PODS}/{name}")

    def status(self, name: str) -> JsonObject:
        found: JsonObject = self.pod(name)["status"]
        return found

    def delete(self, name: str, grace: int | None = None) -> None:
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        self.ask("DELETE", f"{_PODS}/{name}", body)
        self.settle()

    def node(self, name: str = "n") -> JsonObject:
        return self.ask("GET", f"/api/v1/nodes/{name}")

    def condition(self, kind: str = "Ready", name: str = "n") -> JsonObject:
        found = {each["type"]: each for each in self.node(name)["status"]["conditions"]}
        condition: JsonObject = found[kind]
        return condition

    def annotate(self, text: str | None, name: str = "n") -> None:
        """Faults of a node, as ``kubectl annotate`` says them."""
        body = {"metadata": {"annotations": {"devicemanager.io/faults": text}}}
        self.ask("PATCH", f"/api/v1/nodes/{name}", body, patch="merge")
        self.settle()

    def events(self, reason: str = "") -> list[JsonObject]:
        found = self.all("events")
        return [each for each in found if not reason or each["reason"] == reason]

    def all(self, plural: str) -> list[JsonObject]:
        group = _GROUPS.get(plural, "/api/v1")
        found: list[JsonObject] = self.ask("GET", f"{group}/{plural}")["items"]
        return found

    def patches(self, name: str) -> int:
        """How often a pod's status was told."""
        path = f"{_PODS}/{name}/status"
        return sum(method == "PATCH" and at == path for method, at, _ in self.asked)


def _on(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("nodeName", ""))
