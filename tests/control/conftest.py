"""A kubelet on a manual clock, its control API, a client of it."""

from __future__ import annotations

import pytest

from devicemanager import ManualClock
from devicemanager.control import ControlServer, MockKubeletClient
from devicemanager.control.api_client import transport_to


@pytest.fixture
def mock_kubelet(make_mock_kubelet):
    return make_mock_kubelet(clock=ManualClock(1000.0))


@pytest.fixture
def server(mock_kubelet):
    with ControlServer(mock_kubelet) as server:
        yield server


@pytest.fixture
def client(server):
    return MockKubeletClient(server.socket_path)


@pytest.fixture
def raw(server):
    """Requests without the client's methods."""
    return transport_to(server.socket_path)
