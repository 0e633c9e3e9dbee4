"""The ASGI application of one HTTP server: endpoints, page, and the control API if it is
enabled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Router
from starlette.types import Receive, Scope, Send

from devicemanager.control.access import Gate
from devicemanager.control.answer import CLOSE, Answer
from devicemanager.control.errors import problem_of
from devicemanager.control.router import HttpApplication, OperationRouter
from devicemanager.observe.web.answers import PRIVATE, TEXT

__all__ = ["WebApplication"]

_CONTROL: Final = ("/v1/", "/openapi.json")


class WebApplication(HttpApplication):
    """ASGI application of one HTTP server. Create it on the server's event loop."""

    def __init__(
        self,
        gate: Gate,
        routes: Sequence[BaseRoute],
        *,
        failed: Callable[[str], object],
        closing: Callable[[], None] = lambda: None,
        control: OperationRouter | None = None,
        open_paths: tuple[str, ...] = (),
    ) -> None:
        """Create the application. ``failed`` is called with one line about each internal error.
        ``closing`` is called when the server stops. ``control`` serves the control API; None if it
        is not enabled. ``open_paths`` are prefixes of paths. Requests for these paths are accepted
        with any Host and Origin headers if they have the header Upgrade."""
        self._gate = gate
        self._open_paths = open_paths
        self._failed = failed
        self._closing = closing
        self._control = control
        super().__init__()
        self._router = Router(list(routes), redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Handled before the routes, because the control API has its own access rules.
        if self._control is not None and scope["path"].startswith(_CONTROL):
            return await self._control(scope, receive, send)
        await super().__call__(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A page can send Upgrade only for a WebSocket, whose error response it cannot read.
        is_upgrade = any(name == b"upgrade" for name, _ in scope["headers"])
        if not (is_upgrade and scope["path"].startswith(self._open_paths)):
            self._gate.check_sender(scope)
        await self._router(scope, receive, send)

    def close(self) -> None:
        """End all streams. Call it when the server stops."""
        self._closing()
        if self._control is not None:
            self._control.close()

    def _rejection(self, error: Exception, scope: Scope) -> Answer:
        if isinstance(error, HTTPException):
            status = HTTPStatus(error.status_code)
            # Cut, because the client chooses the path, which can be very long.
            text = f"{scope['method']} {scope['path'][:200]!r}: {status.phrase.lower()}"
            if scope["path"].startswith(_CONTROL):
                text += ": the control API is not enabled"
        else:
            problem = problem_of(error)
            status, text = HTTPStatus(problem.status), problem.detail
            # An internal error is a bug, which is also reported on the server's side.
            if problem.reason == "internal":
                self._failed(f"HTTP: {text}")
        return Answer(status, TEXT, f"{text}\n".encode(), headers=[*PRIVATE, *CLOSE])
