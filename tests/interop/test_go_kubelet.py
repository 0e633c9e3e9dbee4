"""Plugins and clients in Go with the mock kubelet."""

import json
import subprocess

import pytest

from devicemanager.kubelet.mock import MockKubelet

GPU = "vendor.com/gpu"
TIMEOUT = 15


@pytest.fixture
def kubelet(node_dir):
    with MockKubelet(node_dir) as running:
        yield running


@pytest.fixture
def plugin(spawn, go_api, kubelet):
    """Function that starts the Go plugin and waits for its devices."""

    def start(*arguments, count=2):
        process = spawn(
            go_api / "plugin", "-dir", kubelet.plugin_dir, "-count", str(count), *arguments
        )
        process.wait_for("registered", unless="register-failed")
        kubelet.wait_for_resource(GPU, count, timeout=TIMEOUT)
        return process

    return start


@pytest.fixture
def query(podres, go_api, kubelet):
    return lambda *words: podres(kubelet.pod_resources_socket, *words, program=go_api / "podres")


def pod(name, resource=GPU, **containers):
    """Return a manifest with the number of devices of each container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "containers": [
                {"name": c, "image": "i", "resources": {"limits": {resource: count}}}
                for c, count in containers.items()
            ]
        },
    }


def allocated(admission, container="c", resource=GPU):
    assert admission.admitted, admission.message
    return list(admission.containers[container].devices[resource])


def counts(kubelet, resource=GPU):
    return kubelet.capacity()[resource], kubelet.allocatable()[resource]


def test_register_list_and_allocate(kubelet, plugin):
    peer = plugin()
    assert counts(kubelet) == (2, 2)
    admission = kubelet.admit(pod("a", c=1, d=1))
    assert allocated(admission, "c") == ["gpu-0"]
    assert allocated(admission, "d") == ["gpu-1"]
    assert [event["ids"] for event in peer.events("allocate")] == [["gpu-0"], ["gpu-1"]]
    options = admission.containers["c"].run_options
    assert dict(options.envs) == {"GPU_DEVICES": "gpu-0"}
    [mount] = options.mounts
    assert (mount.container_path, mount.host_path, mount.read_only) == (
        "/opt/gpu",
        "/usr/share",
        True,
    )
    [device] = options.devices
    assert (device.container_path, device.host_path, device.permissions) == (
        "/dev/gpu-0",
        "/dev/null",
        "rw",
    )


def test_too_many_devices_are_rejected_and_terminated_pods_free_theirs(kubelet, plugin):
    plugin()
    assert allocated(kubelet.admit(pod("a", c=1))) == ["gpu-0"]
    rejected = kubelet.admit(pod("b", c=2))
    assert (rejected.admitted, rejected.reason) == (False, "UnexpectedAdmissionError")
    assert rejected.message == (
        f"Allocate failed due to requested number of devices unavailable for {GPU}. "
        "Requested: 2, Available: 1, which is unexpected"
    )
    kubelet.terminate("uid-a")
    assert allocated(kubelet.admit(pod("c", c=2))) == ["gpu-0", "gpu-1"]


def test_error_of_go_plugin_has_text_of_kubelet(kubelet, plugin):
    plugin("-fail-allocate", "out of cheese")
    rejected = kubelet.admit(pod("a", c=1))
    assert rejected.message == (
        "Allocate failed due to rpc error: code = Unknown desc = out of cheese, which is unexpected"
    )
    assert counts(kubelet) == (2, 2)


def test_kubelet_restarts(kubelet, plugin, query):
    peer = plugin()
    assert allocated(kubelet.admit(pod("a", c=1))) == ["gpu-0"]
    for _ in range(5):
        peer.forget()
        kubelet.restart()
        peer.wait_for("registered", unless="register-failed")
        kubelet.wait_for_resource(GPU, 2, timeout=TIMEOUT)
    assert query("get", "a", "default")["containers"][0]["devices"][0]["ids"] == ["gpu-0"]
    assert allocated(kubelet.admit(pod("b", c=1))) == ["gpu-1"]
    assert [event["ids"] for event in peer.events("allocate")] == [["gpu-0"], ["gpu-1"]]


def test_killed_plugin_registers_again(kubelet, plugin):
    first = plugin()
    assert allocated(kubelet.admit(pod("a", c=1))) == ["gpu-0"]
    first.kill()
    kubelet.wait_for_resource(GPU, 0, timeout=TIMEOUT)
    assert counts(kubelet) == (2, 0)
    rejected = kubelet.admit(pod("b", c=1))
    assert (
        f"no healthy devices present; cannot allocate unhealthy devices {GPU}" in rejected.message
    )
    plugin()
    assert allocated(kubelet.admit(pod("c", c=1))) == ["gpu-1"]


def test_health_changes(kubelet, plugin, query):
    peer = plugin()
    peer.send("health", "gpu-0", "Unhealthy")
    kubelet.wait_for_resource(GPU, 1, timeout=TIMEOUT)
    assert counts(kubelet) == (2, 1)
    assert [d["ids"] for d in query("allocatable")["devices"]] == [["gpu-1"]]
    assert allocated(kubelet.admit(pod("a", c=1))) == ["gpu-1"]
    peer.send("health", "gpu-0", "Healthy")
    kubelet.wait_for_resource(GPU, 2, timeout=TIMEOUT)
    assert allocated(kubelet.admit(pod("b", c=1))) == ["gpu-0"]


def test_second_registration_on_same_socket(kubelet, plugin):
    peer = plugin()
    for command in ("register", "restart"):
        peer.call(command, reply="registered")
        kubelet.wait_for_resource(GPU, 2, timeout=TIMEOUT)
    assert allocated(kubelet.admit(pod("a", c=2))) == ["gpu-0", "gpu-1"]


def test_preferred_allocation(kubelet, plugin):
    peer = plugin("-preferred", "reverse", count=4)
    assert allocated(kubelet.admit(pod("a", c=2))) == ["gpu-2", "gpu-3"]
    request = peer.wait_for("prefer")
    assert (request["size"], sorted(request["available"])) == (2, [f"gpu-{n}" for n in range(4)])


def test_prestart(kubelet, plugin):
    peer = plugin("-prestart")
    assert allocated(kubelet.admit(pod("a", c=2), start=False)) == ["gpu-0", "gpu-1"]
    assert peer.events("prestart") == []
    kubelet.start_container("uid-a", "c")
    assert sorted(peer.wait_for("prestart")["ids"]) == ["gpu-0", "gpu-1"]


def test_allocations_are_listed(kubelet, plugin, query):
    plugin("-numa", "0,1")
    kubelet.admit(pod("a", c=2))
    kubelet.admit(pod("b", c=0))
    devices = [{"resource": GPU, "ids": [f"gpu-{node}"], "numa": [node]} for node in (0, 1)]
    listed = {entry["name"]: entry for entry in query("list")}
    assert listed["a"]["containers"] == [
        {"name": "c", "devices": devices, "cpu_ids": None, "memory_blocks": 0}
    ]
    assert listed["b"]["containers"][0]["devices"] == []
    assert query("get", "a", "default") == listed["a"]
    assert query("allocatable")["devices"] == devices
    assert query("get", "z", "default")["error"]["message"] == (
        "pod z in namespace default not found"
    )
    old = {entry["name"]: entry for entry in query("list-v1alpha1")}
    assert set(old) == {"a", "b"}
    ids = [i for d in old["a"]["containers"][0]["devices"] for i in d["ids"]]
    assert sorted(ids) == ["gpu-0", "gpu-1"]


def test_kubelet_code_reads_checkpoint(kubelet, plugin, checkpointread):
    plugin("-numa", "0,1")
    kubelet.admit(pod("a", c=2))
    done = subprocess.run(
        [checkpointread, "load", kubelet.plugin_dir], capture_output=True, text=True, check=True
    )
    content = json.loads(done.stdout)
    assert content["registered_devices"] == {GPU: ["gpu-0", "gpu-1"]}
    [entry] = content["entries"]
    assert entry.pop("AllocResp")
    assert entry == {
        "PodUID": "uid-a",
        "ContainerName": "c",
        "ResourceName": GPU,
        "DeviceIDs": {"0": ["gpu-0"], "1": ["gpu-1"]},
    }


def test_plugin_on_dpm(kubelet, spawn, dpm_plugin, at_node_paths):
    red, blue = "color.example.com/red", "color.example.com/blue"
    peer = spawn(*at_node_paths(kubelet.plugin_dir, dpm_plugin), "-names", "red,blue")
    for resource in (red, blue):
        kubelet.wait_for_resource(resource, 2, timeout=TIMEOUT)
    admission = kubelet.admit(pod("a", red, c=1))
    assert allocated(admission, resource=red) == ["red-0"]
    assert dict(admission.containers["c"].run_options.envs) == {"RED_DEVICES": "red-0"}
    peer.send("health", "blue", "blue-0", "Unhealthy")
    kubelet.wait_for_resource(blue, 1, timeout=TIMEOUT)
    # dpm never stops the server of a removed resource, so blue disappears only after a restart.
    peer.send("names", "red")
    peer.wait_for("stop", resource=blue)
    for _ in range(3):
        kubelet.restart()
        kubelet.wait_for_resource(red, 2, timeout=TIMEOUT)
    assert counts(kubelet, blue) == (0, 0)
    assert allocated(kubelet.admit(pod("b", red, c=1)), resource=red) == ["red-1"]
