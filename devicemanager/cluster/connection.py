"""The connection to one API server: clients, work queue, leases and watches of all nodes."""

from __future__ import annotations

from devicemanager.client.api import ApiClient
from devicemanager.client.credentials import Credentials
from devicemanager.client.lease_controller import THREADS, LeaseController
from devicemanager.client.rate_limited_warning import RateLimitedWarning, Warn
from devicemanager.client.watches import PerNodeWatches, SharedWatches
from devicemanager.client.work_queue import WorkQueue
from devicemanager.cluster.holders import this_process
from devicemanager.cluster.options import AsNodes

__all__ = ["Connection"]

CONNECTIONS = 32
"""Maximum number of requests in flight; requests for leases are not counted."""
_LEASE_TIMEOUT = 10.0


class Connection:
    """Connection to one API server, which all nodes of the process share. Thread-safe."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        node_selector: str,
        lease_duration: int = 40,
        as_nodes: AsNodes = False,
        warn: Warn = lambda text: None,
    ) -> None:
        """Create the clients, work queue, leases and watches; no request is sent yet.

        ``node_selector``: label of devicemanager's Nodes, as ``key=value``.
        """
        self.api = ApiClient(credentials, connections=CONNECTIONS, warn=warn)
        # Leases have a separate client: in a burst of pods, they would otherwise wait so long that
        # nodes become NotReady.
        self._lease_api = ApiClient(credentials, connections=THREADS, timeout=_LEASE_TIMEOUT)
        self.work_queue = WorkQueue(CONNECTIONS, warn=warn)
        self.leases = LeaseController(
            self._lease_api,
            duration=lease_duration,
            as_nodes=bool(as_nodes),
            holder=this_process(),
            warn=warn,
        )
        watch_warning = RateLimitedWarning(warn)
        self.watches = (
            PerNodeWatches(self.api, watch_warning)
            if as_nodes == "strict"
            else SharedWatches(self.api, node_selector, watch_warning)
        )

    def close(self, seconds: float = 5.0) -> None:
        """Stop sending requests.

        Wait for lease requests in flight, then for other requests, and then for watches. Each of
        these waits takes up to ``seconds``.
        """
        # Leases are closed first, because a renewal after a Node was deleted would recreate its
        # Lease.
        self.leases.close(seconds)
        self.api.close()
        self._lease_api.close()
        self.work_queue.close(seconds)
        self.watches.close(seconds)
