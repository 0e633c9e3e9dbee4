"""Plugins as processes of their own: signals, kills, and the examples of the docs."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from devicemanager.plugin import Manager
from devicemanager.plugin.signals import STOP_SIGNALS
from tests.plugin.stubkubelet import PATIENCE

EXAMPLES = Path(__file__).parent.parent / "examples"
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
    """Start a plugin in the directory; what is left of it is killed in the end."""
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
def test_a_signal_ends_it_cleanly_and_leaves_no_socket(kubelet, launch, number):
    process = launch("-c", PLUGIN)
    kubelet.plugin()
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert others(kubelet.directory) == []


HOOKS = """
class Told(Gpus):
    def start(self):
        print("start", flush=True)

    def stop(self):
        print("stop", flush=True)

print("defined", flush=True)
serve(Told(), "vendor.com/gpu")
"""


@pytest.mark.parametrize("delay", [0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_at_any_moment_takes_down_what_was_set_up(kubelet, directory, number, delay):
    """From the call of serve on, that is: also while gRPC is loaded."""
    program = PLUGIN.replace('serve(Gpus(), "vendor.com/gpu")\n', HOOKS)
    environment = os.environ | {"DEVICE_PLUGIN_DIRECTORY": str(directory)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes) as process:
        try:
            assert process.stdout.readline() == b"defined\n"
            # Nothing to wait for: only so that the signals fall on different moments.
            time.sleep(0.02 + delay)
            process.send_signal(number)
            out, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, b"")
    assert out in (b"", b"start\nstop\n")
    assert others(kubelet.directory) == []


def test_a_terminal_that_goes_away_ends_it_once(kubelet, directory):
    """The kernel sends SIGHUP and the shell another, which must not cut the stop hook off."""
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
            assert process.communicate("stopped\n", timeout=PATIENCE)[0] == "stopped\n"
        finally:
            process.kill()
    assert process.returncode == 0
    assert others(kubelet.directory) == []


def test_under_nohup_a_hangup_is_nothing(kubelet, launch):
    process = launch("-c", f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{PLUGIN}")
    kubelet.plugin()
    process.send_signal(signal.SIGHUP)
    kubelet.restart()
    kubelet.plugin()
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_a_hook_that_hangs_does_not_keep_it_alive(kubelet, launch):
    process = launch("-c", PLUGIN)
    plugin = kubelet.plugin()
    from protos import deviceplugin_v1beta1 as dp

    request = dp.AllocateRequest()
    request.container_requests.add(devices_ids=["gpu-0"])
    call = plugin.stub.Allocate.future(request)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert others(kubelet.directory) == []
    assert call.exception() is not None


def test_a_second_interrupt_while_it_stops_ends_it_without_a_traceback(kubelet, directory):
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
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, errors) == (-signal.SIGINT, "")


def test_a_killed_plugin_comes_back_under_its_name(kubelet, launch):
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


def test_a_bad_configuration_is_one_line_and_an_exit_code(directory):
    program = PLUGIN.replace("vendor.com/gpu", "gpu")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "resource name 'gpu' is not valid: it has no domain, as in vendor.com/gpu"
    )


def test_the_first_example_is_a_whole_plugin_in_under_fifteen_lines(kubelet, launch):
    example = EXAMPLES / "gpu_plugin.py"
    lines = [line for line in example.read_text().splitlines() if line.strip()]
    assert len(lines) < 15
    process = launch(str(example))
    kubelet.wait(lambda k: k.connections and k.connections[0].lists, "the example's list")
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_the_second_example_follows_what_is_plugged_in(kubelet, fast, tmp_path):
    spec = importlib.util.spec_from_file_location("changing", EXAMPLES / "changing_plugin.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.ROOT = tmp_path

    def plug(card, node):
        (tmp_path / card / "device").mkdir(parents=True)
        (tmp_path / card / "device/numa_node").write_text(f"{node}\n")

    class Impatient:
        """Waits a twentieth of what the example asks for."""

        def __init__(self, event):
            self.event = event

        def __getattr__(self, name):
            return getattr(self.event, name)

        def wait(self, seconds):
            return self.event.wait(seconds / 250)

    class Models(example.Models):
        def new_plugin(self, last_name):
            plugin = super().new_plugin(last_name)
            plugin.__dict__["stopping"] = Impatient(plugin.stopping)
            return plugin

    models = Models()
    models.__dict__["stopping"] = Impatient(models.stopping)
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


def test_the_page_shows_the_examples_as_they_are():
    page = (EXAMPLES.parent.parent / "docs/plugin-author.md").read_text()
    for example in ("gpu_plugin.py", "changing_plugin.py", "test_own_plugin.py"):
        assert f"```python\n{(EXAMPLES / example).read_text()}```" in page
