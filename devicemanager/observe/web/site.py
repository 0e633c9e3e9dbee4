"""Shared state of the routes of one HTTP server."""

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
"""Function that sets the health of a simulated plugin's device: ``(id, health)``."""


def _nothing_simulated() -> Mapping[str, Breakable]:
    return {}


@attrs.define(eq=False)
class Site:
    """The kubelet and the shared state of one server's routes. Use it on the server's event loop.

    Host and Origin of every request are checked before a route gets the request. A route that
    changes something must also call ``check``.
    """

    kubelet: MockKubelet
    metrics: KubeletMetrics
    workers: CapacityLimiter
    """Limit on the number of threads that run blocking handlers."""
    has_control: bool = False
    """True if this server also serves the control API."""
    simulated: Callable[[], Mapping[str, Breakable]] = _nothing_simulated
    """Function that returns a mapping: for each resource with a simulated plugin, a function that
    sets the health of a device."""
    gate: Gate = attrs.field(factory=Gate, repr=False)
    _closing: list[Callable[[], None]] = attrs.field(factory=list, init=False, repr=False)

    def check(self, request: Request) -> None:
        """Raise HttpError if a TCP request does not have the token of the control API."""
        self.gate.check(request.scope)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a function that is called when the server stops, for example to end a stream."""
        self._closing.append(callback)

    def close(self) -> None:
        """Call the functions that were registered with ``on_close``."""
        for callback in self._closing:
            callback()
