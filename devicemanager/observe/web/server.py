"""The HTTP server of a mock kubelet."""

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
"""Where it listens unless told otherwise: the kubelet's read-only port, on this host only."""

PARTS: Final[tuple[Callable[[Site], Sequence[BaseRoute]], ...]] = (endpoints.routes, page.routes)
"""What makes the routes, besides the control API."""


class ControlNotLoopback(ValueError):
    """An address where other hosts would reach the control API, which may not be."""


class HttpServer(HttpServerThread):
    """Serves what a kubelet's read-only port serves, and the control API if one is given.

    A context manager; or call ``start`` and ``stop``. The kubelet need not be running, and may
    be stopped and started meanwhile.
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
        """Metrics are counted from here on.

        ``address`` is an IP address of this host and a port (0: any). ``control``: the
        control API of the same kubelet, not started; it is served here, too, and on its own
        addresses everything else as well. ``allow_remote``: also on an address that other
        hosts reach; nothing is encrypted, and whoever reaches it may read. ``simulated``: by
        resource, what sets the health of a simulated plugin's devices.

        Raises ValueError for an address that is none, or may not be used, and for one that
        other hosts reach if ``control`` may not be reached by them."""
        super().__init__()
        self._kubelet = kubelet
        self._tcp = TcpAddress.allowed(address, allow_remote)
        if control is not None and not (self._tcp.is_loopback or control.allow_remote):
            raise ControlNotLoopback(
                f"{self._tcp} can be reached from other hosts, and with it the control API"
            )
        self._control = control
        self._simulated = simulated
        self._loop: asyncio.AbstractEventLoop | None = None
        self._metrics: KubeletMetrics | None = KubeletMetrics(kubelet, self._wake)
        self.address: str | None = None
        """Where it listens while it runs, with the port that it got."""

    @property
    def url(self) -> str:
        """The address for a browser or a scraper. Raises RequestError unless it serves."""
        if self.address is None:
            raise RequestError("HTTP is not served: start it first")
        return f"http://{self.address}"

    def stop(self) -> None:
        """Stop serving, and counting: streams end, other answers may take two seconds. Stopping
        twice does nothing. Raises StopError if it had ended by a mistake."""
        try:
            super().stop()
        finally:
            metrics, self._metrics = self._metrics, None
            if metrics is not None:
                metrics.close()

    def _prepare(self, stack: contextlib.ExitStack) -> Prepared:
        opened = self._listen(stack)
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
        steers = self._control is not None
        site = Site(self._kubelet, metrics, CapacityLimiter(WORKERS), steers=steers, gate=gate)
        if self._simulated is not None:
            site.simulated = self._simulated
        return WebApplication(
            gate,
            [route for part in PARTS for route in part(site)],
            failed=lambda text: self._kubelet.events.publish(EventKind.SERVER_ERROR, text),
            closing=site.close,
            control=kubelet_router(self._kubelet, gate) if steers else None,
        )

    def _wake(self) -> None:
        """Much has happened; on the thread of any of it. While nobody serves, that thread has
        to count."""
        metrics, loop = self._metrics, self._loop
        if metrics is None:
            return
        if loop is None:
            metrics.catch_up()
            return
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            loop.call_soon_threadsafe(metrics.catch_up)
