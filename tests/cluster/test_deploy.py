"""`deploy/`: roles with exactly the required permissions, a kustomization, and the image."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

import pytest
import yaml

from devicemanager.apiserver import Controllers, Permission, permissions_of
from devicemanager.cluster import Cluster, ClusterError, NodeOptions
from devicemanager.cluster.driver_layouts import simulated_driver
from devicemanager.cluster.preflight import (
    dra_permissions,
    lease_permissions,
    required_permissions,
)
from tests.cluster.objects import GPU, gpu_pod, granted
from tests.paths import ROOT
from tools.cluster.build import VARIABLE, BuildError, binaries

TOP = ROOT
DOCUMENTS = list(yaml.safe_load_all((TOP / "deploy/join.yaml").read_text()))


def roles(kind, namespace=None, *, dra=False):
    return permissions_of(
        rule
        for each in DOCUMENTS
        if each["kind"] == kind and each["metadata"].get("namespace") == namespace
        if each["metadata"]["name"].endswith("-dra") is dra
        for rule in each["rules"]
    )


CLUSTER = roles("ClusterRole")
DRA = roles("ClusterRole", dra=True)
LEASES = roles("Role", "kube-node-lease")
SHARDS = roles("Role", "devicemanager")


def test_roles_grant_exactly_the_required_permissions():
    assert granted(required_permissions()) == CLUSTER | LEASES
    assert granted(lease_permissions("ns")) == SHARDS
    assert granted(dra_permissions()) == DRA


def test_node_with_dra_uses_every_permission_of_its_role(apiserver, tmp_path, until):
    options = NodeOptions(drivers=(simulated_driver("gpu.example.com", [None]),))
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")
    apiserver.permissions.allowed = CLUSTER | LEASES
    with Cluster.connect(kubeconfig) as cluster:
        with pytest.raises(ClusterError, match="missing permissions: create resourceslices"):
            cluster.join_in_memory("n", 1, options=options)
        apiserver.permissions.allowed |= DRA
        (node,) = cluster.join_in_memory("n", 1, options=options)
        until(lambda: apiserver.all("resourceslices"))
        node.fail_device("gpu.example.com", "gpu-0")
        until(lambda: apiserver.all("resourceslices")[0]["spec"]["devices"][0].get("taints"))
        node.restart()
        until(lambda: apiserver.requests["deletecollection", "resourceslices"])
        claim = {"name": "gpu", "resourceClaimName": "missing"}
        apiserver.create("pods", gpu_pod("a", nodeName="n-0", resourceClaims=[claim]))
        until(lambda: Permission("resource.k8s.io", "resourceclaims", "get") in used(apiserver))
    assert used(apiserver) >= DRA


def used(apiserver):
    return apiserver.permissions.used


def test_joining_uses_every_permission_of_the_roles(apiserver, tmp_path, until):
    """A node joins, runs pods and leaves, with the permissions of the roles only."""
    options = NodeOptions(labels={"rack": "7"})
    apiserver.permissions.allowed = CLUSTER | LEASES
    warnings = []
    kubeconfig = apiserver.kubeconfig(tmp_path / "kubeconfig")

    def phase(name):
        found = apiserver.get("pods", name)
        return found and found["status"]["phase"]

    with Controllers(apiserver), Cluster.connect(kubeconfig, warn=warnings.append) as cluster:
        (node,) = cluster.join_in_memory("n", 1, {GPU: 1})
        cluster.leave([node.name], "keep")
        # Taking over needs GET of Node and Lease, and a PATCH of the labels.
        (node,) = cluster.join_in_memory("n", 1, {GPU: 1}, options=options)
        apiserver.create("pods", gpu_pod("a"))
        until(lambda: phase("a") == "Running")
        apiserver.create("pods", gpu_pod("b", nodeName=node.name))
        until(lambda: phase("b") == "Failed")
        for _ in range(2):  # an equal event is a PATCH of the count
            node.record("Normal", "Repeated", "the same text")
        until(lambda: Permission("", "events", "patch") in apiserver.permissions.used)
        apiserver.delete("pods", "a")
        until(lambda: phase("a") is None)
        node.kubelet.fail_device(GPU, "gpu-0")
        node.refresh()
        until(lambda: apiserver.get("nodes", "n-0")["status"]["allocatable"][GPU] == "0")
        cluster._connection.leases.add(node.name, node.uid)
        until(lambda: apiserver.requests["update", "leases"] > 0)
    assert apiserver.all("nodes") == []
    assert not [line for line in warnings if "forbidden" in line]
    assert apiserver.permissions.used == CLUSTER | LEASES


def stateful_set(documents):
    """Return the StatefulSet, its container, and the parsed arguments of the container."""
    from devicemanager.cli import whole_parser

    (state,) = (each for each in documents if each["kind"] == "StatefulSet")
    (container,) = state["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value", "x") for each in container["env"]}
    assert {"POD_NAME", "POD_NAMESPACE", "POD_IP"} <= env.keys()
    args = [each.replace("$(SHARDS)", env["SHARDS"]) for each in container["args"]]
    return state, container, whole_parser().parse_args(["join", *args])


def test_stateful_set_uses_valid_flags():
    _, _, parsed = stateful_set(DOCUMENTS)
    assert parsed.shards == 2
    assert parsed.leave == "keep"


# -- kustomize ---------------------------------------------------------------------------


@pytest.fixture
def kubectl():
    """The command kubectl, of the built control plane or of the machine."""
    try:
        return str(binaries() / "kubectl")
    except BuildError:
        found = shutil.which("kubectl")
    if found is None:
        pytest.skip("kubectl is not installed, and `make test-cluster` has not built it")
    return found


def render(kubectl, directory):
    command = [kubectl, "kustomize", str(directory)]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(rendered))


def named(documents):
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def test_kustomization_without_patches_is_the_manifest(kubectl):
    assert named(render(kubectl, TOP / "deploy")) == named(DOCUMENTS)


def test_kustomization_of_the_page_renders(kubectl, tmp_path):
    page = (TOP / "docs/cluster.md").read_text()
    (text,) = re.findall(r"```yaml\n(apiVersion: kustomize.*?)```", page, re.DOTALL)
    (tmp_path / "kustomization.yaml").write_text(text)
    shutil.copytree(TOP / "deploy", tmp_path / "deploy")
    rendered = render(kubectl, tmp_path)
    state, container, parsed = stateful_set(rendered)
    assert (parsed.nodes, parsed.shards, state["spec"]["replicas"]) == (1000, 4, 4)
    assert container["image"] == "registry.example.com/join:v1"
    assert parsed.http.endswith(f":{container['ports'][0]['containerPort']}")
    assert parsed.http_allow_remote
    (mount,) = container["volumeMounts"]
    assert {path.rpartition("/")[0] for path in parsed.http_certificate} == {mount["mountPath"]}
    (volume,) = state["spec"]["template"]["spec"]["volumes"]
    assert volume == {"name": mount["name"], "secret": {"secretName": "join-tls"}}
    without = {key for key in named(DOCUMENTS) if not key[1].endswith("-dra")}
    assert named(rendered).keys() == without


@pytest.mark.parametrize("part", ["", "components/http", "components/without-dra"])
def test_kustomization_names_existing_objects(part):
    """Also without kubectl: a patch without a target is an error of kustomize."""
    (found,) = yaml.safe_load_all((TOP / "deploy" / part / "kustomization.yaml").read_text())
    assert all((TOP / "deploy" / part / each).exists() for each in found.get("resources", ()))
    for patch in found.get("patches", ()):
        target = patch.get("target") or yaml.safe_load(patch["patch"])
        name = target["name"] if "target" in patch else target["metadata"]["name"]
        assert (target["kind"], name) in named(DOCUMENTS)


# -- image -------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["deploy/Dockerfile"])
def test_dockerfile_copies_existing_files(recipe):
    lines = (TOP / recipe).read_text().splitlines()
    copied = [part for line in lines if line.startswith("COPY ") for part in line.split()[1:-1]]
    sources = [source for source in copied if not source.startswith(("/", "--"))]
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    assert all((TOP / source).exists() for source in sources)
    (extras,) = (found[1].split(",") for line in lines if (found := re.search(r"\.\[(.+)\]", line)))
    assert set(extras) <= set(project["project"]["optional-dependencies"])
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(sources)
    assert lines[-1] == 'ENTRYPOINT ["/join/bin/devicemanager", "join"]'


def instructions(text):
    """Return the instructions of a Dockerfile as pairs of keyword and arguments."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]


@pytest.mark.interop
@pytest.mark.skipif(VARIABLE not in os.environ, reason="`make test-cluster` runs this")
@pytest.mark.timeout(900)
def test_commands_of_the_dockerfile_install_a_program_that_joins(apiserver, until):
    """Run each instruction in a directory instead of an image. It needs a package registry."""
    steps = instructions((TOP / "deploy/Dockerfile").read_text())
    # Not in the directory of the test, which only its owner can read.
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        source, environment, user, entry = Path(root) / "src", {}, None, []
        source.mkdir()
        for keyword, text in steps:
            match keyword:
                case "COPY" if not text.startswith("--from"):
                    *names, target = text.split()
                    for name in names:
                        copy(TOP / name, source / (name if target == "./" else target))
                case "RUN":
                    inside = text.replace("/join", f"{root}/join")
                    # Compiling all modules would take longer than the rest.
                    env = {**os.environ, "PIP_NO_COMPILE": "1"}
                    subprocess.run(["sh", "-euc", inside], cwd=source, check=True, env=env)
                case "ENV":
                    environment |= dict([text.split("=", 1)])
                case "USER":
                    user = int(text)
                case "ENTRYPOINT":
                    entry = [part.replace("/join/", f"{root}/join/") for part in json.loads(text)]
        # The second stage has only the directory of the program.
        shutil.rmtree(source)
        kubeconfig = apiserver.kubeconfig(Path(root) / "kubeconfig")
        kubeconfig.chmod(0o644)
        command = [*entry, "--kubeconfig", str(kubeconfig), "--prefix", "n", "--nodes", "2"]
        as_user = {}
        if os.getuid() == 0 and is_public(Path(root) / "join/bin/python"):
            as_user = {"user": user, "group": user, "extra_groups": []}
        with (
            Controllers(apiserver),
            subprocess.Popen(
                command, env=environment, cwd="/", stdout=subprocess.PIPE, text=True, **as_user
            ) as process,
        ):
            until(lambda: len(apiserver.all("nodes")) == 2)
            process.terminate()
            output = process.communicate()[0]
        assert process.returncode == 0, output
        assert apiserver.all("nodes") == []


def is_public(program):
    """True if every user can run a program. Python can be installed in a user's home directory."""
    path = program.resolve()
    return all(each.stat().st_mode & 0o001 for each in (path, *path.parents))


def copy(source, target):
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
