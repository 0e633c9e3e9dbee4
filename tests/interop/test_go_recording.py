"""``record`` between kubelet's side and plugin in Go, then ``replay`` in place of the plugin."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("devicemanager")
GPU = "vendor.com/gpu"
DEADLINE = 30


@pytest.fixture
def run():
    """Function that starts the command; it is killed after the test."""
    running = []

    def start(*arguments):
        running.append(
            subprocess.Popen(
                [COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def stop(process):
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=DEADLINE)
    return process.returncode, printed


def wait_for_socket(path, process):
    deadline = time.monotonic() + DEADLINE
    while not path.is_socket():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def conversation(kubelet):
    """Make every call of a kubelet, also with an unknown device; return the replies."""
    replies = [kubelet.call("prefer", GPU, "gpu-0,gpu-1", "gpu-0", 1, reply="preferred")]
    for ids in ("gpu-1", "gpu-0,gpu-1"):
        replies.append(kubelet.call("allocate", GPU, ids, reply="allocated"))
        replies.append(kubelet.call("prestart", GPU, ids, reply="prestarted"))
    replies.append(kubelet.call("allocate", GPU, "gpu-9", reply="rpc-error"))
    return replies


def lists(kubelet):
    return [event["devices"] for event in kubelet.events("list")]


@pytest.mark.parametrize("in_place", [False, True], ids=["plugin-dir", "in-place"])
def test_replayed_plugin_responds_as_recorded_one(
    spawn, go_bin, run, node_dir, plugin_dir, in_place
):
    file = node_dir / "r.ndjson"
    kubelet = spawn(go_bin / "kubeletside", "-dir", plugin_dir)
    kubelet.wait_for("serving")
    recorded_dir = plugin_dir if in_place else node_dir / "p"
    recorded_dir.mkdir(exist_ok=True)
    if in_place:
        options = ["--kubelet-dir", plugin_dir]
        ready = plugin_dir / ".kubelet.sock.recorded"
    else:
        options = ["--kubelet-dir", plugin_dir, "--plugin-dir", recorded_dir]
        ready = recorded_dir / "kubelet.sock"
    recorder = run("record", *options, "-o", file)
    wait_for_socket(ready, recorder)
    plugin = spawn(
        go_bin / "plugin",
        "-dir",
        recorded_dir,
        "-numa",
        "0,1",
        "-preferred",
        "lexical",
        "-prestart",
    )
    registered = kubelet.wait_for("register")
    kubelet.wait_for("list")
    before = conversation(kubelet)
    plugin.send("health", "gpu-1", "Unhealthy")
    kubelet.wait_for("list")
    # Only a list after the restart shows that the second stream is recorded.
    kubelet.forget()
    kubelet.call("restart", reply="serving")
    kubelet.wait_for("list")
    assert stop(recorder)[0] == 0
    assert plugin.terminate() == 0
    assert kubelet.terminate() == 0
    assert len(lists(kubelet)) >= 3

    second = spawn(go_bin / "kubeletside", "-dir", plugin_dir)
    second.wait_for("serving")
    replay = run("replay", file, "--immediate", "--directory", plugin_dir)
    replayed = second.wait_for("register")
    # The replay uses the plugin's endpoint name. An in-place proxy registered a different one,
    # because the plugin's socket was in the same directory.
    assert replayed == registered | {"endpoint": "go-plugin.sock"}
    for _ in range(2):
        second.wait_for("list")
    assert conversation(second) == before
    second.call("restart", reply="serving")
    second.wait_for("list")
    assert lists(second)[:3] == lists(kubelet)[:3]
    assert not second.events("rpc-error")[1:]
    assert stop(replay) == (0, "")
