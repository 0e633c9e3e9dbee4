"""A fake API server and clients of it."""

import time

import pytest

from devicemanager.cluster.client.api import ApiClient
from devicemanager.cluster.client.credentials import load
from devicemanager.cluster.fake_apiserver import FakeApiServer


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
    """Wait until a test returns True."""

    def until(test, seconds=50):
        end = time.monotonic() + seconds
        while not test():
            assert time.monotonic() < end, f"not in {seconds} s"
            time.sleep(0.01)

    return until
