"""The control API: a mock kubelet steered from another process, in any language.

What belongs here: the operations as one table, the HTTP server and the OpenAPI document that
are made of any such table, the client; ``nodes`` is the same for nodes in a cluster. What never
does: anything that a mock kubelet or a node cannot do without it.
Needs the extra ``control``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.control.client import MockKubeletClient
    from devicemanager.control.errors import ControlError
    from devicemanager.control.server import ControlServer

__all__ = ["ControlError", "ControlServer", "MockKubeletClient"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ControlError": "errors",
        "ControlServer": "server",
        "MockKubeletClient": "client",
    },
)
