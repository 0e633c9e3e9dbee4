"""Fixtures of tests that need an API server: a server and clients of it."""

import pytest

from devicemanager.apiserver import FakeApiServer
from devicemanager.client.api import ApiClient
from devicemanager.client.credentials import load
from tests.timing import wait_until


@pytest.fixture
def apiserver():
    with FakeApiServer() as server:
        yield server


@pytest.fixture
def connect(apiserver, tmp_path):
    """Create clients, which are closed at the end."""
    clients = []

    def connect(**options):
        client = ApiClient(load(apiserver.kubeconfig(tmp_path / "kubeconfig")), **options)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def api(connect):
    return connect()


@pytest.fixture
def until():
    """``wait_until``, as a fixture."""
    return wait_until
