"""The control API: a mock kubelet controlled from another process, in any language.

Inputs: HTTP requests on a unix socket that only its owner can open, and on TCP with a token.
Outputs: JSON, lines of JSON for events and calls, and an OpenAPI document. Needs the extra
``control``; nothing that a kubelet or a node does depends on this package.

Theory of operation. A table of operations (``operation``) is the source of everything: the
routes of the server, the OpenAPI document, the requests of the client, and the actions of
``devicemanager ctl``. ``operations`` has the table of one kubelet, ``nodes`` that of nodes in a
cluster. A request passes through three files:

* ``router`` finds the operation and calls its function,
* ``request`` reads and checks what arrives, within limits,
* ``answer`` sends the result or the problem.

Around them are ``http_server`` (sockets, connections, uvicorn) and ``access`` (who can send
requests over TCP). On the other side, ``client`` has ``MockKubeletClient``; it implements
``KubeletInterface``, so that a test runs with a kubelet of either kind.

Invariants:
* One thread with one event loop serves all clients. An operation runs on a worker thread; waits
  and streams use no thread while nothing happens.
* No client can use the memory, threads or connections of all others: bodies, answers, times
  and connections are limited.
* A request that fails in the kubelet raises the same error at the client.

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
