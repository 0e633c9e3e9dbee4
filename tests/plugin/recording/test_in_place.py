"""A recorder in place of the kubelet's socket: plugins need no change."""

import subprocess
import sys

import pytest

from devicemanager.plugin.recording import Recorder, Recording
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from podresources.sockets import is_alive
from tests.plugin.recording.conftest import GPU
from tests.plugin.stubkubelet import StubKubelet

SIMULATION = SimulationSettings(resource_name=GPU, plugin_name="gpu", node_name="n")
TWO = {"simple-device-n-0": "Healthy", "simple-device-n-1": "Healthy"}


def endpoints(kubelet):
    return [request.endpoint for request in kubelet.requests]


def recorded(kubelet, plugin):
    """Wait until the plugin is registered through the recorder; return the connection."""

    def connections(stub):
        return [
            each
            for each in stub.connections
            if each.request.endpoint == "recorded-gpu.sock" and each.devices == TWO
        ]

    kubelet.wait(connections, "the recorder")
    assert plugin.wait_registered()
    return connections(kubelet)[-1]


@pytest.fixture
def plugin(kubelet):
    """A plugin that is registered before the recorder starts."""
    with SimulatedPlugin(SIMULATION, kubelet.directory) as running:
        kubelet.wait_devices(TWO)
        yield running


def test_plugins_register_with_the_recorder_and_then_with_the_kubelet(directory, kubelet, plugin):
    path = directory / "r.ndjson"
    with Recorder(path, kubelet.directory, in_place=True):
        kubelet.wait(lambda stub: endpoints(stub) == ["gpu.sock", "recorded-gpu.sock"])
        kubelet.wait_devices(TWO)
        kubelet.plugin().allocate(["simple-device-n-0"])
    kubelet.wait(lambda stub: endpoints(stub)[2:] == ["gpu.sock"])
    kubelet.wait_devices(TWO)
    assert sorted(each.name for each in kubelet.directory.iterdir()) == ["gpu.sock", "kubelet.sock"]
    [registration] = Recording.load(path).registrations(GPU)
    assert registration.register.plugin == "gpu.sock"
    assert [call.rpc for call in registration.calls] == ["GetDevicePluginOptions", "Allocate"]


def test_restarted_kubelet_is_replaced_again(directory, kubelet, plugin):
    path = directory / "r.ndjson"
    with Recorder(path, kubelet.directory, in_place=True):
        recorded(kubelet, plugin)
        kubelet.restart()
        # The plugin can have registered with the new kubelet before the recorder noticed it.
        recorded(kubelet, plugin).allocate(["simple-device-n-1"])
    first, *_, last = Recording.load(path).registrations(GPU)
    assert (first.register.kubelet, last.register.kubelet) == (1, 2)
    assert last.calls[-1].rpc == "Allocate"


def test_stopped_kubelet_gets_no_socket_back(directory):
    kubelet = StubKubelet(directory / "k").start()
    with Recorder(directory / "r.ndjson", kubelet.directory, in_place=True):
        kubelet.stop()
    assert list(kubelet.directory.iterdir()) == []


RECORDER = """
import sys
from pathlib import Path
from devicemanager.plugin.recording import Recorder
Recorder(Path(sys.argv[1]), Path(sys.argv[2]), in_place=True).start()
print("records", flush=True)
sys.stdin.read()
"""


def test_next_recorder_restores_the_socket_after_a_kill(directory, kubelet):
    socket = kubelet.directory / "kubelet.sock"
    left = kubelet.directory / ".kubelet.sock.recorded"
    arguments = [sys.executable, "-c", RECORDER, directory / "1.ndjson", kubelet.directory]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(arguments, **pipes) as recorder:
        assert recorder.stdout.readline() == b"records\n"
        recorder.kill()
    assert left.is_socket() and not is_alive(socket)
    with Recorder(directory / "2.ndjson", kubelet.directory, in_place=True) as recorder:
        with SimulatedPlugin(SIMULATION, kubelet.directory):
            kubelet.wait_devices(TWO)
        assert recorder.calls
    assert is_alive(socket) and not left.exists()


def test_kubelet_that_starts_later_is_found(directory):
    kubelet = StubKubelet(directory / "k")
    kubelet.directory.mkdir()
    path, reports = directory / "r.ndjson", []
    recorder = Recorder(path, kubelet.directory, in_place=True, report=reports.append)
    with recorder, kubelet, SimulatedPlugin(SIMULATION, kubelet.directory):
        kubelet.wait(lambda stub: "recorded-gpu.sock" in endpoints(stub))
    assert reports[0] == f"waiting for a kubelet in {kubelet.directory}"
