"""Options of ``devicemanager join`` that name and describe nodes, on the fake and on a real control
plane."""

import json
import re
import signal
import socket
import subprocess

import pytest

from devicemanager.client.lease_controller import HOLDER, PATH
from tests.cluster.peers.processes import COMMAND, stop

GPU = "vendor.com/gpu"

pytestmark = pytest.mark.timeout(900)


def nodes(peer):
    query = {"labelSelector": f"group={peer.name}"}
    found = peer.request("GET", "/api/v1/nodes", query=query)["items"]
    return {each["metadata"]["name"]: each for each in found}


def amounts(node, *names):
    return [node["status"]["capacity"][name] for name in names]


def keys(node):
    return {each["key"] for each in node["spec"]["taints"]}


def test_second_process_does_not_take_live_nodes_over(join_command, peer):
    """The nodes have the name of the machine, so two processes on it have the same nodes."""
    label = ["--label", f"group={peer.name}"]
    name = re.sub("[^a-z0-9]+", "-", socket.gethostname().partition(".")[0].lower())
    name = f"virtual-{name[:30].strip('-')}-0"

    def is_held_by(process):
        holder = peer.request("GET", f"{PATH}/{name}")["metadata"]["annotations"][HOLDER]
        return holder == f"{socket.gethostname()}/{process.pid}"

    first = join_command(*label)
    peer.wait(lambda: is_held_by(first))
    assert list(nodes(peer)) == [name]
    refused = join_command(*label, stderr=subprocess.PIPE)
    _, error = refused.communicate(timeout=120)
    assert refused.returncode == 2
    text = f"process {first.pid} on {socket.gethostname()} runs the existing node {name}: "
    assert text in error and "or --take-over" in error and error.count("\n") == 1
    peer.ready(name)
    # The process hangs, but its lease is fresh.
    first.send_signal(signal.SIGSTOP)
    second = join_command(*label, "--take-over")
    peer.wait(lambda: is_held_by(second))
    stop(first, signal.SIGKILL)
    # A process that has ended holds nothing.
    stop(second, signal.SIGKILL)
    third = join_command(*label)
    peer.wait(lambda: is_held_by(third))
    stop(third)
    assert not nodes(peer)


def unschedulable(peer, name):
    conditions = peer.get(name)["status"].get("conditions", ())
    return any(each.get("reason") == "Unschedulable" for each in conditions)


def test_options_describe_all_nodes(join_command, peer):
    join_command(
        *("--prefix", peer.name, "--nodes", 2, "--simulate", f"{GPU}=1"),
        *("--cpu", "4", "--memory", "8Gi", "--pods", 2, "--pod-cidr", "10.99.0.0/24"),
        *("--label", f"group={peer.name}", "--label", "zone=a"),
        *("--taint", "team=x:NoSchedule", "--no-taint"),
    )
    names = [f"{peer.name}-0", f"{peer.name}-1"]
    peer.ready(*names)
    for node in nodes(peer).values():
        assert amounts(node, "cpu", "memory", "pods", GPU) == ["4", "8Gi", "2", "1"]
        assert node["metadata"]["labels"]["zone"] == "a"
        assert keys(node) == {"team"}

    def container(**requests):
        return [{"name": "main", "image": "i", "resources": {"requests": requests}}]

    def reason(name, **requests):
        peer.pod(name, 0, nodeName=names[0], containers=container(**requests))
        return peer.phase(name, "Failed")["status"]["reason"]

    assert reason("cpu", cpu="5") == "OutOfcpu"
    assert reason("memory", memory="9Gi") == "OutOfmemory"
    # The scheduler knows the sizes and the taints, too.
    peer.pod("large", 0, containers=container(cpu="5"))
    peer.pod("intolerant", 0, tolerations=[])
    for name in ("large", "intolerant"):
        peer.wait(lambda name=name: unschedulable(peer, name), name)
    for index in range(4):
        peer.pod(f"p{index}", 0)
    running = [peer.phase(f"p{index}", "Running") for index in range(4)]
    assert all(each["status"]["podIP"].startswith("10.99.0.") for each in running)
    peer.pod("fifth", 0)
    peer.wait(lambda: unschedulable(peer, "fifth"))


KINDS = """
kinds:
- name: gpu
  count: 1
  labels: {zone: a}
  taints: [{key: gpu, effect: NoSchedule}]
  capacity: {cpu: 8, pods: 20}
  devices: {vendor.com/gpu: "4@0,1"}
- name: cpu
  count: 2
"""


def test_file_of_kinds_describes_nodes(join_command, peer, directory):
    file = directory / "nodes.yaml"
    file.write_text(KINDS)
    words = ["-f", file, "--prefix", peer.name, "--label", f"group={peer.name}"]
    join_command(*words, "--memory", "16Gi", "--control", "--root", directory)
    gpu, *cpus = [f"{peer.name}-{each}" for each in ("gpu-0", "cpu-0", "cpu-1", "cpu-2")]
    peer.ready(gpu, *cpus[:2])
    found = nodes(peer)
    assert amounts(found[gpu], "cpu", "memory", "pods", GPU) == ["8", "16Gi", "20", "4"]
    assert found[gpu]["metadata"]["labels"]["zone"] == "a"
    assert keys(found[gpu]) == {"gpu", "devicemanager.io/virtual"}
    assert amounts(found[cpus[0]], "cpu", "memory", "pods") == ["64", "16Gi", "110"]
    assert GPU not in found[cpus[0]]["status"]["capacity"]
    peer.pod("a", 4)
    assert peer.phase("a", "Running")["spec"]["nodeName"] == gpu

    def scale(count):
        words = [COMMAND, "ctl", "nodes", "scale", f"cpu={count}", "--control", directory]
        subprocess.run(list(map(str, words)), check=True)

    scale(3)
    peer.ready(*cpus)
    scale(0)
    assert list(nodes(peer)) == [gpu]


def test_drivers_of_kinds_publish_slices(join_command, peer, directory):
    if peer.minor < 34:
        pytest.skip("resource.k8s.io/v1 exists since 1.34")
    recorded = {
        "metadata": {"name": "recorded"},
        "spec": {
            "driver": f"nic.{peer.name}.example.com",
            "nodeName": "worker",
            "pool": {"name": "worker", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "nic-0", "attributes": {"speed": {"int": 100}}}],
        },
    }
    (directory / "slices.json").write_text(json.dumps([recorded]))
    gpu = f"gpu.{peer.name}.example.com"
    details = {"attributes": {"model": "a100"}, "capacity": {"memory": "80Gi"}}
    drivers = [{"name": gpu, "devices": "2@0,1", **details}, {"slices": "slices.json"}]
    kinds = {"kinds": [{"name": "gpu", "count": 2, "drivers": drivers}, {"name": "cpu"}]}
    file = directory / "nodes.json"
    file.write_text(json.dumps(kinds))
    join_command("-f", file, "--prefix", peer.name, "--label", f"group={peer.name}")

    def slices():
        found = peer.request("GET", "/apis/resource.k8s.io/v1/resourceslices")["items"]
        specs = [each["spec"] for each in found if peer.name in each["spec"]["driver"]]
        return specs if len(specs) == 4 else None

    found = {(each["nodeName"], each["driver"]): each for each in peer.wait(slices)}
    assert {name for name, _ in found} == {f"{peer.name}-gpu-0", f"{peer.name}-gpu-1"}
    for name in (f"{peer.name}-gpu-0", f"{peer.name}-gpu-1"):
        assert found[name, recorded["spec"]["driver"]]["devices"] == recorded["spec"]["devices"]
        devices = found[name, gpu]["devices"]
        assert [each["attributes"]["numaNode"] for each in devices] == [{"int": 0}, {"int": 1}]
        assert devices[1]["attributes"]["model"] == {"string": "a100"}
        assert devices[1]["capacity"] == {"memory": {"value": "80Gi"}}
