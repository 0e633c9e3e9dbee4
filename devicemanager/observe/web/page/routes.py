"""Routes of the live page: its files, its stream, and requests that only the page sends.

Texts from plugins and manifests must never become script, style or a request. Therefore scripts and
styles are loaded only from this package, and text cannot become markup (Trusted Types). Other sites
cannot show the page in a frame, so clickjacking is impossible. The response headers enforce all
this (``POLICY``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from devicemanager.control.answer import send_pieces
from devicemanager.control.errors import HttpError
from devicemanager.control.request import Account, disconnected, read_body
from devicemanager.core.ids import PodUid
from devicemanager.core.runoptions import RunOptions
from devicemanager.events.stream import Event, EventKind
from devicemanager.faults.kinds import KINDS, Kind
from devicemanager.io import typed_json
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.pods.options import CdiRules
from devicemanager.kubelet.wire.errors import WireError
from devicemanager.observe.view.kubelet import KubeletView
from devicemanager.observe.web.page.deltas import Document, Table
from devicemanager.observe.web.page.document import Documents
from devicemanager.observe.web.page.updates import Updates
from devicemanager.observe.web.site import Site

__all__ = ["HEADERS", "POLICY", "SiteNode", "container_settings", "routes"]

POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_MOST_BODY: Final = 1 << 20


def routes(site: Site) -> Sequence[BaseRoute]:
    """Return the routes of the page. Call it once, on the server's event loop."""
    updates = Updates(SiteNode(site))
    site.on_close(updates.close)
    return [
        *_files(),
        Route("/page/stream", partial(_stream, updates)),
        Route("/page/device-health", partial(_device_health, site), methods=["POST"]),
        Route("/page/settings", partial(_settings, site), methods=["POST"]),
    ]


def _files() -> list[Route]:
    # One route for each file, so that a request cannot name any other file.
    found = []
    for file in sorted(files(__package__).joinpath("static").iterdir(), key=lambda one: one.name):
        media_type = _MEDIA_TYPES.get(file.name[file.name.rfind(".") :])
        if media_type is not None:
            path = "/" if file.name == "index.html" else f"/page/{file.name}"
            found.append(Route(path, _file(file.read_bytes(), media_type)))
    return found


def _file(body: bytes, media_type: str) -> Callable[[Request], Any]:
    headers = {**HEADERS, "content-type": media_type}

    async def answer(_: Request) -> Response:
        return Response(body, headers=headers)

    return answer


# -- the stream ------------------------------------------------------------------------


async def _stream(updates: Updates, request: Request) -> Any:
    # A browser that reconnects automatically sends the header. The page's script uses the query.
    since = request.headers.get("last-event-id") or request.query_params.get("since", "")
    return _Messages(updates.messages(since), request.scope["account"])


class _Messages:
    """Response that sends server-sent events until the client or the server closes."""

    def __init__(self, messages: AsyncGenerator[bytes], account: Account) -> None:
        """Create the response. ``account`` limits the memory of messages that slow clients have not
        received yet."""
        self._messages = messages
        self._account = account

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {**HEADERS, "content-type": "text/event-stream"}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": pairs})
        # Starlette passes HEAD requests to GET routes. The response has no body, so it ends here.
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        # Two tasks, because only ``receive`` notices a closed page while there is nothing to send.
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, gone):
                task.cancel()
            # Wait until the generator of messages is closed before the response ends.
            await asyncio.gather(sending, gone, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        async with contextlib.aclosing(self._messages) as messages:
            async for message in messages:
                # Counted until it is sent, because a client that does not read keeps it in memory.
                with self._account.holding(len(message)):
                    await send_pieces(message, send)
        await send({"type": "http.response.body", "body": b""})


class SiteNode:
    """Implementation of ``updates.Node`` for the kubelet of one HTTP server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._kubelet = site.kubelet
        self._view = KubeletView(site.kubelet)
        self._documents = Documents()
        # Built once, because kinds never change and ``deltas`` compares tables by identity first.
        self._kinds: Table = {name: _kind(kind) for name, kind in KINDS.items()}

    def refresh(self) -> Document:
        """Return the current document of the node. Not thread-safe."""
        document = self._documents.of(self._view.refresh(), self._kubelet.faults.list())
        site = {"control": self._site.has_control, "simulated": sorted(self._site.simulated())}
        return {**document, ("site", ""): {"site": site}, ("kinds", ""): self._kinds}

    def events(self) -> Sequence[Event]:
        """Return the latest events, oldest first."""
        return self._kubelet.events.recent()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` after each event, and after each RPC between the kubelet and a plugin.
        Return a function that ends the subscription."""

        def happened(_: object) -> None:
            callback()

        no_events = self._kubelet.events.subscribe(happened)
        no_calls = self._kubelet.calls.subscribe(happened)

        def end() -> None:
            no_events()
            no_calls()

        return end

    def failed(self, error: Exception) -> None:
        """Publish an event about an error that occurred while the page read the node."""
        self._kubelet.events.publish(EventKind.SERVER_ERROR, f"live page: {error!r}")


def _kind(kind: Kind) -> Mapping[str, Any]:
    return {
        "meaning": kind.meaning,
        "action": kind.is_action,
        "options": [
            {
                "name": option.name,
                "meaning": option.meaning,
                "required": option.required,
                "default": None if option.default is None else str(option.default),
            }
            for option in kind.options
        ],
    }


# -- requests that the control API does not have -----------------------------------------


class _DeviceHealth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request to set the health of a simulated plugin's device."""

    resource: str
    id: str
    health: str


class _SettingsOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request for the settings of a pod's containers."""

    uid: str


async def _device_health(site: Site, request: Request) -> Response:
    site.check(request)
    wanted = _decoded(await read_body(request, _MOST_BODY), _DeviceHealth)
    await anyio.to_thread.run_sync(partial(_set_health, site, wanted), limiter=site.workers)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=HEADERS)


async def _settings(site: Site, request: Request) -> Response:
    # Requires the token, because environment variables can be secrets.
    site.check(request)
    wanted = _decoded(await read_body(request, _MOST_BODY), _SettingsOf)
    work = partial(container_settings, site.kubelet, wanted.uid)
    settings = await anyio.to_thread.run_sync(work, limiter=site.workers)
    headers = {**HEADERS, "content-type": "application/json"}
    return Response(msgspec.json.encode(settings), headers=headers)


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        return typed_json.decode(body, kind)
    except msgspec.DecodeError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, "bad-request", f"body: {error}") from None


def _set_health(site: Site, wanted: _DeviceHealth) -> None:
    set_health = site.simulated().get(wanted.resource)
    if set_health is None:
        text = (
            f"the plugin of {wanted.resource!r} is not simulated by this program: change the "
            "health of its devices in the plugin"
        )
        raise HttpError(HTTPStatus.CONFLICT, "not-simulated", text)
    try:
        set_health(wanted.id, wanted.health)
    except Exception as error:  # an unknown device, or a health that the plugin rejects
        raise HttpError(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", str(error)) from None


def container_settings(kubelet: MockKubelet, uid: str) -> dict[str, Any]:
    """Return the environment variables, mounts and devices of a pod's containers, by container
    name.

    A value is a dict with the keys ``settings`` and ``error``. The settings come from the plugins'
    Allocate responses. If a response is invalid, ``settings`` is None and ``error`` has the reason.
    Otherwise ``error`` is None. Raises RequestError if the kubelet is stopped.
    """
    pod, rules = PodUid(uid), CdiRules.of(kubelet.settings.behaviour)
    settings: dict[str, Any] = {}
    for container, holdings in kubelet.manager.holdings(pod).items():
        try:
            options: RunOptions | None = rules.options(holdings, pod, container)
            settings[container] = {"settings": options, "error": None}
        except WireError as error:
            settings[container] = {"settings": None, "error": str(error)}
    return settings
