"""HTTP server of one mock kubelet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from anyio import CapacityLimiter
from starlette.routing import BaseRoute

from devicemanager.control.access import Access, Gate, TcpAddress
from devicemanager.control.http_server import HttpServerThread, Prepared, listen_tcp
from devicemanager.control.router import WORKERS
from devicemanager.control.server import ControlServer, Opened, kubelet_router
from devicemanager.core.errors import RequestError
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.observe.metrics.kubelet import KubeletMetrics
from devicemanager.observe.web import endpoints, page
from devicemanager.observe.web.app import WebApplication
from devicemanager.observe.web.site import Breakable, Site

__all__ = ["DEFAULT_ADDRESS", "ControlNotLoopback", "HttpServer"]

DEFAULT_ADDRESS: Final = "127.0.0.1:10255"
"""The kubelet's read-only port, on the loopback interface only."""

PARTS: Final[tuple[Callable[[Site], Sequence[BaseRoute]], ...]] = (endpoints.routes, page.routes)
"""Functions that each return some of the server's routes. The routes of the control API are not
included."""


class ControlNotLoopback(ValueError):
    """Error for an address that other hosts can reach, if the control API allows only this host."""


class HttpServer(HttpServerThread):
    """HTTP server with the endpoints of a kubelet's read-only port, the live page, and optionally
    the control API.

    Use it as a context manager, or call ``start`` and ``stop``. The kubelet can be started and
    stopped while the server runs.
    """

    what = "HTTP"

    def __init__(
        self,
        kubelet: MockKubelet,
        address: str = DEFAULT_ADDRESS,
        *,
        control: ControlServer | None = None,
        allow_remote: bool = False,
        simulated: Callable[[], Mapping[str, Breakable]] | None = None,
    ) -> None:
        """Create the server without listening, and start counting metrics.

        ``address`` is an IP address of this host and a port (0: any). ``control`` is the server
        of the control API of the same kubelet. Do not start ``control``: the HTTP server also
        listens on the addresses of ``control``. On every address, it serves the endpoints, the page
        and the control API. ``allow_remote`` permits an address that other hosts can reach; their
        users can then read everything, unencrypted. The function ``simulated`` returns a mapping:
        for each resource with a simulated plugin, a function that sets the health of a device.

        Raises ValueError for an invalid or forbidden address. Raises ControlNotLoopback if the
        address would expose a control API that allows only this host.
        """
        super().__init__()
        self._kubelet = kubelet
        self._tcp = TcpAddress.allowed(address, allow_remote)
        if control is not None and not (self._tcp.is_loopback or control.allow_remote):
            raise ControlNotLoopback(f"{self._tcp} would expose the control API to other hosts")
        self._control = control
        self._simulated = simulated
        self._loop: asyncio.AbstractEventLoop | None = None
        self._metrics: KubeletMetrics | None = KubeletMetrics(kubelet, self._wake)
        self.address: str | None = None
        """Address with the actual port while the server runs, else None."""

    @property
    def url(self) -> str:
        """The URL for a browser or a scraper. Raises RequestError if the server is not running."""
        if self.address is None:
            raise RequestError("the HTTP server is not running: start it first")
        return f"http://{self.address}"

    def stop(self) -> None:
        """Stop serving, and stop counting events for the metrics.

        Streams end immediately, and other responses have two seconds to finish. Idempotent. Raises
        StopError if the server had failed.
        """
        try:
            super().stop()
        finally:
            # Closed after the server, because requests in progress still read the metrics.
            metrics, self._metrics = self._metrics, None
            if metrics is not None:
                metrics.close()

    def _prepare(self, stack: contextlib.ExitStack) -> Prepared:
        opened = self._listen(stack)
        # `stop` closes the metrics, so a server that starts again needs new ones.
        metrics = self._metrics = self._metrics or KubeletMetrics(self._kubelet, self._wake)
        stack.callback(setattr, self, "_loop", None)
        return Prepared(opened.listeners, lambda: self._make(opened.gate, metrics))

    def _listen(self, stack: contextlib.ExitStack) -> Opened:
        if self._control is not None:
            opened = self._control.listen(stack, self._tcp)
        else:
            listener = listen_tcp(self._tcp, stack)
            opened = Opened([listener], Gate((Access(TcpAddress.of(listener)),)))
        self.address = str(opened.gate.listeners[-1].address)
        stack.callback(setattr, self, "address", None)
        return opened

    def _make(self, gate: Gate, metrics: KubeletMetrics) -> WebApplication:
        self._loop = asyncio.get_running_loop()
        has_control = self._control is not None
        site = Site(
            self._kubelet, metrics, CapacityLimiter(WORKERS), has_control=has_control, gate=gate
        )
        if self._simulated is not None:
            site.simulated = self._simulated
        return WebApplication(
            gate,
            [route for part in PARTS for route in part(site)],
            failed=lambda text: self._kubelet.events.publish(EventKind.SERVER_ERROR, text),
            closing=site.close,
            control=kubelet_router(self._kubelet, gate) if has_control else None,
        )

    def _wake(self) -> None:
        """Make the server's thread count the queued metrics soon. Called on a thread that publishes
        an event."""
        metrics, loop = self._metrics, self._loop
        if metrics is None:
            return
        if loop is None:
            # Without a server thread, count here, so that the queue does not grow without limit.
            metrics.catch_up()
            return
        with contextlib.suppress(RuntimeError):  # the loop has just closed
            loop.call_soon_threadsafe(metrics.catch_up)
