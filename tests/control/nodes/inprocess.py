"""The control API of the nodes of a ``World``, without a socket."""

from __future__ import annotations

from pathlib import Path

import anyio

from devicemanager.cluster.driver_layouts import simulated_driver
from devicemanager.control.access import Gate
from devicemanager.control.api_client import Reply
from devicemanager.control.nodes.server import NodesControlServer
from tests.cluster.world import World


class ControlledWorld:
    """The nodes of a world, as the control API sees them."""

    def __init__(self, world):
        self.world = world
        self.scaled = {}

    def scale(self, kind, count):
        self.scaled[kind] = count

    @property
    def nodes(self):
        return dict(self.world.nodes)

    def leave(self, names=None, how=None):
        for name in names or ():
            self.world.nodes.pop(name).leave(how)


class InProcess:
    """Answers as the server does: its router, called with what a connection passes."""

    def __init__(self, world):
        self._server = NodesControlServer(ControlledWorld(world), Path("/nowhere"))
        self.asked: list[tuple[str, str]] = []

    def ask(self, method, path, body=None, kind="application/json", timeout=60.0):
        """In place of ``Transport.ask``."""
        self.asked.append((method, path))
        target, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": target,
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "headers": [(b"content-type", kind.encode())],
            "server": ("control.sock", None),
        }
        sent = []

        async def receive():
            return {"type": "http.request", "body": body or b"", "more_body": False}

        async def send(message):
            sent.append(message)

        async def answer():
            await self._server._service(Gate())(scope, receive, send)

        anyio.run(answer)
        headers = dict(sent[0]["headers"])
        content = b"".join(each.get("body", b"") for each in sent[1:])
        return Reply(sent[0]["status"], headers.get(b"content-type", b"").decode(), content)


DRIVER = "gpu.example.com"


def two_nodes():
    """Two nodes with four devices and a DRA driver each."""
    world = World()
    drivers = (simulated_driver(DRIVER, [None, None]),)
    world.join("a", drivers=drivers)
    world.join("b", drivers=drivers)
    return world
