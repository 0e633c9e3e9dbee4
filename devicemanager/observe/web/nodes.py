"""One server for the kubelets of many nodes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from devicemanager.control.access import Access, Gate, TcpAddress
from devicemanager.control.answer import Answer
from devicemanager.control.errors import HttpError
from devicemanager.control.http_server import (
    Certificate,
    HttpServerThread,
    Prepared,
    listen_tcp,
)
from devicemanager.control.router import WORKERS
from devicemanager.kubelet.telemetry import NodeInfo, PodReport
from devicemanager.observe.metrics.exposition import CONTENT_TYPE
from devicemanager.observe.metrics.kubelet import node_text, resource_text
from devicemanager.observe.web import answers
from devicemanager.observe.web.app import WebApplication
from devicemanager.observe.web.checks import live_checks, node_checks
from devicemanager.observe.web.logs import log_lines, previous_lines

__all__ = ["NodesServer"]

Nodes = Callable[[], Mapping[str, NodeInfo]]
"""The kubelets by the names of their nodes, as of now; called from any thread."""

_LOG: Final = logging.getLogger("devicemanager")
_BODIES: Final[Mapping[str, tuple[str, Callable[[NodeInfo], bytes]]]] = {
    "pods": (answers.JSON, answers.pods),
    "configz": (answers.JSON, answers.configuration),
    "metrics": (CONTENT_TYPE, node_text),
    "metrics/resource": (CONTENT_TYPE, resource_text),
}


class NodesServer(HttpServerThread):
    """Serves what kubelets serve, for reading only: each under ``/nodes/NAME``, logs of all
    under ``/containerLogs``, where the API server asks for them.

    A context manager; or call ``start`` and ``stop``.
    """

    what = "HTTP of the nodes"

    def __init__(
        self,
        address: str,
        nodes: Nodes,
        *,
        allow_remote: bool = False,
        certfile: Path | None = None,
        keyfile: Path | None = None,
    ) -> None:
        """``address`` is an IP address of this host and a port (0: any). ``allow_remote``: also
        on one that other hosts reach; whoever does may read everything. ``certfile`` and
        ``keyfile``, in PEM form: what is served is encrypted, as the API server wants it; nobody
        is asked who he is.

        Raises ValueError for an address that is none, or may not be used, for one of the files
        without the other, and for files that are no certificate and its key."""
        super().__init__()
        self._tcp = TcpAddress.allowed(address, allow_remote)
        self._nodes = nodes
        if (certfile is None) is not (keyfile is None):
            raise ValueError("a certificate and its key go together: give both files, or none")
        self._certificate = (
            None if certfile is None or keyfile is None else Certificate(certfile, keyfile)
        )
        if self._certificate is not None:
            self._certificate.check()
        self.address: str | None = None
        """Where it listens while it runs, with the port that it got."""

    def _prepare(self, stack: contextlib.ExitStack) -> Prepared:
        listener = listen_tcp(self._tcp, stack)
        bound = TcpAddress.of(listener)
        self.address = str(bound)
        stack.callback(setattr, self, "address", None)
        gate = Gate((Access(bound),))
        return Prepared(
            [listener],
            lambda: WebApplication(gate, _routes(self._nodes), failed=_LOG.error),
            self._certificate,
        )


def _routes(nodes: Nodes) -> Sequence[BaseRoute]:
    """To be made on the server's loop."""
    workers = CapacityLimiter(WORKERS)

    def node(request: Request) -> NodeInfo:
        name = request.path_params["node"]
        found = nodes().get(name)
        if found is None:
            raise HttpError(HTTPStatus.NOT_FOUND, "not-found", f"there is no node {name!r} here")
        return found

    def body(path: str) -> Route:
        kind, make = _BODIES[path]

        async def endpoint(request: Request) -> Answer:
            made = await anyio.to_thread.run_sync(make, node(request), limiter=workers)
            return Answer(HTTPStatus.OK, kind, made, request.scope["account"], answers.NOSNIFF)

        return Route(f"/nodes/{{node}}/{path}", endpoint)

    async def alive(request: Request) -> Answer:
        return answers.all_checks("livez", live_checks(), request)

    async def healthy(request: Request) -> Answer:
        name = request.url.path.rpartition("/")[2]
        return answers.all_checks(name, node_checks(node(request)), request)

    async def logs(request: Request) -> Answer:
        return await anyio.to_thread.run_sync(_logs, nodes, request, limiter=workers)

    return [
        Route("/healthz", alive),
        Route("/nodes/{node}/livez", alive),
        Route("/nodes/{node}/healthz", healthy),
        Route("/nodes/{node}/readyz", healthy),
        *map(body, _BODIES),
        Route("/containerLogs/{namespace}/{pod}/{container}", logs),
    ]


# -- logs -------------------------------------------------------------------------------


def _logs(nodes: Nodes, request: Request) -> Answer:
    """As the kubelet answers ``kubectl logs``; what follows is at its end at once."""
    namespace, name, container = (
        request.path_params[each] for each in ("namespace", "pod", "container")
    )
    report = _found(nodes(), namespace, name)
    statuses = {
        entry.status.name: entry.status
        for entry in (*report.status.init_containers, *report.status.containers)
    }
    status = statuses.get(container)
    if status is None:
        text = f"container {container!r} not found in pod {f'{namespace}/{name}'!r}"
        raise HttpError(HTTPStatus.NOT_FOUND, "not-found", text)
    is_previous = request.query_params.get("previous", "") in ("true", "1")
    lines = previous_lines(status) if is_previous else log_lines(status)
    if is_previous and not lines:
        text = f"previous terminated container {container!r} in pod {name!r} not found"
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
    tail = request.query_params.get("tailLines", "")
    if tail.isascii() and tail.isdigit():
        lines = lines[max(0, len(lines) - int(tail)) :]
    return answers.said(HTTPStatus.OK, "".join(f"{line}\n" for line in lines))


def _found(nodes: Mapping[str, NodeInfo], namespace: str, name: str) -> PodReport:
    for kubelet in nodes.values():
        report = kubelet.telemetry.pod(namespace, name)
        if report is not None:
            return report
    text = f"pod {f'{namespace}/{name}'!r} does not exist"
    raise HttpError(HTTPStatus.NOT_FOUND, "not-found", text)
