"""A stub API server and a client of it."""

import time

import pytest

from devicemanager.cluster.client.api import ApiClient
from devicemanager.cluster.client.credentials import load
from devicemanager.cluster.fake_apiserver import FakeApiServer


@pytest.fixture
def stub():
    with FakeApiServer() as server:
        yield server


@pytest.fixture
def connect(stub, tmp_path):
    """Makes clients; all are closed at the end."""
    clients = []

    def connect(**options):
        client = ApiClient(load(stub.kubeconfig(tmp_path / "kubeconfig")), **options)
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
    """Waits until something is so."""

    def until(test, seconds=50):
        end = time.monotonic() + seconds
        while not test():
            assert time.monotonic() < end, f"not in {seconds} s"
            time.sleep(0.01)

    return until
