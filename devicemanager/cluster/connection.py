"""What all nodes of one process share: connections, work queue, leases and watches."""

from __future__ import annotations

from devicemanager.cluster.client.api import ApiClient
from devicemanager.cluster.client.credentials import Credentials
from devicemanager.cluster.client.lease_controller import THREADS, LeaseController
from devicemanager.cluster.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.cluster.client.watches import PerNodeWatches, SharedWatches
from devicemanager.cluster.client.work_queue import WorkQueue
from devicemanager.cluster.options import AsNodes

__all__ = ["Connection"]

CONNECTIONS = 32
"""Maximum number of requests in flight, without leases."""
_LEASE_TIMEOUT = 10.0


class Connection:
    """Everything for the requests to one API server, until ``close``. Thread-safe."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        node_selector: str,
        lease_duration: int = 40,
        as_nodes: AsNodes = False,
        warn: Warn = lambda text: None,
    ) -> None:
        """``node_selector``: label of devicemanager's Nodes, as ``key=value``."""
        self.api = ApiClient(credentials, connections=CONNECTIONS, warn=warn)
        # A separate pool: in a burst of pods, leases would otherwise wait until nodes are
        # NotReady.
        self._lease_api = ApiClient(credentials, connections=THREADS, timeout=_LEASE_TIMEOUT)
        self.work_queue = WorkQueue(CONNECTIONS, warn=warn)
        self.leases = LeaseController(
            self._lease_api, duration=lease_duration, as_nodes=bool(as_nodes), warn=warn
        )
        watch_warning = RateLimitedWarning(warn)
        self.watches = (
            PerNodeWatches(self.api, watch_warning)
            if as_nodes == "strict"
            else SharedWatches(self.api, node_selector, watch_warning)
        )

    def close(self, seconds: float = 5.0) -> None:
        """Send no more requests; wait up to ``seconds`` for each kind in flight."""
        # Leases first: a renewal after the deletion of its node would recreate the Lease.
        self.leases.close(seconds)
        self.api.close()
        self._lease_api.close()
        self.work_queue.close(seconds)
        self.watches.close(seconds)
