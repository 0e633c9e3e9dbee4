"""Plugins that use ``devicemanager.plugin``, with the kubelet's side in Go."""

import base64
import os
import subprocess
import sys

import pytest

from devicemanager.plugin import (
    ContainerSettings,
    Device,
    Manager,
    Mount,
    Plugin,
    PluginSettings,
    StaticLister,
)
from devicemanager.plugin.typed import FlatDevice, NetlinkDevice, PciDevice
from protos import deviceplugin_v1beta1 as dp
from tests.paths import ROOT

EXAMPLE = ROOT / "examples/python/gpu_plugin.py"
GPU = "vendor.com/gpu"
DEADLINE = 15


@pytest.fixture
def kubelet(spawn, go_api, plugin_dir):
    process = spawn(go_api / "kubeletside", "-dir", plugin_dir)
    process.generation = process.wait_for("serving")["generation"]
    return process


@pytest.fixture
def serve(plugin_dir):
    """Function that serves a plugin in this process until the end of the test."""
    managers = []

    def start(plugin):
        lister = StaticLister("vendor.com", {"gpu": plugin})
        managers.append(Manager(lister, plugin_dir, PluginSettings(stop_grace=0.2)))
        managers[-1].start()
        return plugin

    yield start
    for manager in managers:
        manager.stop()


@pytest.fixture
def example(plugin_dir, node_dir):
    """The example of the docs in a separate process, with a different device directory."""
    nodes = node_dir / "dev"
    nodes.mkdir()
    for name in ("gpu0", "gpu1", "gpuctl"):
        (nodes / name).touch()
    source = EXAMPLE.read_text()
    assert source.count('Path("/dev")') == 1
    program = source.replace('Path("/dev")', f"Path({str(nodes)!r})")
    environment = os.environ | {"DEVICE_PLUGIN_DIRECTORY": str(plugin_dir)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        yield process
        process.kill()


def healthy(*ids):
    return [{"id": id_, "health": "Healthy", "numa": None} for id_ in ids]


def node(path):
    return {"container_path": path, "host_path": path, "permissions": "rw"}


def test_complete_plugin_of_docs(kubelet, example, plugin_dir):
    assert kubelet.wait_for("register") == {
        "event": "register",
        "version": "v1beta1",
        "endpoint": "vendor.com_gpu",
        "resource": GPU,
        "options": {"pre_start_required": False, "get_preferred_allocation_available": False},
    }
    assert kubelet.wait_for("list")["devices"] == healthy("gpu0", "gpu1")
    for _ in range(2):
        reply = kubelet.call("allocate", GPU, "gpu1,gpu0", reply="allocated")
        [allocation] = reply["containers"]
        assert allocation["devices"] == [node("/dev/gpu0"), node("/dev/gpu1")]
        kubelet.forget()
        kubelet.call("restart", reply="serving")
        assert kubelet.wait_for("list")["devices"] == healthy("gpu0", "gpu1")
    error = kubelet.call("allocate", GPU, "gpuctl", reply="rpc-error")
    assert (error["code"], error["message"]) == (
        "NotFound",
        "unknown device gpuctl",
    )
    example.terminate()
    assert example.wait(DEADLINE) == 0
    kubelet.wait_for("list-ended")
    assert [path.name for path in plugin_dir.iterdir()] == ["kubelet.sock"]


class Gpus(Plugin):
    """A plugin that implements all optional methods and returns all kinds of settings."""

    def __init__(self):
        self.started = []

    def devices(self):
        return [Device("gpu-0", numa=0), Device("gpu-1", healthy=False, numa=(0, 1)), "gpu-2"]

    def allocate(self, device_ids):
        return ContainerSettings(
            envs={"GPUS": ",".join(device_ids)},
            mounts=[Mount(container_path="/opt/gpu", host_path="/usr/share", read_only=True)],
            devices=["/dev/null"],
            annotations={GPU: "yes"},
            cdi_devices=[f"{GPU}={id_}" for id_ in device_ids],
        )

    def preferred_allocation(self, available, must_include, size):
        return sorted(available, reverse=True)

    def pre_start_container(self, device_ids):
        self.started.append(list(device_ids))


def test_all_calls_and_all_settings(kubelet, serve):
    plugin = serve(Gpus())
    assert kubelet.wait_for("options")["options"] == {
        "pre_start_required": True,
        "get_preferred_allocation_available": True,
    }
    assert kubelet.wait_for("list")["devices"] == [
        {"id": "gpu-0", "health": "Healthy", "numa": [0]},
        {"id": "gpu-1", "health": "Unhealthy", "numa": [0, 1]},
        {"id": "gpu-2", "health": "Healthy", "numa": None},
    ]
    reply = kubelet.call("prefer", GPU, "gpu-0,gpu-1,gpu-2", "gpu-0", 2, reply="preferred")
    assert reply["containers"] == [["gpu-0", "gpu-2"]]
    [allocation] = kubelet.call("allocate", GPU, "gpu-2,gpu-0", reply="allocated")["containers"]
    allocation.pop("stored")
    assert allocation == {
        "envs": {"GPUS": "gpu-0,gpu-2"},
        "mounts": [{"container_path": "/opt/gpu", "host_path": "/usr/share", "read_only": True}],
        "devices": [node("/dev/null")],
        "annotations": {GPU: "yes"},
        "cdi_devices": [f"{GPU}=gpu-0", f"{GPU}=gpu-2"],
    }
    kubelet.call("prestart", GPU, "gpu-2,gpu-0", reply="prestarted")
    assert plugin.started == [["gpu-0", "gpu-2"]]
    error = kubelet.call("allocate", GPU, "gpu-1", reply="rpc-error")
    assert (error["code"], error["message"]) == ("FailedPrecondition", "device gpu-1 is unhealthy")


def test_change_after_each_restart_arrives(kubelet, serve):
    plugin = serve(Gpus())
    kubelet.wait_for("list")
    for number in range(10):
        kubelet.forget()
        kubelet.call("restart", reply="serving")
        kubelet.wait_for("list")
        plugin.update([f"gpu-{number}"])
        kubelet.wait_for("list", devices=healthy(f"gpu-{number}"))
    reply = kubelet.call("allocate", GPU, "gpu-9", reply="allocated")
    assert reply["containers"][0]["envs"] == {"GPUS": "gpu-9"}


class Typed(Gpus):
    def allocate(self, device_ids):
        return ContainerSettings(
            envs={"NIC": "zero"},
            typed_devices=[
                FlatDevice(identifier_container="/dev/nic0", identifier_host="/dev/null"),
                NetlinkDevice("eth42", "net0"),
                PciDevice("8086", "1572"),
            ],
        )


def test_kubelet_without_typed_devices_mounts_paths(kubelet, serve):
    serve(Typed())
    kubelet.wait_for("list")
    [allocation] = kubelet.call("allocate", GPU, "gpu-0", reply="allocated")["containers"]
    stored = dp.ContainerAllocateResponse.FromString(base64.b64decode(allocation.pop("stored")))
    assert allocation["devices"] == [{**node("/dev/nic0"), "host_path": "/dev/null"}]
    assert allocation["envs"] == {"NIC": "zero"}
    # Kubelets up to 1.34 drop unknown fields; later ones store them.
    kinds = [device.WhichOneof("device") for device in stored.typed_devices]
    assert kinds == ([] if kubelet.generation == "gogo" else ["filesystem", "netlink", "pci"])
