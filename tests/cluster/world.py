"""A cluster in memory: the fake API server without sockets, threads and real time.

Requests go straight to the request handler, and changes straight to the nodes. Work waits in the
work queue until ``World.settle``, so that a test can observe every step.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from devicemanager.apiserver import discovery
from devicemanager.apiserver.authorization import Permissions
from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.faults import Faults
from devicemanager.apiserver.handling import RequestHandler
from devicemanager.apiserver.registry import Registry
from devicemanager.apiserver.store import Store
from devicemanager.client.errors import ClientClosing, api_error
from devicemanager.client.protocol import JsonObject
from devicemanager.client.work_queue import Priority
from devicemanager.cluster.container_behaviour import ContainerBehaviour
from devicemanager.cluster.kubelet import NodeKubelet
from devicemanager.cluster.node_context import ServerFeatures
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
_RESOURCES = "/apis/resource.k8s.io/v1"
_GROUPS = {
    "noderesourcetopologies": "/apis/topology.node.k8s.io/v1alpha2",
    "resourceslices": _RESOURCES,
    "resourceclaims": _RESOURCES,
}
_PODS = "/api/v1/namespaces/default/pods"


class FakeWorkQueue:
    """Stores work until ``run``."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Priority, str, Callable[[], None]]] = deque()

    def put(self, priority: Priority, key: str, work: Callable[[], None]) -> None:
        self.waiting.append((priority, key, work))

    def run(self) -> int:
        """Run all work, including work that is added meanwhile; return how much it was."""
        done = 0
        while self.waiting:
            done += 1
            assert done < 10_000, "endless loop"
            _, _, work = self.waiting.popleft()
            work()
        return done


class FakeLeases:
    """Records which nodes have a Lease."""

    def __init__(self) -> None:
        self.uids: dict[str, str] = {}
        self.paused: set[str] = set()

    def add(self, node: str, uid: str) -> None:
        self.uids[node] = uid

    def remove(self, node: str) -> None:
        self.uids.pop(node, None)

    def pause(self, node: str, paused: bool) -> None:
        (self.paused.add if paused else self.paused.discard)(node)


class World:
    """An API server with nodes, and the requests that the nodes sent."""

    def __init__(self, *, stores_resource_health: bool = True) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.work_queue = FakeWorkQueue()
        self.leases = FakeLeases()
        self.warnings: list[str] = []
        self.left: list[str] = []
        self.requests: list[tuple[str, str, Any]] = []
        self.nodes: dict[str, ClusterNode] = {}
        self.features = ServerFeatures()
        self._store = Store()
        registry = Registry(self._store, stores_resource_health=stores_resource_health)
        registry.create_namespaces()
        self.permissions = Permissions()
        self.faults = Faults()
        self._handler = RequestHandler(registry, self.faults, self.permissions, None)
        self._delivered = 0
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
        self.requests.append((method, path, body))
        if query:
            path = f"{path}?{urlencode(query)}"
        return self.call(method, path, body, patch=patch)

    def call(self, method: str, path: str, body: Any = None, *, patch: Any = None) -> JsonObject:
        """Send a request that does not come from a node."""
        kinds = self._handler.registry.kinds
        if (found := discovery.document(path, kinds)) is not None:
            return found
        headers = {"Content-Type": _CONTENT[patch]}
        text = b"" if body is None else json.dumps(body).encode()
        try:
            request = self._handler.parse(method, path, headers, text)
            self._handler.authorize(request)
            _, response = self._handler.respond(request)
        except StatusError as error:
            raise api_error(error.code, error.reason, error.message, method, path) from None
        found: JsonObject = json.loads(response)
        return found

    # -- nodes -----------------------------------------------------------------------

    def join(
        self,
        name: str = "n",
        kubelet: NodeKubelet | None = None,
        *,
        behaviour: ContainerBehaviour | None = None,
        gpus: int | str = 4,
        settings: Settings | None = None,
        **options: Any,
    ) -> ClusterNode:
        """Add a node that knows its pods."""
        node = ClusterNode(
            name,
            kubelet
            or InMemoryKubelet(
                settings,
                {GPU: gpus},
                clock=self.clock,
                drivers={each.driver: each.devices for each in options.get("drivers", ())},
            ),
            api=self,
            work_queue=self.work_queue,
            leases=self.leases,
            clock=self.clock,
            options=NodeOptions(**options),
            behaviour=behaviour,
            features=self.features,
            warn=self.warnings.append,
            on_left=self.left.append,
        )
        node.join()
        self.nodes[name] = node
        self.deliver()
        node.on_pod_list([each for each in self.all("pods") if _node_of(each) == name])
        self.settle()
        return node

    def settle(self) -> None:
        """Deliver changes and run work until neither is left."""
        while self.deliver() or self.work_queue.run():
            pass

    def pass_time(self, seconds: float) -> None:
        """Advance the clock in steps of a second, and settle after each."""
        while seconds > 0:
            step = min(seconds, 1.0)
            self.clock.advance(step)
            self.settle()
            seconds -= step

    def deliver(self) -> int:
        """Deliver all changes to the nodes; return how many there were."""
        changes = list(self._store.after(self._delivered, 0.0, lambda: True))
        for change in changes:
            self._delivered = change.version
            self._deliver_one(change)
        return len(changes)

    def _deliver_one(self, change: Any) -> None:
        stored = change.after or change.before
        value = json.loads(stored.text)
        kind = "DELETED" if change.after is None else "MODIFIED"
        if change.before is None:
            kind = "ADDED"
        if change.kind.name == "Pod":
            before = change.before is not None and _node_of(change.before.value)
            node = self.nodes.get(_node_of(value))
            if node is not None:
                node.on_pod_event(kind if before else "ADDED", value)
        elif change.kind.name == "Node" and value["metadata"]["name"] in self.nodes:
            self.nodes[value["metadata"]["name"]].on_node_event(kind, value)

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
        """Create a pod that is bound to a node; return its UID."""
        limits = {GPU: str(gpus)} if gpus else {}
        container = {"name": "main", "image": "i:1", "resources": {"limits": limits}}
        metadata: JsonObject = {"name": name, "annotations": dict(annotations or {})}
        if owner:
            metadata["ownerReferences"] = [{"kind": owner, "name": "o", "controller": True}]
        made = {
            "metadata": metadata,
            "spec": {"containers": [container], "nodeName": node, **spec},
        }
        uid: str = self.call("POST", _PODS, made)["metadata"]["uid"]
        if settle:
            self.settle()
        return uid

    def pod(self, name: str) -> JsonObject:
        return self.call("GET", f"{_PODS}/{name}")

    def status(self, name: str) -> JsonObject:
        found: JsonObject = self.pod(name)["status"]
        return found

    def delete(self, name: str, grace: int | None = None) -> None:
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        self.call("DELETE", f"{_PODS}/{name}", body)
        self.settle()

    def node(self, name: str = "n") -> JsonObject:
        return self.call("GET", f"/api/v1/nodes/{name}")

    def condition(self, kind: str = "Ready", name: str = "n") -> JsonObject:
        found = {each["type"]: each for each in self.node(name)["status"]["conditions"]}
        condition: JsonObject = found[kind]
        return condition

    def annotate(self, text: str | None, name: str = "n") -> None:
        """Set the faults annotation of a node, as ``kubectl annotate`` does."""
        body = {"metadata": {"annotations": {"devicemanager.io/faults": text}}}
        self.call("PATCH", f"/api/v1/nodes/{name}", body, patch="merge")
        self.settle()

    def events(self, reason: str = "") -> list[JsonObject]:
        found = self.all("events")
        return [each for each in found if not reason or each["reason"] == reason]

    def all(self, plural: str) -> list[JsonObject]:
        group = _GROUPS.get(plural, "/api/v1")
        found: list[JsonObject] = self.call("GET", f"{group}/{plural}")["items"]
        return found

    def patches(self, name: str) -> int:
        """Return how often a pod's status was written."""
        path = f"{_PODS}/{name}/status"
        return sum(method == "PATCH" and at == path for method, at, _ in self.requests)


def _node_of(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("nodeName", ""))
