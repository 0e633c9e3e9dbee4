"""The server of the control API of nodes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from starlette.types import Scope

from devicemanager.control.access import Gate
from devicemanager.control.errors import problem_of
from devicemanager.control.nodes.operations import OPERATIONS, document
from devicemanager.control.nodes.protocol import SteeredCluster
from devicemanager.control.router import TableApplication
from devicemanager.control.server import SteeringServer
from devicemanager.control.serving import HttpService
from devicemanager.control.shapes import Problem

__all__ = ["NodesControlServer"]

_LOG: Final = logging.getLogger("devicemanager")


class NodesControlServer(SteeringServer):
    """Serves the control API of a cluster's nodes on ``control.sock`` in a directory, mode 0600.

    A context manager; or call ``start`` and ``stop``. Nodes may join and leave meanwhile.
    """

    what = "the control API of the nodes"

    def __init__(
        self,
        cluster: SteeredCluster,
        directory: Path,
        *,
        tcp: str | None = None,
        allow_remote: bool = False,
    ) -> None:
        """``directory`` has to be there. ``tcp`` is where to listen besides, such as
        ``127.0.0.1:8001`` (port 0: any): every request there needs the token of
        ``control.token`` in it (mode 0600, new with each start). ``allow_remote``: also on an
        address that other hosts reach; nothing is encrypted. Raises ValueError for an address
        that is none, or may not be used."""
        super().__init__(directory, tcp, allow_remote)
        self._cluster = cluster

    def _application(self, gate: Gate) -> HttpService:
        return _Application(self._cluster, gate, OPERATIONS, document)


class _Application(TableApplication):
    def _problem(self, error: Exception, scope: Scope) -> Problem:
        problem = problem_of(error)
        if problem.reason == "internal":
            _LOG.error("control API of the nodes: %s", problem.detail)
        return problem
