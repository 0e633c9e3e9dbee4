"""``record`` between a kubelet's side and a plugin in Go, then ``replay`` in the plugin's place."""

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
    """Run the command until the end of the test; ``stop`` ends it and gives its exit status."""
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
    """All that a kubelet asks, and every answer, the rejection of an unknown device included."""
    said = [kubelet.ask("prefer", GPU, "gpu-0,gpu-1", "gpu-0", 1, answer="preferred")]
    for ids in ("gpu-1", "gpu-0,gpu-1"):
        said.append(kubelet.ask("allocate", GPU, ids, answer="allocated"))
        said.append(kubelet.ask("prestart", GPU, ids, answer="prestarted"))
    said.append(kubelet.ask("allocate", GPU, "gpu-9", answer="rpc-error"))
    return said


def lists(kubelet):
    return [event["devices"] for event in kubelet.events("list")]


@pytest.mark.parametrize("in_place", [False, True], ids=["plugin-dir", "in-place"])
def test_a_replayed_plugin_says_what_the_recorded_one_said(
    spawn, go_bin, run, node_dir, plugin_dir, in_place
):
    file = node_dir / "r.ndjson"
    kubelet = spawn(go_bin / "kubeletside", "-dir", plugin_dir)
    kubelet.wait_for("serving")
    theirs = plugin_dir if in_place else node_dir / "p"
    theirs.mkdir(exist_ok=True)
    if in_place:
        options = ["--kubelet-dir", plugin_dir]
        sign = plugin_dir / ".kubelet.sock.recorded"
    else:
        options = ["--kubelet-dir", plugin_dir, "--plugin-dir", theirs]
        sign = theirs / "kubelet.sock"
    recorder = run("record", *options, "-o", file)
    wait_for_socket(sign, recorder)
    plugin = spawn(
        go_bin / "plugin", "-dir", theirs, "-numa", "0,1", "-preferred", "lexical", "-prestart"
    )
    registered = kubelet.wait_for("register")
    kubelet.wait_for("list")
    before = conversation(kubelet)
    plugin.send("health", "gpu-1", "Unhealthy")
    kubelet.wait_for("list")
    kubelet.ask("restart", answer="serving")
    kubelet.wait_for("list")
    assert stop(recorder)[0] == 0
    assert plugin.terminate() == 0
    assert kubelet.terminate() == 0
    assert len(lists(kubelet)) >= 3

    second = spawn(go_bin / "kubeletside", "-dir", plugin_dir)
    second.wait_for("serving")
    replay = run("replay", file, "--immediate", "--directory", plugin_dir)
    again = second.wait_for("register")
    # Under another name in place: there its own socket has that of the plugin.
    assert again == registered | {"endpoint": "go-plugin.sock"}
    for _ in range(2):
        second.wait_for("list")
    assert conversation(second) == before
    second.ask("restart", answer="serving")
    second.wait_for("list")
    assert lists(second)[:3] == lists(kubelet)[:3]
    assert not second.events("rpc-error")[1:]
    assert stop(replay) == (0, "")
