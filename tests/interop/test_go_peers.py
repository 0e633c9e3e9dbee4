"""The Go plugin with the Go kubelet's side: they behave as documented in go/README.md."""

import shutil
import subprocess

import pytest

from tests.interop import gobuild

GPU = "vendor.com/gpu"


@pytest.fixture
def kubelet(spawn, go_api, plugin_dir):
    process = spawn(go_api / "kubeletside", "-dir", plugin_dir)
    process.wait_for("serving")
    return process


@pytest.fixture
def plugin(spawn, go_api, plugin_dir, kubelet):
    def start(*arguments):
        process = spawn(go_api / "plugin", "-dir", plugin_dir, *arguments)
        process.wait_for("registered", unless="register-failed")
        return process

    return start


def test_sources_are_formatted():
    gofmt = shutil.which("gofmt")
    if gofmt is None:
        pytest.skip("go is not installed")
    done = subprocess.run([gofmt, "-l", gobuild.SOURCES], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


def test_register_list_and_allocate(kubelet, plugin):
    peer = plugin("-numa", "0,1")
    assert kubelet.wait_for("register") == {
        "event": "register",
        "version": "v1beta1",
        "endpoint": "go-plugin.sock",
        "resource": GPU,
        "options": {"pre_start_required": False, "get_preferred_allocation_available": False},
    }
    assert kubelet.wait_for("list")["devices"] == [
        {"id": "gpu-0", "health": "Healthy", "numa": [0]},
        {"id": "gpu-1", "health": "Healthy", "numa": [1]},
    ]
    [allocation] = kubelet.call("allocate", GPU, "gpu-1,gpu-0", reply="allocated")["containers"]
    assert peer.wait_for("allocate")["ids"] == ["gpu-1", "gpu-0"]
    assert allocation.pop("stored")
    assert allocation == {
        "envs": {"GPU_DEVICES": "gpu-1,gpu-0"},
        "mounts": [{"container_path": "/opt/gpu", "host_path": "/usr/share", "read_only": True}],
        "devices": [
            {"container_path": f"/dev/{id}", "host_path": "/dev/null", "permissions": "rw"}
            for id in ("gpu-1", "gpu-0")
        ],
        "annotations": {GPU: "gpu-1,gpu-0"},
        "cdi_devices": [f"{GPU}=gpu-1", f"{GPU}=gpu-0"],
    }


def test_rejected_allocation_has_code_and_text(kubelet, plugin):
    plugin()
    error = kubelet.call("allocate", GPU, "gpu-9", reply="rpc-error")
    assert (error["code"], error["message"]) == ("NotFound", 'no device "gpu-9" here')


def test_preference_and_prestart(kubelet, plugin):
    peer = plugin("-prestart", "-preferred", "reverse", "-count", "4")
    assert kubelet.wait_for("options")["options"] == {
        "pre_start_required": True,
        "get_preferred_allocation_available": True,
    }
    reply = kubelet.call("prefer", GPU, "gpu-0,gpu-1,gpu-2", "gpu-0", 2, reply="preferred")
    assert reply["containers"] == [["gpu-0", "gpu-2"]]
    kubelet.call("prestart", GPU, "gpu-0", reply="prestarted")
    assert peer.wait_for("prestart")["ids"] == ["gpu-0"]


def test_health_and_number_of_devices_change(kubelet, plugin):
    peer = plugin()
    assert len(kubelet.wait_for("list")["devices"]) == 2
    peer.send("health", "gpu-0", "Unhealthy")
    assert [d["health"] for d in kubelet.wait_for("list")["devices"]] == ["Unhealthy", "Healthy"]
    peer.send("health", "gpu-0", "gone")
    assert [d["id"] for d in kubelet.wait_for("list")["devices"]] == ["gpu-1"]


def test_kubelet_restart(kubelet, plugin):
    peer = plugin()
    for _ in range(3):
        kubelet.forget()
        peer.forget()
        kubelet.call("restart", reply="serving")
        peer.wait_for("registered")
        assert len(kubelet.wait_for("list")["devices"]) == 2


def test_starting_kubelet_empties_directory(spawn, go_bin, plugin_dir):
    for name in ("old.sock", "kubelet_internal_checkpoint", "kubelet.sock"):
        (plugin_dir / name).touch()
    (plugin_dir / "subdirectory").mkdir()
    spawn(go_bin / "kubeletside", "-dir", plugin_dir).wait_for("serving")
    names = {"subdirectory", "kubelet.sock", "kubelet_internal_checkpoint"}
    assert {path.name for path in plugin_dir.iterdir()} == names


def test_stopped_plugin_leaves_no_socket(kubelet, plugin, plugin_dir):
    peer = plugin()
    kubelet.wait_for("list")
    assert peer.terminate() == 0
    kubelet.wait_for("list-ended", resource=GPU)
    assert [path.name for path in plugin_dir.iterdir()] == ["kubelet.sock"]
    assert kubelet.terminate() == 0
    assert list(plugin_dir.iterdir()) == []
