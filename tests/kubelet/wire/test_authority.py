"""The ``:authority`` that our clients send over unix sockets: ``localhost``, as the kubelet's.

gRPC's default, the quoted path of the socket, is rejected by servers that use Rust's h2.
"""

import socket
import threading

import grpc
import pytest

from devicemanager.plugin.simulated import SimulatedPlugin
from podresources import PodResourcesClient, PodResourcesError
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc

SETTINGS_FRAME = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
AUTHORITY = b"\x0a:authority\x09localhost"
"""The header as gRPC writes it: name and value, each after its length."""


class Recorder:
    """Listens on a socket, answers as much HTTP/2 as a client needs, and stores what it reads.

    It reads from the first connection that makes a request.
    """

    def __init__(self, path):
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self.received = b""
        self.requested = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                connection.sendall(SETTINGS_FRAME)
                self._read(connection)

    def _read(self, connection):
        received = b""
        while b"grpc-python" not in received:  # in the same frame as the authority
            try:
                data = connection.recv(65536)
            except OSError:
                return
            if not data:
                return
            received += data
        self.received = received
        self.requested.set()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def record():
    recorders = []

    def at(path):
        recorders.append(Recorder(path))
        return recorders[-1]

    yield at
    for recorder in recorders:
        recorder.close()


def test_authority_to_a_plugin_that_registers(record, make_mock_kubelet):
    kubelet = make_mock_kubelet()
    plugin = record(kubelet.plugin_dir / "p.sock")
    request = dp.RegisterRequest(version="v1beta1", endpoint="p.sock", resource_name="v.com/g")
    with (
        grpc.insecure_channel(f"unix:{kubelet.plugin_socket}") as channel,
        pytest.raises(grpc.RpcError, match="failed to get device plugin options"),
    ):
        dp_grpc.RegistrationStub(channel).Register(request, timeout=20)
    assert AUTHORITY in plugin.received


def test_authority_to_a_plugin_found_by_the_watcher(record, make_mock_kubelet):
    kubelet = make_mock_kubelet()
    plugin = record(kubelet.plugins_registry_dir / "p.sock")
    kubelet.wait_for(lambda: plugin.received)
    assert AUTHORITY in plugin.received


def test_authority_from_a_plugin_to_the_kubelet(record, tmp_path):
    kubelet = record(tmp_path / "kubelet.sock")

    with SimulatedPlugin(directory=tmp_path):
        kubelet.requested.wait(15)
    assert AUTHORITY in kubelet.received


def test_authority_from_a_client_of_pod_resources(record, tmp_path):
    kubelet = record(tmp_path / "p.sock")
    with PodResourcesClient(tmp_path / "p.sock") as client, pytest.raises(PodResourcesError):
        client.list()
    assert AUTHORITY in kubelet.received
