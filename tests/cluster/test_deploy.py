"""`deploy/`: exactly the rights that joining takes, and an image made from what is there."""

import re
import tomllib

import pytest
import yaml

from devicemanager.cluster import Cluster, NodeOptions
from devicemanager.cluster.fake_apiserver import Controllers
from devicemanager.cluster.fake_apiserver.rights import Right, rights_of
from devicemanager.cluster.preflight import needs, shard_needs
from tests.cluster.objects import GPU, gpu_pod
from tests.paths import ROOT

TOP = ROOT
DOCUMENTS = list(yaml.safe_load_all((TOP / "deploy/join.yaml").read_text()))


def roles(kind, namespace=None):
    return rights_of(
        rule
        for each in DOCUMENTS
        if each["kind"] == kind and each["metadata"].get("namespace") == namespace
        for rule in each["rules"]
    )


CLUSTER = roles("ClusterRole")
LEASES = roles("Role", "kube-node-lease")
SHARDS = roles("Role", "devicemanager")


def test_what_is_looked_at_before_joining_is_what_the_roles_have():
    asked = {Right(need.group, need.resource, need.verb) for need in needs()}
    assert asked == CLUSTER | LEASES
    assert {Right(need.group, need.resource, need.verb) for need in shard_needs("ns")} == SHARDS


def test_joining_uses_each_right_and_no_other(stub, tmp_path, until):
    """A node's whole life, with nothing allowed but the roles."""
    options = NodeOptions(labels={"rack": "7"})
    stub.rights.allowed = CLUSTER | LEASES
    said = []
    kubeconfig = stub.kubeconfig(tmp_path / "kubeconfig")

    def phase(name):
        found = stub.get("pods", name)
        return found and found["status"]["phase"]

    with Controllers(stub), Cluster.connect(kubeconfig, warn=said.append) as cluster:
        (node,) = cluster.join_light("n", 1, {GPU: 1})
        cluster.leave([node.name], "keep")
        # Takes over: GET of Node and Lease, and another label.
        (node,) = cluster.join_light("n", 1, {GPU: 1}, options=options)
        stub.create("pods", gpu_pod("a"))
        until(lambda: phase("a") == "Running")
        stub.create("pods", gpu_pod("b", nodeName=node.name))
        until(lambda: phase("b") == "Failed")
        for _ in range(2):  # the same event once more: it is counted up
            node.record("Normal", "Looked", "as before")
        until(lambda: Right("", "events", "patch") in stub.rights.used)
        stub.delete("pods", "a")
        until(lambda: phase("a") is None)
        node.kubelet.fail_device(GPU, "gpu-0")
        node.look()
        until(lambda: stub.get("nodes", "n-0")["status"]["allocatable"][GPU] == "0")
        cluster.connection.heartbeat.add(node.name, node.uid)
        until(lambda: stub.requests["update", "leases"] > 0)
    assert stub.all("nodes") == []
    assert not [line for line in said if "forbidden" in line]
    assert stub.rights.used == CLUSTER | LEASES


def test_the_stateful_set_calls_the_command_with_flags_that_it_has():
    from devicemanager.cli import whole_parser

    (state,) = (each for each in DOCUMENTS if each["kind"] == "StatefulSet")
    (container,) = state["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each.get("value", "x") for each in container["env"]}
    args = [each.replace("$(SHARDS)", given["SHARDS"]) for each in container["args"]]
    parsed = whole_parser().parse_args(["join", *args])
    assert parsed.shards == 2
    assert parsed.leave == "keep"
    assert {"POD_NAME", "POD_NAMESPACE", "POD_IP"} <= given.keys()


@pytest.mark.parametrize("recipe", ["deploy/Dockerfile"])
def test_the_image_is_made_from_what_is_there(recipe):
    lines = (TOP / recipe).read_text().splitlines()
    copied = [part for line in lines if line.startswith("COPY ") for part in line.split()[1:-1]]
    sources = [source for source in copied if not source.startswith(("/", "--"))]
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    assert all((TOP / source).exists() for source in sources)
    (extras,) = (found[1].split(",") for line in lines if (found := re.search(r"\.\[(.+)\]", line)))
    assert set(extras) <= set(project["project"]["optional-dependencies"])
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(sources)
    assert lines[-1] == 'ENTRYPOINT ["/join/bin/devicemanager", "join"]'
