"""Plugins in separate processes: signals, kills, and the examples of the docs."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import pytest

from devicemanager.plugin import Manager
from devicemanager.plugin.common.signals import STOP_SIGNALS
from tests.paths import ROOT
from tests.plugin.stubkubelet import TIMEOUT

EXAMPLES = ROOT / "examples/python"
PLUGIN = """
from devicemanager.plugin import Plugin, serve

class Gpus(Plugin):
    def devices(self):
        return ["gpu-0"]

    def allocate(self, device_ids):
        import threading
        threading.Event().wait()

serve(Gpus(), "vendor.com/gpu")
"""

HANGING_STOP = """
def stop(self):
    print("stopping", flush=True)
    self.allocate([])

Gpus.stop = stop
"""


@pytest.fixture
def launch(directory):
    """Function that starts a plugin in the directory; processes are killed at the end."""
    running = []

    def start(*arguments):
        environment = os.environ | {"DEVICE_PLUGIN_DIRECTORY": str(directory)}
        process = subprocess.Popen([sys.executable, *arguments], env=environment)
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()


def others(directory):
    return [e.name for e in directory.iterdir() if e.name != "kubelet.sock"]


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signal_stops_the_plugin_and_leaves_no_socket(kubelet, launch, number):
    process = launch("-c", PLUGIN)
    kubelet.plugin()
    process.send_signal(number)
    assert process.wait(TIMEOUT) == 0
    assert others(kubelet.directory) == []


HOOKS = """
class Hooked(Gpus):
    def start(self):
        print("start", flush=True)

    def stop(self):
        print("stop", flush=True)

print("defined", flush=True)
serve(Hooked(), "vendor.com/gpu")
"""


@pytest.mark.parametrize("delay", [0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signal_at_any_moment_stops_what_was_started(kubelet, directory, number, delay):
    """At any moment after the call of serve, also while gRPC is imported."""
    program = PLUGIN.replace('serve(Gpus(), "vendor.com/gpu")\n', HOOKS)
    environment = os.environ | {"DEVICE_PLUGIN_DIRECTORY": str(directory)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes) as process:
        try:
            assert process.stdout.readline() == b"defined\n"
            # Not a wait for anything: each delay makes the signal arrive at another moment.
            time.sleep(0.02 + delay)
            process.send_signal(number)
            out, errors = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, b"")
    assert out in (b"", b"start\nstop\n")
    assert others(kubelet.directory) == []


def test_closed_terminal_stops_the_plugin_once(kubelet, directory):
    """Kernel and shell both send SIGHUP; the second one must not interrupt the stop hook."""
    stop = """
def stop(self):
    print("stopping", flush=True)
    print(input(), flush=True)

Gpus.stop = stop
"""
    program = PLUGIN.replace("serve(Gpus", stop + "serve(Gpus")
    environment = os.environ | {"DEVICE_PLUGIN_DIRECTORY": str(directory)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        try:
            kubelet.plugin()
            process.send_signal(signal.SIGHUP)
            assert process.stdout.readline() == "stopping\n"
            process.send_signal(signal.SIGHUP)
            assert process.communicate("stopped\n", timeout=TIMEOUT)[0] == "stopped\n"
        finally:
            process.kill()
    assert process.returncode == 0
    assert others(kubelet.directory) == []


def test_sighup_is_ignored_under_nohup(kubelet, launch):
    process = launch("-c", f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{PLUGIN}")
    kubelet.plugin()
    process.send_signal(signal.SIGHUP)
    kubelet.restart()
    kubelet.plugin()
    process.terminate()
    assert process.wait(TIMEOUT) == 0


def test_hanging_hook_does_not_prevent_the_exit(kubelet, launch):
    process = launch("-c", PLUGIN)
    plugin = kubelet.plugin()
    from protos import deviceplugin_v1beta1 as dp

    request = dp.AllocateRequest()
    request.container_requests.add(devices_ids=["gpu-0"])
    call = plugin.stub.Allocate.future(request)
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT) == 0
    assert others(kubelet.directory) == []
    assert call.exception() is not None


def test_second_interrupt_during_stop_kills_without_a_traceback(kubelet, directory):
    program = PLUGIN.replace("serve(Gpus", HANGING_STOP + "serve(Gpus")
    environment = os.environ | {"DEVICE_PLUGIN_DIRECTORY": str(directory)}
    command = [sys.executable, "-c", program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        try:
            kubelet.plugin()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "stopping\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert (process.returncode, errors) == (-signal.SIGINT, "")


def test_restarted_plugin_gets_its_socket_name_back(kubelet, launch):
    process = launch("-c", PLUGIN)
    kubelet.plugin()
    process.kill()
    process.wait()
    assert others(kubelet.directory) == ["vendor.com_gpu"]
    kubelet.requests.clear()
    launch("-c", PLUGIN)
    kubelet.wait(lambda k: k.requests, "the registration of the second process")
    kubelet.wait_devices({"gpu-0": "Healthy"})
    assert others(kubelet.directory) == ["vendor.com_gpu"]


def test_invalid_configuration_is_one_line_and_an_exit_code(directory):
    program = PLUGIN.replace("vendor.com/gpu", "gpu")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "invalid resource name 'gpu': it has no domain: use a name such as vendor.com/gpu"
    )


def test_first_example_is_a_plugin_in_under_fifteen_lines(kubelet, launch):
    example = EXAMPLES / "gpu_plugin.py"
    lines = [line for line in example.read_text().splitlines() if line.strip()]
    assert len(lines) < 15
    process = launch(str(example))
    kubelet.wait(lambda k: k.connections and k.connections[0].lists, "the example's list")
    process.terminate()
    assert process.wait(TIMEOUT) == 0


def test_second_example_follows_plugged_cards(kubelet, fast, tmp_path):
    spec = importlib.util.spec_from_file_location("changing", EXAMPLES / "changing_plugin.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.ROOT = tmp_path

    def plug(card, node):
        (tmp_path / card / "device").mkdir(parents=True)
        (tmp_path / card / "device/numa_node").write_text(f"{node}\n")

    class FastEvent:
        """An event whose waits are 250 times shorter."""

        def __init__(self, event):
            self.event = event

        def __getattr__(self, name):
            return getattr(self.event, name)

        def wait(self, seconds):
            return self.event.wait(seconds / 250)

    class Models(example.Models):
        def new_plugin(self, last_name):
            plugin = super().new_plugin(last_name)
            plugin.__dict__["stopping"] = FastEvent(plugin.stopping)
            return plugin

    models = Models()
    models.__dict__["stopping"] = FastEvent(models.stopping)
    plug("fast-0", 1)
    plug("fast-1", 0)
    with Manager(models, kubelet.directory, fast):
        kubelet.wait_devices({"fast-0": "Healthy", "fast-1": "Healthy"}, "vendor.com/fast")
        (tmp_path / "fast-1/failed").touch()
        plug("slow-0", -1)
        kubelet.wait_devices({"fast-0": "Healthy", "fast-1": "Unhealthy"}, "vendor.com/fast")
        kubelet.wait_devices({"slow-0": "Healthy"}, "vendor.com/slow")
        answer = kubelet.plugin("vendor.com/fast").allocate(["fast-0"])
        assert answer.container_responses[0].envs["CARDS"] == "fast-0"


def test_page_shows_the_examples():
    page = (ROOT / "docs/plugin-author.md").read_text()
    for example in ("gpu_plugin.py", "changing_plugin.py", "test_own_plugin.py"):
        assert f"```python\n{(EXAMPLES / example).read_text()}```" in page
