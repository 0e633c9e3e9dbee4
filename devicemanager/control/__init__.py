"""The control API: a mock kubelet controlled from another process, in any language.

Inputs: HTTP requests on a unix socket that only its owner can open, and on TCP with a token.
Outputs: JSON, lines of JSON for events and calls, and an OpenAPI document. The package needs the
extra ``control``. Kubelets and nodes work without it.

Theory of operation. A table of operations is the source of everything: the routes of the server,
the OpenAPI document, the requests of the client, and the actions of ``devicemanager ctl``. The
module ``operation`` defines tables, ``operations`` has the table for one kubelet, and ``nodes`` has
the table for the nodes of a cluster. A request passes through three modules:

* ``router`` finds the operation and calls its function,
* ``request`` reads and checks what arrives, within limits,
* ``answer`` sends the result, or the problem if the request failed.

Two modules surround these three: ``http_server`` (sockets, connections, uvicorn) and ``access``
(who can send requests over TCP). ``client`` has the client's side, ``MockKubeletClient``. It
implements ``KubeletInterface`` as ``MockKubelet`` does, so the same test can run with both.

Invariants:
* One thread with one event loop serves all clients. An operation runs on a worker thread; waits
  and streams use no thread while nothing happens.
* One client cannot exhaust memory, threads or connections: the size of bodies and responses, the
  time of a request and the number of connections are limited.
* If an operation fails in the kubelet, ``MockKubeletClient`` raises the same error.

Start reading with ``operation`` and ``router``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.control.client import MockKubeletClient
    from devicemanager.control.errors import ControlError
    from devicemanager.control.remote import RemoteAdmission, RemoteContainer, RemoteFragment
    from devicemanager.control.server import ControlServer
    from devicemanager.control.shapes import Node

__all__ = [
    "ControlError",
    "ControlServer",
    "MockKubeletClient",
    "Node",
    "RemoteAdmission",
    "RemoteContainer",
    "RemoteFragment",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ControlError": "errors",
        "ControlServer": "server",
        "MockKubeletClient": "client",
        "Node": "shapes",
        "RemoteAdmission": "remote",
        "RemoteContainer": "remote",
        "RemoteFragment": "remote",
    },
)
