"""HTTP as the kubelet has it: health, pods, metrics, configuration, and the live page.

What belongs here: the endpoints, the server that they share with the control API, the page.
What never does: anything on the way of an admission. Needs the extra ``http``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.observe.web.nodes import NodesServer
    from devicemanager.observe.web.server import HttpServer

__all__ = ["HttpServer", "NodesServer"]

__getattr__, __dir__ = lazy_names(__name__, {"HttpServer": "server", "NodesServer": "nodes"})
