"""``devicemanager join``: errors about its input, joining and leaving."""

import argparse
import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from devicemanager.apiserver import FakeApiServer
from devicemanager.cli import join, join_options, main
from devicemanager.cli.options import CommandError
from devicemanager.cluster import Cluster
from tests.cli.records import until, until_ready
from tests.timing import wait_until

COMMAND = Path(sys.executable).with_name("devicemanager")


@pytest.fixture
def apiserver():
    with FakeApiServer() as server:
        yield server


@pytest.fixture
def kubeconfig(apiserver, tmp_path):
    return str(apiserver.kubeconfig(tmp_path / "kubeconfig"))


@pytest.fixture
def rejected(capsys):
    """Run a command that fails; return its error line."""

    def rejected(*args):
        try:
            status = main(["join", *args])
        except SystemExit as exit_:
            status = exit_.code
        captured = capsys.readouterr()
        assert status == 2
        (line,) = [line for line in captured.err.splitlines() if "error:" in line]
        return line

    return rejected


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--nodes", "0"], "--nodes"),
        (["--nodes", "100001"], "invalid number of nodes 100001: use 1 to 100000"),
        (["--full", "2"], "invalid number of full nodes 2: use 0 to 1"),
        (
            ["--prefix", "No"],
            "invalid name 'No': use a to z, 0 to 9 and -, at most 40 characters",
        ),
        (["--label", "a"], "invalid label 'a': expected KEY=VALUE"),
        (["--label", "a=b c"], "invalid label 'a=b c': expected KEY=VALUE"),
        (["--taint", "a=b:Never"], "invalid taint 'a=b:Never': expected KEY=VALUE:EFFECT, with"),
        (
            ["--simulate", "vendor.com/gpu"],
            "invalid devices 'vendor.com/gpu': expected RESOURCE=COUNT",
        ),
        (["--simulate", "cpu=8"], "cpu"),
        (["--simulate", "v.com/g=1", "--simulate", "v.com/g=2"], "duplicate resource v.com/g"),
        (["--cpu", "0"], "invalid quantity '0': use a form such as 2, 500m or 8Gi"),
        (["--memory", "much"], "invalid quantity 'much': use a form such as 2, 500m or 8Gi"),
        (["--pods", "0"], "--pods"),
        (["--pod-cidr", "10.0.0.1/8"], "invalid range '10.0.0.1/8': use a form such as"),
        (["--pod-cidr", "10.0.0.0/31"], "invalid range '10.0.0.0/31': use a form such as"),
        (["--simulate-driver", "gpu"], "invalid driver 'gpu': expected a name and devices"),
        (["--simulate-driver", "GPU=1"], "invalid driver 'GPU=1': expected a name and devices"),
        (["--adopt", "a=b", "--shards", "2"], "--adopt and --shards exclude each other"),
        (["--slices", "/nowhere.json"], "/nowhere.json: No such file"),
        (["--start-delay", "soon"], "invalid duration 'soon': use a form such as 30s"),
        (["--shard", "3/3"], "invalid shard '3/3': expected K/N"),
        (["--shard", "0/3", "--shards", "3"], "--shard and --shards exclude each other"),
        (["--lease-duration", "1"], "--lease-duration"),
        (["--leave", "never"], "--leave"),
        (["--http-allow-remote"], "--http-certificate require --http"),
        (
            ["--http", "127.0.0.1:0", "--http-certificate", "c", "k"],
            "invalid --http 127.0.0.1:0: --http-certificate requires a port number",
        ),
        (["--control-allow-remote"], "--control-allow-remote requires --control"),
        (["--demo", "--kubeconfig", "x"], "--demo has its own cluster: remove --kubeconfig"),
        (["--kubeconfig", "/nowhere/config"], "kubeconfig /nowhere/config: No such file"),
    ],
)
def test_invalid_input_is_a_one_line_error(rejected, args, message):
    assert message in rejected(*args)


def test_expired_credentials_change_nothing(rejected, tmp_path):
    with FakeApiServer(token="new") as apiserver:
        path = apiserver.kubeconfig(tmp_path / "kubeconfig")
        path.write_text(path.read_text().replace('"new"', '"old"'))
        line = rejected("--kubeconfig", str(path))
        assert "the API server rejects the credentials" in line
        assert apiserver.all("nodes") == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--http", "--http-certificate", "/nosuch", "k"], "/nosuch: No such file"),
        (["--http", "0.0.0.0:1"], "use 127.0.0.1; or add --http-allow-remote"),
        (["--control", "x"], "--control: invalid address 'x'"),
        (["--control", "0.0.0.0:1"], "use 127.0.0.1; or add --control-allow-remote"),
        (["--control", "--root", "/dev/null/x"], "--root /dev/null/x: Not a directory"),
    ],
)
def test_unusable_control_api_changes_nothing(rejected, apiserver, kubeconfig, args, message):
    assert message in rejected("--kubeconfig", kubeconfig, *args)
    assert apiserver.all("nodes") == []


def test_missing_permissions_change_nothing(rejected, apiserver, kubeconfig):
    apiserver.permissions.allowed = frozenset()
    assert "missing permissions: get nodes, list nodes" in rejected("--kubeconfig", kubeconfig)
    assert apiserver.all("nodes") == []


def test_join_rejects_existing_foreign_node(rejected, apiserver, kubeconfig):
    apiserver.create("nodes", {"metadata": {"name": "virtual-1"}})
    line = rejected("--kubeconfig", kubeconfig, "--prefix", "virtual", "--nodes", "2")
    assert "these names belong to Nodes that devicemanager did not create" in line
    assert [each["metadata"]["name"] for each in apiserver.all("nodes")] == ["virtual-1"]


def test_unreachable_server_is_an_error(rejected, apiserver, kubeconfig):
    apiserver.stop()
    assert "the API server at http://127.0.0.1:" in rejected("--kubeconfig", kubeconfig)


def started(*args):
    return subprocess.Popen([COMMAND, "join", "-o", "json", *args], stdout=subprocess.PIPE)


def test_join_adds_nodes_and_removes_them_on_sigterm(apiserver, kubeconfig):
    apiserver.create("nodes", {"metadata": {"name": "cloud"}, "spec": {"providerID": "aws:///x"}})
    args = ["--prefix", "virtual", "--nodes", "3", "--simulate", "vendor.com/gpu=8"]
    args += ["--label", "a=b"]
    taint = ["--taint", "k=v:NoExecute", "--no-taint", "--http", "127.0.0.1:0", "--control"]
    process = started("--kubeconfig", kubeconfig, *args, *taint)
    with process:
        lines = until_ready(process)
        assert [line for line in lines if line["kind"] == "cloud" and line["warning"]]
        node = apiserver.get("nodes", "virtual-2")
        assert node["metadata"]["labels"]["a"] == "b"
        assert node["spec"]["taints"][0] == {"key": "k", "value": "v", "effect": "NoExecute"}
        assert "devicemanager.io/virtual" not in {each["key"] for each in node["spec"]["taints"]}
        (address,) = (line["address"] for line in lines if line["kind"] == "http")
        with urllib.request.urlopen(f"http://{address}/nodes/virtual-1/pods", timeout=20) as answer:
            assert json.load(answer)["items"] == []
        (control,) = (Path(line["path"]) for line in lines if line["kind"] == "control-socket")
        fail = ["ctl", "nodes", "fail-device", "virtual-1", "vendor.com/gpu", "gpu-3"]
        assert main([*fail, "--control", str(control)]) == 0
        end = time.monotonic() + 20
        while apiserver.get("nodes", "virtual-1")["status"]["allocatable"]["vendor.com/gpu"] != "7":
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert [each["metadata"]["name"] for each in apiserver.all("nodes")] == ["cloud"]
    assert not control.parent.exists()


def test_demo_completes_its_job():
    with started("--demo", "--nodes", "4", "--job-duration", "10ms") as process:
        until(process, lambda line: line.get("succeeded") == 40)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_flags_set_the_size_of_the_nodes_and_the_addresses_of_their_pods():
    parser = argparse.ArgumentParser()
    join.add(parser.add_subparsers())
    flags = ["--cpu", "2", "--memory", "500Mi", "--pods", "3", "--pod-cidr", "10.0.0.0/16"]
    specs = join_options.node_specs(parser.parse_args(["join", "--nodes", "2", *flags]), None)
    amounts = {name: str(each) for name, each in specs.options.amounts.items()}
    assert amounts == {"cpu": "2", "memory": "500Mi", "pods": "3", "ephemeral-storage": "1Ti"}
    assert specs.options.pod_cidr == "10.0.0.0/16"
    assert specs.make(1).settings.node_allocatable == specs.options.amounts


def test_full_nodes_read_claims_with_the_kubeconfig_of_the_environment(
    kubeconfig, monkeypatch, directory
):
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    parser = argparse.ArgumentParser()
    join.add(parser.add_subparsers())
    args = parser.parse_args(["join", "--full", "1", "--root", str(directory)])
    specs = join_options.node_specs(args)
    kubelet = specs.make(0)
    try:
        assert kubelet.settings.kubeconfig == Path(kubeconfig)
    finally:
        specs.end(kubelet)


def slice_of(node, driver="nic.example.com", pool=None, **spec):
    devices = [{"name": "nic-0", "attributes": {"speed": {"int": 100}}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"s-{node or 'all'}-{driver}"},
        "spec": {
            "driver": driver,
            "pool": {"name": pool or node, "generation": 3, "resourceSliceCount": 1},
            "devices": devices,
            **({"nodeName": node} if node else {}),
            **spec,
        },
    }


def drivers(tmp_path, slices, *flags):
    """The layouts of `join --slices`, with these slices in a file."""
    file = tmp_path / "slices.json"
    file.write_text(json.dumps(slices))
    parser = argparse.ArgumentParser()
    join.add(parser.add_subparsers())
    args = parser.parse_args(["join", "--slices", str(file), *flags])
    return join_options.node_specs(args, None).options.drivers


def test_recorded_slices_are_published_by_each_node(tmp_path):
    slices = [slice_of("worker-1"), slice_of("worker-1", "gpu.example.com", "shared")]
    gpu, nic = drivers(tmp_path, slices)
    (spec,) = nic.specs("n-7", 1, "v1")
    assert spec["pool"] == {"name": "n-7", "generation": 1, "resourceSliceCount": 1}
    assert spec["nodeName"] == "n-7"
    assert spec["devices"] == slices[0]["spec"]["devices"]
    (spec,) = gpu.specs("n-7", 1, "v1")
    # Two nodes with one pool name would share the pool.
    assert spec["pool"]["name"] == "n-7/shared"


def test_recorded_slices_can_lack_kind_and_version(tmp_path):
    slices = [slice_of("worker-1")]
    for each in slices:
        del each["apiVersion"], each["kind"]
    (nic,) = drivers(tmp_path, slices)
    assert nic.devices == {"nic-0"}


@pytest.mark.parametrize(
    ("slices", "flags", "message"),
    [
        (
            [slice_of("a"), slice_of("b")],
            [],
            "slices of 2 nodes (a, b): expected the slices of one node",
        ),
        ([slice_of(None, allNodes=True, pool="p")], [], "has no spec.nodeName"),
        ([slice_of("a", devices=[{"name": "No"}])], [], "spec.devices[0].name"),
        ([{"kind": "Pod"}], [], "no ResourceSlices"),
        (
            [slice_of("a")],
            ["--simulate-driver", "nic.example.com=1"],
            "driver nic.example.com is given twice: remove one",
        ),
    ],
)
def test_unusable_slices_are_a_one_line_error(tmp_path, slices, flags, message):
    with pytest.raises(CommandError) as error:
        drivers(tmp_path, slices, *flags)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "host", "prefix"),
    [
        ({"demo": True}, "worker", "virtual"),
        ({"shard": (0, 3)}, "worker", "virtual"),
        ({"shards": 3}, "worker", "virtual"),
        ({}, "Worker_1.example.com", "virtual-worker-1"),
        ({}, "-", "virtual"),
        ({}, "a" * 29 + "-b", "virtual-" + "a" * 29),
        ({}, "a" * 31, "virtual-" + "a" * 30),
    ],
)
def test_default_names_have_the_host_unless_several_machines_share_them(
    given, host, prefix, monkeypatch
):
    monkeypatch.setattr("socket.gethostname", lambda: host)
    args = argparse.Namespace(**{"demo": False, "shard": None, "shards": None, **given})
    assert join_options._default_prefix(args) == prefix


@pytest.mark.parametrize(("nodes", "expected"), [(1, join._DEMO_NODES), (2, 2)])
def test_demo_has_several_nodes_with_devices(nodes, expected):
    parser = argparse.ArgumentParser()
    join.add(parser.add_subparsers())
    args = parser.parse_args(["join", "--demo", "--nodes", str(nodes)])
    join._set_flags(args)
    assert (args.nodes, len(args.simulate)) == (expected, 1)
    assert args.job_duration is not None
    args = parser.parse_args(["join", "--demo", "--simulate", "a.b/c=1", "--job-duration", "0"])
    given = (args.simulate, args.job_duration)
    join._set_flags(args)
    assert (args.simulate, args.job_duration) == given


def test_http_without_an_address_serves_at_the_default(monkeypatch):
    # The command's own default is a fixed port, which another test may use.
    assert join_options.HTTP_DEFAULT == "127.0.0.1:10255"
    monkeypatch.setattr(join_options, "HTTP_DEFAULT", "127.0.0.1:0")
    parser = argparse.ArgumentParser()
    join_options.add_http(parser)
    assert join_options.http_server(parser.parse_args([]), None) is None
    nodes = SimpleNamespace(nodes={})
    with (
        join_options.http_server(parser.parse_args(["--http"]), nodes) as server,
        urllib.request.urlopen(f"http://{server.address}/healthz", timeout=20) as answer,
    ):
        assert (answer.status, answer.read()) == (200, b"ok")


def test_nodes_of_another_program_are_adopted(apiserver, kubeconfig):
    apiserver.create("nodes", {"metadata": {"name": "scaled", "labels": {"pool": "gpu"}}})
    parser = argparse.ArgumentParser()
    join.add(parser.add_subparsers())
    flags = ["--adopt", "pool=gpu", "--simulate", "vendor.com/gpu=4"]
    args = parser.parse_args(["join", *flags])
    (none,) = join_options.node_kinds(args)
    assert none.names == []
    with Cluster.connect(kubeconfig) as cluster:
        join_options.adopt(args, cluster)

        def is_adopted():
            status = apiserver.get("nodes", "scaled").get("status") or {}
            return (status.get("capacity") or {}).get("vendor.com/gpu") == "4"

        wait_until(is_adopted)
    assert [each["metadata"]["name"] for each in apiserver.all("nodes")] == ["scaled"]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ([], "deleting the nodes"),
        (["--adopt", "pool=gpu"], "keeping the nodes"),
        (["--adopt", "pool=gpu", "--leave", "shutdown"], "shutting the nodes down"),
    ],
)
def test_leaving_is_announced_as_it_happens(flags, text):
    parser = argparse.ArgumentParser()
    join.add(parser.add_subparsers())
    assert join.leaving(parser.parse_args(["join", *flags])) == text
