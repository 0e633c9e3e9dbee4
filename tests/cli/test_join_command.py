"""``devicemanager join``: what it rejects in one line, and that it joins and leaves."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from devicemanager.cli import main
from devicemanager.cluster.fake_apiserver import FakeApiServer
from tests.cli.records import until, until_ready

COMMAND = Path(sys.executable).with_name("devicemanager")


@pytest.fixture
def stub():
    with FakeApiServer() as server:
        yield server


@pytest.fixture
def kubeconfig(stub, tmp_path):
    return str(stub.kubeconfig(tmp_path / "kubeconfig"))


@pytest.fixture
def rejected(capsys):
    """The one line of a command that is rejected."""

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
    "args, said",
    [
        (["--nodes", "0"], "--nodes"),
        (["--nodes", "100001"], "100001 nodes: give a number from 1 to 100000"),
        (["--full", "2"], "2 full nodes: give a number from 0 to 1"),
        (["--prefix", "No"], "'No' is no name"),
        (["--label", "a"], "'a' is not like KEY=VALUE"),
        (["--label", "a=b c"], "'a=b c' is not like KEY=VALUE"),
        (["--taint", "a=b:Never"], "'a=b:Never' is not like KEY=VALUE:EFFECT with NoSchedule or"),
        (["--simulate", "vendor.com/gpu"], "is not like vendor.com/gpu=8"),
        (["--simulate", "cpu=8"], "cpu"),
        (["--simulate", "v.com/g=1", "--simulate", "v.com/g=2"], "v.com/g is given twice"),
        (["--start-delay", "soon"], "'soon' is not a time"),
        (["--shard", "3/3"], "'3/3' is not like 0/3"),
        (["--shard", "0/3", "--shards", "3"], "give one of them"),
        (["--lease-duration", "1"], "--lease-duration"),
        (["--leave", "never"], "--leave"),
        (["--http-allow-remote"], "go with --http"),
        (
            ["--http", "127.0.0.1:0", "--http-certificate", "c", "k"],
            "--http 127.0.0.1:0: nodes announce where their logs are, so give the port",
        ),
        (["--control-allow-remote"], "--control-allow-remote is of use with --control only"),
        (["--demo", "--kubeconfig", "x"], "--demo has a cluster of its own"),
        (["--kubeconfig", "/nowhere/config"], "kubeconfig /nowhere/config: No such file"),
    ],
)
def test_bad_input_is_one_line(rejected, args, said):
    assert said in rejected(*args)


def test_expired_credentials_touch_nothing(rejected, tmp_path):
    with FakeApiServer(token="new") as stub:
        path = stub.kubeconfig(tmp_path / "kubeconfig")
        path.write_text(path.read_text().replace('"new"', '"old"'))
        line = rejected("--kubeconfig", str(path))
        assert "the API server does not accept the credentials" in line
        assert stub.all("nodes") == []


@pytest.mark.parametrize(
    "args, said",
    [
        (["--http", "0.0.0.0:1"], "use 127.0.0.1; or give --http-allow-remote, too"),
        (["--control", "x"], "--control: invalid address 'x'"),
        (["--control", "0.0.0.0:1"], "use 127.0.0.1; or give --control-allow-remote, too"),
        (["--control", "--root", "/dev/null/x"], "--root /dev/null/x: Not a directory"),
    ],
)
def test_a_control_api_that_cannot_be_touches_nothing(rejected, stub, kubeconfig, args, said):
    assert said in rejected("--kubeconfig", kubeconfig, *args)
    assert stub.all("nodes") == []


def test_missing_rights_touch_nothing(rejected, stub, kubeconfig):
    stub.rights.allowed = frozenset()
    assert "rights are missing: get nodes, list nodes" in rejected("--kubeconfig", kubeconfig)
    assert stub.all("nodes") == []


def test_names_of_others_touch_nothing(rejected, stub, kubeconfig):
    stub.create("nodes", {"metadata": {"name": "virtual-1"}})
    line = rejected("--kubeconfig", kubeconfig, "--nodes", "2")
    assert "1 of the names are nodes that are not ours" in line
    assert [each["metadata"]["name"] for each in stub.all("nodes")] == ["virtual-1"]


def test_nobody_there(rejected, stub, kubeconfig):
    stub.stop()
    assert "the API server cannot be reached at http://127.0.0.1:" in rejected(
        "--kubeconfig", kubeconfig
    )


def started(*args):
    return subprocess.Popen([COMMAND, "join", "-o", "json", *args], stdout=subprocess.PIPE)


def test_it_joins_and_leaves(stub, kubeconfig):
    stub.create("nodes", {"metadata": {"name": "cloud"}, "spec": {"providerID": "aws:///x"}})
    args = ["--nodes", "3", "--simulate", "vendor.com/gpu=8", "--label", "a=b"]
    taint = ["--taint", "k=v:NoExecute", "--no-taint", "--http", "127.0.0.1:0", "--control"]
    process = started("--kubeconfig", kubeconfig, *args, *taint)
    with process:
        lines = until_ready(process)
        assert [line for line in lines if line["kind"] == "cloud" and line["warning"]]
        node = stub.get("nodes", "virtual-2")
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
        while stub.get("nodes", "virtual-1")["status"]["allocatable"]["vendor.com/gpu"] != "7":
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert [each["metadata"]["name"] for each in stub.all("nodes")] == ["cloud"]
    assert not control.parent.exists()


def test_the_demo_does_its_job():
    with started("--demo", "--nodes", "4", "--job-duration", "10ms") as process:
        until(process, lambda line: line.get("succeeded") == 40)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
