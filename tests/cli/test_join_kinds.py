"""Node kinds of ``join -f FILE``: numbers, labels, taints, capacity, devices, drivers."""

import argparse
import re
from types import SimpleNamespace

import pytest
import yaml

from devicemanager.apiserver import Controllers, FakeApiServer
from devicemanager.cli import join, join_options
from devicemanager.cli.options import CommandError
from devicemanager.cluster import Cluster, ClusterError
from devicemanager.core.errors import RequestError
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "cluster.md").read_text()
KINDS = re.search(r"```yaml\n(kinds:.*?)```", PAGE, re.DOTALL)[1]


@pytest.fixture
def kinds(tmp_path):
    def kinds(text, *flags):
        file = tmp_path / "nodes.yaml"
        data = text if isinstance(text, bytes | str) else yaml.safe_dump(text)
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
        parser = argparse.ArgumentParser()
        join.add(parser.add_subparsers())
        args = parser.parse_args(["join", "--prefix", "n", "-f", str(file), *flags])
        return join_options.node_kinds(args)

    return kinds


def test_each_kind_has_its_own_nodes(kinds):
    gpu, cpu = kinds(KINDS, "--label", "team=x", "--cpu", "4")
    assert (gpu.names, cpu.names) == (["n-gpu-0", "n-gpu-1"], [f"n-cpu-{i}" for i in range(3)])
    assert (dict(gpu.options.labels), dict(cpu.options.labels)) == (
        {"team": "x", "zone": "a"},
        {"team": "x"},
    )
    assert {"key": "gpu", "effect": "NoSchedule"} in gpu.options.taints
    assert len(cpu.options.taints) == 1
    amounts = {name: str(each) for name, each in gpu.options.amounts.items()}
    assert amounts == {"cpu": "8", "memory": "32Gi", "pods": "20", "ephemeral-storage": "1Ti"}
    assert str(cpu.options.amounts["cpu"]) == "4"
    kubelet = gpu.make(1)
    assert kubelet.capacity() == {"vendor.com/gpu": 4}
    assert [each.numa_nodes for each in kubelet.inventory()] == [(0,), (1,), (0,), (1,)]
    (driver,) = gpu.options.drivers
    (spec,) = driver.specs("n-gpu-1", 1, "v1")
    assert spec["devices"][1] == {
        "name": "gpu-1",
        "attributes": {
            "index": {"int": 1},
            "numaNode": {"int": 1},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:01"},
            "model": {"string": "a100"},
            "ecc": {"bool": True},
            "driverVersion": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def test_nodes_of_all_kinds_have_different_addresses(kinds):
    found = [
        specs.options_of(index, as_nodes=False).address
        for specs in kinds(KINDS)
        for index in specs.indexes
    ]
    assert len(set(found)) == 5


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"name": "No"}, "kinds[0]: invalid name 'No': use a to z, 0 to 9 and -"),
        ({"count": 1}, "kinds[0]: invalid name None"),
        ({"name": "a", "cpus": 1}, "kinds[0]: unknown field 'cpus': use name, count"),
        ({"name": "a", "count": "x"}, "kind a: invalid count 'x': expected a number of nodes"),
        ({"name": "a", "count": True}, "kind a: invalid count True: expected a number of nodes"),
        ({"name": "a", "count": -1}, "invalid number of nodes -1: use 0 to 100000"),
        ({"name": "a", "labels": {"a": "b c"}}, "kind a: invalid label 'a=b c'"),
        ({"name": "a", "taints": [{"key": "k"}]}, "kind a: invalid taint {'key': 'k'}: expected"),
        ({"name": "a", "capacity": {"cpu": "x"}}, "kind a: invalid capacity cpu: 'x': use a form"),
        (
            {"name": "a", "capacity": {"memory": "-1Gi"}},
            "kind a: invalid capacity memory: '-1Gi': use a form",
        ),
        (
            {"name": "a", "drivers": [{"name": "d", "devices": 1, "capacity": {"m": -1}}]},
            "kind a: driver 'd': invalid capacity m: -1: use a form such as 2, 500m or 8Gi",
        ),
        (
            {"name": "a", "drivers": [{"name": "d", "devices": 1, "capacity": {"m": "x"}}]},
            "kind a: driver 'd': invalid capacity m: 'x': use a form such as 2, 500m or 8Gi",
        ),
        ({"name": "a", "devices": [1]}, "kind a: invalid devices [1]: expected devices such as {"),
        ({"name": "a", "devices": {"cpu": 1}}, "kind a: invalid resource 'cpu': expected a name"),
        ({"name": "a", "devices": {"v.com/g": "x"}}, "kind a: invalid devices 'v.com/g=x'"),
        ({"name": "a", "drivers": [{"name": "d"}]}, "kind a: invalid driver {'name': 'd'}"),
        ({"name": "a", "drivers": [{"name": "D", "devices": 1}]}, "invalid driver 'D=1'"),
        (
            {"name": "a", "drivers": [{"name": "d", "devices": 1, "attributes": {"a": []}}]},
            "kind a: driver 'd': invalid attribute []",
        ),
        ({"name": "a", "drivers": [{"slices": "no.json"}]}, "no.json: No such file"),
        (
            {"name": "a", "drivers": [{"name": "d", "devices": 1}] * 2},
            "driver d is given twice: remove one",
        ),
    ],
)
def test_mistake_is_one_line(kinds, kind, message):
    with pytest.raises((CommandError, ClusterError)) as error:
        kinds({"kinds": [kind]})
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "kinds: 1", "[]", "a: [", "kinds: []", "{kinds: [], x: 1}"])
def test_file_without_kinds_is_one_line(kinds, text):
    with pytest.raises(CommandError, match=r"nodes\.yaml: ") as error:
        kinds(text)
    assert "\n" not in str(error.value)


def test_file_that_is_not_text_names_the_byte(kinds):
    with pytest.raises(CommandError, match=r"nodes\.yaml: not UTF-8 text \(byte 7\)$"):
        kinds(b"kinds: \xff")


def test_kinds_have_different_names(kinds):
    with pytest.raises(CommandError, match=r"kinds\[1\]: duplicate name a"):
        kinds({"kinds": [{"name": "a"}, {"name": "a"}]})


@pytest.mark.parametrize("flags", [["--simulate", "vendor.com/gpu=1"], ["--full", "1"]])
def test_kinds_exclude_flags_for_devices(kinds, flags):
    with pytest.raises(CommandError, match="--full and --simulate cannot be used with -f"):
        kinds(KINDS, *flags)


def test_kinds_exclude_a_fleet():
    args = argparse.Namespace(adopt=None, file="nodes.yaml")
    with pytest.raises(CommandError, match="-f and --fleet exclude each other: use one of them"):
        join_options.node_kinds(args, SimpleNamespace())


def test_kinds_are_scaled_while_they_run(kinds, tmp_path):
    with FakeApiServer() as server, Controllers(server):
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")

        def names():
            return sorted(each["metadata"]["name"] for each in server.all("nodes"))

        with Cluster.connect(kubeconfig) as cluster:
            for specs in kinds(KINDS):
                cluster.join_specs(specs)
            cluster.scale("cpu", 0)
            assert names() == ["n-gpu-0", "n-gpu-1"]
            cluster.scale("gpu", 4)
            assert names() == [f"n-gpu-{index}" for index in range(4)]
            cluster.leave(["n-gpu-0"])
            cluster.scale("gpu", 3)
            assert names() == ["n-gpu-0", "n-gpu-1", "n-gpu-2"]
            addresses = [each["status"]["addresses"][0]["address"] for each in server.all("nodes")]
            assert len(set(addresses)) == 3
            with pytest.raises(RequestError, match="kinds of this process: cpu, gpu"):
                cluster.scale("x", 1)
            with pytest.raises(RequestError, match="invalid number of nodes 100001"):
                cluster.scale("gpu", 100_001)
            assert len(names()) == 3
        assert names() == []
