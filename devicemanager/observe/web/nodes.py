"""HTTP server for the kubelets of many nodes. It generates container logs, because the containers
do not run."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

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
from devicemanager.core.podstatus.containers import ContainerStatus, Running, Terminated, Waiting
from devicemanager.kubelet.pods.pod_report import PodReport
from devicemanager.kubelet.telemetry import NodeInfo
from devicemanager.objects.status.times import timestamp
from devicemanager.observe.metrics.exposition import CONTENT_TYPE
from devicemanager.observe.metrics.kubelet import gpu_text, node_text, resource_text
from devicemanager.observe.web import answers, streams
from devicemanager.observe.web.app import WebApplication
from devicemanager.observe.web.health import live_checks, node_checks

__all__ = ["NodesServer"]

Nodes = Callable[[], Mapping[str, NodeInfo]]
"""Function that returns the current kubelets by node name. It is called from any thread."""

_LOG: Final = logging.getLogger("devicemanager")
_BODIES: Final[Mapping[str, tuple[str, Callable[[NodeInfo], bytes]]]] = {
    "pods": (answers.JSON, answers.pods),
    "configz": (answers.JSON, answers.configuration),
    "metrics": (CONTENT_TYPE, node_text),
    "metrics/resource": (CONTENT_TYPE, resource_text),
    "metrics/dcgm": (CONTENT_TYPE, gpu_text),
    "stats/summary": (answers.JSON, answers.summary),
}


class NodesServer(HttpServerThread):
    """Read-only HTTP server for many kubelets. The endpoints of each kubelet are under
    ``/nodes/NAME``. The API server forwards ``kubectl logs``, ``exec`` and ``port-forward`` to
    ``/containerLogs``, ``/exec`` and ``/portForward``. These paths serve the pods of all nodes.

    Use it as a context manager, or call ``start`` and ``stop``.
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
        """Create the server without listening.

        ``address`` is an IP address of this host and a port (0: any). ``allow_remote`` permits an
        address that other hosts can reach. Clients are not authenticated, so everyone on these
        hosts can then read everything. ``certfile`` and ``keyfile`` (PEM) enable TLS, which the API
        server requires.

        Raises ValueError for an invalid or forbidden address, if only one of the files is set, or
        if the files are not a certificate and its key.
        """
        super().__init__()
        self._tcp = TcpAddress.allowed(address, allow_remote)
        self._nodes = nodes
        if (certfile is None) is not (keyfile is None):
            raise ValueError("TLS needs both a certificate and its key: set both files or neither")
        self._certificate = (
            None if certfile is None or keyfile is None else Certificate(certfile, keyfile)
        )
        if self._certificate is not None:
            # Checked here, because on the server's thread every connection would fail.
            self._certificate.check()
        self.address: str | None = None
        """Address with the actual port while the server runs, else None."""

    def _prepare(self, stack: contextlib.ExitStack) -> Prepared:
        listener = listen_tcp(self._tcp, stack)
        bound = TcpAddress.of(listener)
        self.address = str(bound)
        stack.callback(setattr, self, "address", None)
        gate = Gate((Access(bound),))
        return Prepared(
            [listener],
            lambda: WebApplication(
                gate,
                _routes(self._nodes),
                failed=_LOG.error,
                # For port-forward, the API server passes on the header Host of kubectl.
                open_paths=tuple(f"/{name}/" for name in _OPEN),
            ),
            self._certificate,
        )


_REJECTED: Final = ("attach", "run")
_OPEN: Final = (*_REJECTED, "exec", "portForward")
"""First parts of the paths of requests that need a running container."""


def _routes(nodes: Nodes) -> Sequence[BaseRoute]:
    # Must be called on the server's event loop, because a limiter belongs to a loop.
    workers = CapacityLimiter(WORKERS)

    def node(request: Request) -> NodeInfo:
        name = request.path_params["node"]
        kubelet = nodes().get(name)
        if kubelet is None:
            raise HttpError(HTTPStatus.NOT_FOUND, "not-found", f"unknown node {name!r}")
        return kubelet

    def body(path: str) -> Route:
        kind, make = _BODIES[path]

        async def endpoint(request: Request) -> Answer:
            data = await anyio.to_thread.run_sync(make, node(request), limiter=workers)
            return Answer(HTTPStatus.OK, kind, data, request.scope["account"], answers.PRIVATE)

        return Route(f"/nodes/{{node}}/{path}", endpoint)

    # Health checks use no worker, so that they respond even if all workers are busy.
    async def alive(request: Request) -> Answer:
        return answers.all_checks("livez", live_checks(), request)

    async def healthy(request: Request) -> Answer:
        name = request.url.path.rpartition("/")[2]
        return answers.all_checks(name, node_checks(node(request)), request)

    async def logs(request: Request) -> Answer:
        return await anyio.to_thread.run_sync(_logs, nodes, request, limiter=workers)

    def stream(path: str, respond: Callable[[Request, PodReport], ASGIApp]) -> Route:
        async def endpoint(request: Request) -> ASGIApp:
            names = request.path_params["namespace"], request.path_params["pod"]
            report = await anyio.to_thread.run_sync(_report, nodes(), *names, limiter=workers)
            return respond(request, report)

        # kubectl sends POST for SPDY and GET for WebSockets.
        return Route(f"/{path}", endpoint, methods=["GET", "POST"])

    return [
        Route("/healthz", alive),
        Route("/nodes/{node}/livez", alive),
        Route("/nodes/{node}/healthz", healthy),
        Route("/nodes/{node}/readyz", healthy),
        *map(body, _BODIES),
        Route("/containerLogs/{namespace}/{pod}/{container}", logs),
        stream("exec/{namespace}/{pod}/{container}", streams.execute),
        stream("portForward/{namespace}/{pod}", streams.forward),
        *(Route(f"/{name}/{{rest:path}}", _reject, methods=["GET", "POST"]) for name in _REJECTED),
    ]


async def _reject(request: Request) -> Answer:
    """Reject a request that needs a running container, with a text that kubectl shows."""
    name = request.url.path.split("/")[1]
    text = f"{name} is not available: containers of virtual nodes do not run"
    raise HttpError(HTTPStatus.NOT_IMPLEMENTED, "not-implemented", text)


# -- logs -------------------------------------------------------------------------------


def _logs(nodes: Nodes, request: Request) -> Answer:
    """Return the response to ``kubectl logs``, as the kubelet does. With ``--follow``, the response
    ends immediately."""
    namespace, name, container = (
        request.path_params[each] for each in ("namespace", "pod", "container")
    )
    report = _report(nodes(), namespace, name)
    statuses = {entry.status.name: entry.status for entry in report.status.all_containers()}
    status = statuses.get(container)
    if status is None:
        text = f"container {container!r} not found in pod {f'{namespace}/{name}'!r}"
        raise HttpError(HTTPStatus.NOT_FOUND, "not-found", text)
    is_previous = request.query_params.get("previous", "") in ("true", "1")
    lines = (previous_lines if is_previous else log_lines)(status, report.responses.log)
    if is_previous and not lines:
        text = f"previous terminated container {container!r} in pod {name!r} not found"
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
    # With an invalid number all lines are returned, which is more useful than an error.
    tail = request.query_params.get("tailLines", "")
    if tail.isascii() and tail.isdigit():
        lines = lines[max(0, len(lines) - int(tail)) :]
    return answers.plain_text(HTTPStatus.OK, "".join(f"{line}\n" for line in lines))


def _report(nodes: Mapping[str, NodeInfo], namespace: str, name: str) -> PodReport:
    # The path that the API server uses has no node name, so all nodes are searched.
    for kubelet in nodes.values():
        report = kubelet.telemetry.pod(namespace, name)
        if report is not None:
            return report
    text = f"pod {f'{namespace}/{name}'!r} does not exist"
    raise HttpError(HTTPStatus.NOT_FOUND, "not-found", text)


def log_lines(status: ContainerStatus, text: str = "") -> list[str]:
    """Return the lines of a generated log: start of the container, ``text``, end of the container.

    The log of a running container lacks the last line. A container that waits for a restart has the
    log of its previous run. The list is empty if the container has never run.
    """
    match status.state:
        case Running(started_at):
            return [*_started(status, started_at, status.restart_count, text)]
        case Terminated():
            return [*_ended(status, status.state, status.restart_count, text)]
        case Waiting():
            # Between two runs, a kubelet also returns the log of the last run.
            return previous_lines(status, text)


def previous_lines(status: ContainerStatus, text: str = "") -> list[str]:
    """Return the lines of a generated log for the container's previous run. The list is empty if
    there was no previous run."""
    if status.last_termination is None:
        return []
    return [*_ended(status, status.last_termination, max(0, status.restart_count - 1), text)]


def _started(status: ContainerStatus, at: float | None, run: int, text: str) -> Iterator[str]:
    again = f", restart {run}" if run else ""
    yield f"{_time(at)} container {status.name} started{again}"
    yield from text.splitlines()


def _ended(status: ContainerStatus, end: Terminated, run: int, text: str) -> Iterator[str]:
    yield from _started(status, end.started_at, run, text)
    code, reason = end.exit_code, end.reason
    yield f"{_time(end.finished_at)} container {status.name} ended: exit code {code}, {reason}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else timestamp(seconds)
