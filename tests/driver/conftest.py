"""An API server with a node, and drivers on it."""

import pytest

from devicemanager.apiserver import FakeApiServer
from devicemanager.driver import DriverServer, DriverSettings
from tests.driver.kubelet_calls import KubeletCalls

NODE, DRIVER = "node-1", "gpu.vendor.com"


@pytest.fixture
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("k")
    (path / "plugins_registry").mkdir()
    return path


@pytest.fixture
def api():
    with FakeApiServer() as server:
        server.create("nodes", {"metadata": {"name": NODE}})
        yield server


def request_named(name):
    """Return a request of a claim, or with ``gpu/large`` one with an alternative."""
    name, _, subrequest = name.partition("/")
    if subrequest:
        return {"name": name, "firstAvailable": [{"name": subrequest, "deviceClassName": "gpu"}]}
    return {"name": name, "exactly": {"deviceClassName": "gpu"}}


@pytest.fixture
def claim(api):
    """Function that creates an allocated claim: ``claim("train", "gpu-0", "gpu-1")``."""

    def create(name, *devices, config=(), requests=(), **metadata):
        results = [
            each
            if isinstance(each, dict)
            else {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": each}
            for each in devices
        ]
        names = {each["request"] for each in results} | set(requests)
        spec = {"devices": {"requests": [*map(request_named, sorted(names))]}}
        made = {"metadata": {"name": name, **metadata}, "spec": spec}
        api.create("resourceclaims", made)
        allocation = {"devices": {"results": results, "config": list(config)}}

        def allocate(stored):
            return {**stored, "status": {"allocation": allocation}}

        return api.change("resourceclaims", name, allocate, subresource="status")

    return create


@pytest.fixture
def serve(api, directory):
    """Function that serves a driver in this process."""
    servers = []

    def start(driver, **options):
        settings = DriverSettings(
            node_name=NODE,
            data_dir=directory / "plugins" / DRIVER,
            registrar_dir=directory / "plugins_registry",
            cdi_dir=directory / "cdi",
            **{"kubeconfig": api.kubeconfig(directory / "kubeconfig"), **options},
        )
        servers.append(DriverServer(driver, DRIVER, settings))
        return servers[-1].start()

    yield start
    for each in servers:
        each.stop()


@pytest.fixture
def register():
    """Function that registers a served driver and returns the kubelet's calls of it."""
    calls = []

    def connect(server):
        assert server.sockets.wait_served(60)
        calls.append(KubeletCalls(server.sockets.registration_socket))
        return calls[-1]

    yield connect
    for each in calls:
        each.close()
