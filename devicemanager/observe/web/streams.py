"""Serve ``kubectl exec`` and ``port-forward``. Annotations of the pod define what containers send.

The API server upgrades its request to SPDY/3.1. It opens streams for the command (``error``,
``stdin``, ``stdout``, ``stderr``), or for each forwarded connection (``error``, ``data``).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from devicemanager.control.errors import HttpError
from devicemanager.control.http_server import UPGRADE
from devicemanager.core.podstatus.containers import Running
from devicemanager.kubelet.pods.pod_report import PodReport
from devicemanager.observe.web.spdy import Connection, ProtocolError, Stream, Streams

__all__ = ["execute", "forward"]

_SPDY: Final = "SPDY/3.1"
_EXEC: Final = "v4.channel.k8s.io"
_PORT_FORWARD: Final = "portforward.k8s.io"
_VERSIONS: Final = "x-stream-protocol-version"


def execute(request: Request, report: PodReport) -> ASGIApp:
    """Return the response to ``kubectl exec``: the output and exit code in the pod's annotations.
    Raises HttpError if the pod does not have the annotation ``devicemanager.io/exec``, or if the
    container is not running."""
    responses = report.responses
    if responses.exec_output is None:
        raise _unavailable("exec")
    container = request.path_params["container"]
    states = {each.status.name: each.status.state for each in report.status.all_containers()}
    if not isinstance(states.get(container), Running):
        raise HttpError(HTTPStatus.NOT_FOUND, "not-found", f'container not found ("{container}")')
    command = _Command(request.query_params, responses.exec_output, responses.exec_exit_code)
    return _upgrade(request, _EXEC, command)


def forward(request: Request, report: PodReport) -> ASGIApp:
    """Return the response to ``kubectl port-forward``: each connection receives the text in the
    pod's annotation ``devicemanager.io/port-forward``. Raises HttpError if the pod does not have
    this annotation."""
    text = report.responses.port_forward
    if text is None:
        raise _unavailable("port-forward")
    return _upgrade(request, _PORT_FORWARD, _Connections(text))


def _unavailable(name: str) -> HttpError:
    text = (
        f"{name} is not available: containers of virtual nodes do not run, and the pod has no "
        f"annotation devicemanager.io/{name}"
    )
    return HttpError(HTTPStatus.NOT_IMPLEMENTED, "not-implemented", text)


def _upgrade(request: Request, version: str, streams: Streams) -> ASGIApp:
    """Switch to SPDY, and return a response that sends nothing. Raises HttpError if the client does
    not offer this protocol."""
    offered = {
        each.strip() for text in request.headers.getlist(_VERSIONS) for each in text.split(",")
    }
    if request.headers.get("upgrade", "").upper() != _SPDY or version not in offered:
        text = f"expected an upgrade to {_SPDY} with the protocol {version}"
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", text)
    headers = {"connection": "Upgrade", "upgrade": _SPDY, _VERSIONS: version}

    request.scope["extensions"][UPGRADE](headers, partial(_Upgraded, streams))
    return _nothing


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Send nothing: the connection no longer uses HTTP."""


class _Upgraded:
    """A connection that has switched to SPDY, and its transport."""

    def __init__(self, streams: Streams, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._connection = Connection(streams, transport.write)

    def receive(self, data: bytes) -> bool:
        return self._handle(partial(self._connection.receive, data))

    def pause(self) -> None:
        self._connection.pause()

    def resume(self) -> None:
        self._handle(self._connection.resume)

    def _handle(self, act: Callable[[], bool]) -> bool:
        try:
            is_complete = act()
        except ProtocolError:
            self._transport.abort()
            return False
        if self._connection.is_over:
            self._transport.close()
        return is_complete


class _Command:
    """Streams of one command. Its input is ignored."""

    def __init__(self, query: Mapping[str, str], output: str, exit_code: int) -> None:
        has_tty = query.get("tty") == "1"
        self._missing = {"error"}
        for name, parameter in (("stdout", "output"), ("stderr", "error")):
            # A terminal has no separate stream for errors.
            if query.get(parameter) == "1" and not (has_tty and name == "stderr"):
                self._missing.add(name)
        if output and not output.endswith("\n"):
            output += "\n"
        self._output = (output.replace("\n", "\r\n") if has_tty else output).encode()
        self._exit_code = exit_code
        self._streams: dict[str, Stream] = {}

    def opened(self, stream: Stream) -> None:
        name = stream.kind
        if name not in self._missing:
            return
        self._missing.discard(name)
        self._streams[name] = stream
        # As in a kubelet, the command starts only when the client has opened all its streams.
        if not self._missing:
            for each, found in self._streams.items():
                if each != "error":
                    found.end(self._output if each == "stdout" else b"")
            self._streams["error"].end(json.dumps(_status(self._exit_code)).encode())

    def received(self, stream: Stream, data: bytes, *, is_last: bool) -> None:
        pass


def _status(exit_code: int) -> dict[str, Any]:
    """Return the Status with which a kubelet reports the end of a command."""
    if not exit_code:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {exit_code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
    }


class _Connections:
    """Streams of forwarded connections. A connection receives the text when it has sent data or has
    ended its side."""

    def __init__(self, text: str) -> None:
        self._text = text.encode()

    def opened(self, stream: Stream) -> None:
        # kubectl reads the error stream to its end before it finishes a forwarded connection.
        if stream.kind == "error":
            stream.end()

    def received(self, stream: Stream, data: bytes, *, is_last: bool) -> None:
        if stream.kind == "data" and (data or is_last):
            stream.end(self._response(data))

    def _response(self, request: bytes) -> bytes:
        first = request.partition(b"\r\n")[0]
        if not first.endswith((b" HTTP/1.0", b" HTTP/1.1")):
            return self._text
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
            f"Content-Length: {len(self._text)}\r\n\r\n"
        )
        return head.encode() + self._text
