"""Two peers for the same tests: the fake API server, and a real control plane if available."""

import contextlib
import itertools
import os
import time

import pytest

from devicemanager.apiserver import Controllers, FakeApiServer
from devicemanager.client.api import ApiClient, pod_path
from devicemanager.client.credentials import load
from devicemanager.client.errors import ApiError, Conflict, NotFound
from devicemanager.cluster import Cluster
from tests.cluster.peers.processes import start, stop
from tools.cluster.build import VARIABLE, BuildError, binaries

GPU = "vendor.com/gpu"
_NUMBERS = itertools.count()
_PAUSE = 0.05
_ROUNDS = {"fake": 500, "real": 2400}
"""Rounds of a wait: on an idle machine 25 s for the fake API server, and 120 s for a real one."""


class Peer:
    """A cluster as tests see it: its API, in one namespace per test."""

    def __init__(self, kind, kubeconfig, rounds):
        self.kind = kind
        self.kubeconfig = kubeconfig
        self.api = ApiClient(load(kubeconfig))
        self.name = f"t{os.getpid()}-{next(_NUMBERS)}"
        self._rounds = rounds

    @property
    def minor(self):
        """Minor version of the API server."""
        return int(self.request("GET", "/version")["minor"])

    def request(self, *args, **options):
        return self.api.request(*args, **options)

    def wait(self, test, what=""):
        """Wait until ``test`` returns a true value; return it.

        The limit is a number of rounds, not a time: most rounds have a request, which a loaded
        machine delays as much as what the test waits for.
        """
        for _ in range(self._rounds):
            missing = None
            try:
                if found := test():
                    return found
            except NotFound as error:
                missing = error
            time.sleep(_PAUSE)
        raise AssertionError(f"{what or test}: not in {self._rounds} rounds ({missing or 'found'})")

    def create(self, path, value):
        """Create an object in the namespace; retry while its service account does not exist."""

        def created():
            try:
                return self.request(
                    "POST", f"{path}/namespaces/{self.name}/{value['plural']}", body
                )
            except ApiError as error:
                if error.code == 403 and "serviceaccount" in error.message:
                    return None
                raise

        body = {key: part for key, part in value.items() if key != "plural"}
        return self.wait(created)

    def pod(self, name, gpus=1, *, metadata=None, **spec):
        """Create a pod that requests devices."""
        container = {
            "name": "main",
            "image": "example.com/main",
            "resources": {"limits": {GPU: str(gpus)}} if gpus else {},
        }
        return self.create(
            "/api/v1",
            {
                "plural": "pods",
                "metadata": {"name": name, **(metadata or {})},
                "spec": {
                    "containers": [container],
                    "tolerations": [{"operator": "Exists"}],
                    "nodeSelector": {"group": self.name},
                    "terminationGracePeriodSeconds": 5,
                    **spec,
                },
            },
        )

    def get(self, name):
        return self.request("GET", pod_path(self.name, name))

    def pods(self):
        return self.request("GET", f"/api/v1/namespaces/{self.name}/pods")["items"]

    def delete(self, name):
        self.request("DELETE", pod_path(self.name, name))

    def phase(self, name, *phases):
        """Wait until a pod is in one of the phases."""

        def reached():
            found = self.get(name)
            return found if found["status"].get("phase") in phases else None

        return self.wait(reached, f"{name} {phases}")

    def gone(self, name):
        def is_gone():
            try:
                self.get(name)
            except NotFound:
                return True
            return False

        self.wait(is_gone, f"{name} gone")

    def ready(self, *names):
        """Wait until these nodes are Ready and without the not-ready taint."""

        def are():
            for name in names:
                node = self.request("GET", f"/api/v1/nodes/{name}")
                conditions = node["status"].get("conditions", ())  # an autoscaler writes none
                ready = {each["type"]: each["status"] for each in conditions}
                taints = [each["key"] for each in node["spec"].get("taints", ())]
                if ready.get("Ready") != "True" or "node.kubernetes.io/not-ready" in taints:
                    return False
            return True

        self.wait(are, f"{names} ready")

    def start(self):
        try:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}
            self.request("POST", "/api/v1/namespaces", body)
        except Conflict:
            pass

    def close(self):
        self.api.close()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory):
    """The real control plane, started once."""
    try:
        directory = binaries()
    except BuildError as error:
        pytest.skip(str(error))
    if VARIABLE not in os.environ:
        pytest.skip(f"`make test-cluster` runs these on a real control plane ({VARIABLE})")
    from tools.cluster.peer import ControlPlane

    with ControlPlane(directory, tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture
def make_peer(request, tmp_path):
    """Create a peer of a kind, ``fake`` or ``real``."""
    with contextlib.ExitStack() as stack:

        def make_peer(kind):
            if kind == "fake":
                apiserver = stack.enter_context(FakeApiServer())
                stack.enter_context(Controllers(apiserver))
                found = Peer(kind, apiserver.kubeconfig(tmp_path / "kubeconfig"), _ROUNDS[kind])
            else:
                kubeconfig = request.getfixturevalue("control_plane").kubeconfig
                found = Peer(kind, kubeconfig, _ROUNDS[kind])
            stack.callback(found.close)
            found.start()
            return found

        yield make_peer


@pytest.fixture(params=["fake", pytest.param("real", marks=[pytest.mark.interop])])
def peer(request, make_peer):
    return make_peer(request.param)


@pytest.fixture
def cluster(peer):
    """The cluster of devicemanager's nodes."""
    with Cluster.connect(peer.kubeconfig) as found:
        yield found


@pytest.fixture
def join_command(peer, directory):
    """Start ``devicemanager join`` with options, and return the process.

    It ends before ``directory`` is removed, which can be its root.
    """
    with contextlib.ExitStack() as stack:

        def join_command(*words, **options):
            process = start("join", "--kubeconfig", peer.kubeconfig, *words, **options)
            stack.enter_context(process)
            stack.callback(stop, process)
            return process

        yield join_command
