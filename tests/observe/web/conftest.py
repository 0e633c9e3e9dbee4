"""A kubelet on a manual clock, and a client of its HTTP server."""

from __future__ import annotations

import http.client
import json

import attrs
import pytest

from devicemanager import ManualClock
from devicemanager.observe.web import HttpServer


@attrs.frozen
class Response:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


def fetch(address, path, headers=None, method="GET", body=None):
    """Send one request over TCP; ``headers`` replace those of http.client."""
    client = http.client.HTTPConnection(address, timeout=20)
    try:
        client.request(method, path, body, headers or {})
        answer = client.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, names, answer.read())
    finally:
        client.close()


@pytest.fixture
def mock_kubelet(make_mock_kubelet):
    return make_mock_kubelet(clock=ManualClock(1000.0))


@pytest.fixture
def served(mock_kubelet):
    with HttpServer(mock_kubelet, "127.0.0.1:0") as server:
        yield server


@pytest.fixture
def get(served):
    return lambda path, **headers: fetch(served.address, path, headers)
