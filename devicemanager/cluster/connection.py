"""What all nodes of one process share: two lanes to the API server, and one watch of each kind."""

from __future__ import annotations

import threading

from devicemanager.cluster.api import ApiClient, node_path
from devicemanager.cluster.credentials import Credentials
from devicemanager.cluster.errors import NotFound
from devicemanager.cluster.fanout import NodeFanout, PodFanout
from devicemanager.cluster.heartbeat import THREADS, HeartbeatLane
from devicemanager.cluster.lane import WorkLane
from devicemanager.cluster.telling import Rarely, Warn
from devicemanager.cluster.watch import Reflector, pods_on

__all__ = ["Connection"]

CONNECTIONS = 32
"""Requests at once, besides leases."""
_LEASE_TIMEOUT = 10.0


class Connection:
    """To one API server, from the making to ``close``. May be used from any thread."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        node_selector: str,
        lease_duration: int = 40,
        as_nodes: bool = False,
        warn: Warn = lambda text: None,
    ) -> None:
        """``node_selector``: the label that our Nodes have, as ``key=value``."""
        self.api = ApiClient(credentials, connections=CONNECTIONS, warn=warn)
        self._leases = ApiClient(credentials, connections=THREADS, timeout=_LEASE_TIMEOUT)
        self.lane = WorkLane(CONNECTIONS, warn=warn)
        self.heartbeat = HeartbeatLane(
            self._leases, duration=lease_duration, as_nodes=as_nodes, warn=warn
        )
        self.pods = PodFanout()
        self.nodes = NodeFanout()
        self._warn = Rarely(warn)
        self._node_selector = node_selector
        self._starting = threading.Lock()
        self._watches: list[threading.Thread] = []

    def follow(self) -> None:
        """Watch, unless we do already. Before it, the nodes are expected: what is about them
        then comes with the first LIST."""
        with self._starting:
            if self._watches:
                return
            pods = Reflector(
                self.api,
                "/api/v1/pods",
                self.pods,
                query={"fieldSelector": "spec.nodeName!="},
                wants=pods_on(self.pods.names),
                is_same=self._is_same,
                warn=self._warn,
            )
            nodes = Reflector(
                self.api,
                "/api/v1/nodes",
                self.nodes,
                query={"labelSelector": self._node_selector},
                is_same=self._is_same,
                warn=self._warn,
            )
            self._watches = [pods.start(), nodes.start()]

    def _is_same(self) -> bool:
        """Whether one of our nodes is still there: an API server over a new etcd has none."""
        chosen = self.nodes.any()
        if chosen is None:
            return True
        name, uid = chosen
        try:
            found = self.api.attempt("GET", node_path(name))
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == uid)

    def list_pods_of(self, node: str) -> None:
        """A LIST for one node that was not expected when all was listed."""
        query = {"fieldSelector": f"spec.nodeName={node}"}
        found = self.api.request("GET", "/api/v1/pods", query=query)
        self.pods.complete(node, found.get("items") or [])

    def close(self, seconds: float = 5.0) -> None:
        """Make no more requests; waits so long for those under way."""
        self.heartbeat.close(seconds)
        self.api.close()
        self._leases.close()
        self.lane.close(seconds)
        for thread in self._watches:
            thread.join(seconds)
