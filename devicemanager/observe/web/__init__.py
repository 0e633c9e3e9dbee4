"""The kubelet's HTTP endpoints and the live page. Needs the extra ``http``.

Theory of operation. One server on one event loop serves everything.

In:  a ``MockKubelet`` (``HttpServer``) or the kubelets of many nodes (``NodesServer``).
Out: health checks, pods, metrics, ``/configz``, container logs and the live page, with the
     paths and formats of the kubelet; also the control API, if it is enabled.

``app`` gets each request first, checks its Host and Origin, and passes it to a route. ``endpoints``
has the routes of one kubelet, ``nodes`` has the routes of many kubelets, and ``page`` has the live
page. ``Site`` is the state that routes share. ``answers`` has the response bodies of both servers.

Invariants:
* Every client that can reach the address can read. Changes require the token.
* Handlers that can block run on worker threads. Health checks do not use workers, so that they
  respond even if all workers are busy.
* The modules of this package are imported only when one of the servers is used.

Start reading at ``server`` and ``endpoints``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.observe.web.nodes import NodesServer
    from devicemanager.observe.web.server import HttpServer

__all__ = ["HttpServer", "NodesServer"]

__getattr__, __dir__ = lazy_names(__name__, {"HttpServer": "server", "NodesServer": "nodes"})
