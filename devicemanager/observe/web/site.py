"""State that the routes of one HTTP server share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from anyio import CapacityLimiter
from starlette.requests import Request

from devicemanager.control.access import Gate
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.observe.metrics.kubelet import KubeletMetrics

__all__ = ["Breakable", "Site"]

Breakable = Callable[[str, str], None]
"""Sets the health of a simulated plugin's device: ``(id, health)``."""


def _nothing_simulated() -> Mapping[str, Breakable]:
    return {}


@attrs.define(eq=False)
class Site:
    """Kubelet and resources of one server. Use it on the server's event loop.

    Host and Origin of every request are checked before a route gets it. A route that changes
    something must also call ``check``.
    """

    kubelet: MockKubelet
    metrics: KubeletMetrics
    workers: CapacityLimiter
    """Limit of worker threads for handlers that block."""
    has_control: bool = False
    """True if the control API is served here."""
    simulated: Callable[[], Mapping[str, Breakable]] = _nothing_simulated
    """Returns the simulated plugins that run with the kubelet, by resource."""
    gate: Gate = attrs.field(factory=Gate, repr=False)
    _closing: list[Callable[[], None]] = attrs.field(factory=list, init=False, repr=False)

    def check(self, request: Request) -> None:
        """Raise HttpError unless the request has the token or came over the unix socket."""
        self.gate.check(request.scope)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a function that ends a stream when the server ends."""
        self._closing.append(callback)

    def close(self) -> None:
        """End all streams, because the server ends."""
        for callback in self._closing:
            callback()
