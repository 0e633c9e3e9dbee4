"""What the parts of one HTTP server share."""

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
"""Sets the health of a simulated plugin's device, by its id."""


def _nothing_simulated() -> Mapping[str, Breakable]:
    return {}


@attrs.define(eq=False)
class Site:
    """One server's kubelet and means. To be used on the server's loop.

    Every request that a route gets has passed the check of Host and Origin. One that changes
    something has to pass ``check``, too.
    """

    kubelet: MockKubelet
    metrics: KubeletMetrics
    workers: CapacityLimiter
    """Threads for what takes time."""
    steers: bool = False
    """Whether the control API answers here."""
    simulated: Callable[[], Mapping[str, Breakable]] = _nothing_simulated
    """By resource, the simulated plugins that run beside the kubelet."""
    gate: Gate = attrs.field(factory=Gate, repr=False)
    _closing: list[Callable[[], None]] = attrs.field(factory=list, init=False, repr=False)

    def check(self, request: Request) -> None:
        """Raise HttpError unless the request has the token, or came over the unix socket."""
        self.gate.check(request.scope)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call this when the server ends: streams have to come to their ends then."""
        self._closing.append(callback)

    def close(self) -> None:
        """The server ends."""
        for callback in self._closing:
            callback()
