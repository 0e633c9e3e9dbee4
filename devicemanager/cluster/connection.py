"""What all nodes of one process share: two lanes to the API server, and who watches it."""

from __future__ import annotations

from devicemanager.cluster.client.api import ApiClient
from devicemanager.cluster.client.credentials import Credentials
from devicemanager.cluster.client.lease_controller import THREADS, LeaseController
from devicemanager.cluster.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.cluster.client.watches import OwnWatches, SharedWatches, Watches
from devicemanager.cluster.client.work_queue import WorkQueue
from devicemanager.cluster.options import AsNodes

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
        as_nodes: AsNodes = False,
        warn: Warn = lambda text: None,
    ) -> None:
        """``node_selector``: the label that our Nodes have, as ``key=value``."""
        self.api = ApiClient(credentials, connections=CONNECTIONS, warn=warn)
        self._leases = ApiClient(credentials, connections=THREADS, timeout=_LEASE_TIMEOUT)
        self.lane = WorkQueue(CONNECTIONS, warn=warn)
        self.heartbeat = LeaseController(
            self._leases, duration=lease_duration, as_nodes=bool(as_nodes), warn=warn
        )
        told = RateLimitedWarning(warn)
        self.watches: Watches = (
            OwnWatches(self.api, told)
            if as_nodes == "strict"
            else SharedWatches(self.api, node_selector, told)
        )

    def close(self, seconds: float = 5.0) -> None:
        """Make no more requests; waits so long for those under way."""
        self.heartbeat.close(seconds)
        self.api.close()
        self._leases.close()
        self.lane.close(seconds)
        self.watches.close(seconds)
