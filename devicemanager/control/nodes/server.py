"""The server of the control API for nodes in a cluster."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from devicemanager.control.access import Gate
from devicemanager.control.http_server import HttpService
from devicemanager.control.nodes.operations import TABLE
from devicemanager.control.nodes.protocol import ControlledCluster
from devicemanager.control.router import OperationRouter
from devicemanager.control.server import ApiServer

__all__ = ["NodesControlServer"]

_LOG: Final = logging.getLogger("devicemanager")


class NodesControlServer(ApiServer):
    """Server of the control API for the nodes of a cluster.

    It listens on the socket ``control.sock`` in a directory. The socket has mode 0600.
    Use it as a context manager, or call ``start`` and ``stop``. Nodes can join and leave while it
    serves.
    """

    what = "the control API of the nodes"

    def __init__(
        self,
        cluster: ControlledCluster,
        directory: Path,
        *,
        tcp: str | None = None,
        allow_remote: bool = False,
    ) -> None:
        """Create the server without listening. ``directory`` must exist; a server with ``tcp``
        writes ``control.token`` into it. ``ControlServer`` documents ``tcp`` and ``allow_remote``.
        Raises ValueError for an invalid or forbidden address."""
        super().__init__(directory, tcp, allow_remote)
        self._cluster = cluster

    def _service(self, gate: Gate) -> HttpService:
        return OperationRouter(TABLE, self._cluster, gate, report_bug=_report_bug)


def _report_bug(text: str) -> None:
    # Nodes have no common event stream, so bugs are reported in the log.
    _LOG.error("control API of the nodes: %s", text)
