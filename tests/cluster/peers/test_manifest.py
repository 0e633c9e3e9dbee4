"""deploy/join.yaml on a real API server: what its service account may and may not do."""

import contextlib
import itertools
import os
from urllib.parse import urlsplit

import pytest
import yaml

from devicemanager.client import api as api_module
from devicemanager.client.api import node_path
from devicemanager.client.errors import Conflict, NotFound
from devicemanager.cluster import Cluster, ClusterError, NodeOptions, NodeSpecs
from devicemanager.cluster.driver_layouts import simulated_driver
from devicemanager.testing import pod_manifest
from tests.paths import ROOT

GPU = "vendor.com/gpu"
NAMESPACE = "devicemanager"
USER = "system:serviceaccount:devicemanager:join"
MANIFEST = ROOT / "deploy" / "join.yaml"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
}
TOPOLOGIES = "noderesourcetopologies"
TOPOLOGY_GROUP = "topology.node.k8s.io"
NUMBERS = itertools.count()
IMPERSONATE = (("", "users", ["impersonate"]), ("", "groups", ["impersonate"]))

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture
def peer(make_peer):
    return make_peer("real")


@pytest.fixture
def denied(monkeypatch):
    """Record all denied requests of the service account, also those whose errors are ignored,
    such as events."""
    found = []
    original = api_module.api_error

    def api_error(code, reason, message, method, path):
        if code == 403 and USER in message:
            found.append(f"{method} {path}: {message}")
        return original(code, reason, message, method, path)

    monkeypatch.setattr(api_module, "api_error", api_error)
    return found


@pytest.fixture
def account(peer, control_plane, tmp_path, monkeypatch):
    """Apply the manifest, and run as in a pod of its service account, with the files and
    variables of such a pod."""
    for each in yaml.safe_load_all(MANIFEST.read_text()):
        path = PATHS[each["kind"]].format(each["metadata"].get("namespace"))
        # There is no machine for its pods.
        query = {"fieldValidation": "Strict"}
        if each["kind"] == "StatefulSet":
            query["dryRun"] = "All"
        with contextlib.suppress(Conflict):
            peer.request("POST", path, each, query=query)
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = PATHS["ServiceAccount"].format(NAMESPACE)
    token = peer.request("POST", f"{path}/join/token", wanted)["status"]["token"]
    (tmp_path / "token").write_text(token)
    server = urlsplit(control_plane.url)
    in_cluster = "kubernetes.config.incluster_config"
    monkeypatch.setattr(f"{in_cluster}.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(f"{in_cluster}.SERVICE_CERT_FILENAME", str(control_plane.authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", server.hostname)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.fixture
def connect(account):
    """Join as the service account."""

    def connect(**more):
        return Cluster.connect(**more)

    return connect


@pytest.fixture
def grant(peer):
    """Grant a user more permissions until the end of the test; by default the service account."""
    names = []

    def grant(*rules, user=USER):
        name = f"more-{os.getpid()}-{next(NUMBERS)}"
        rules = [
            {"apiGroups": [group], "resources": [what], "verbs": verbs}
            for group, what, verbs in rules
        ]
        group = "rbac.authorization.k8s.io"
        base = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
        peer.request("POST", PATHS["ClusterRole"], {**base, "kind": "ClusterRole", "rules": rules})
        names.append(name)
        binding = {
            **base,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            # A service account is also a user.
            "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
        }
        peer.request("POST", PATHS["ClusterRoleBinding"], binding)
        for rule in rules:
            for verb in rule["verbs"]:
                peer.wait(lambda rule=rule, verb=verb: may(peer, user, rule, verb), "permissions")

    yield grant
    for name in names:
        for kind in ("ClusterRoleBinding", "ClusterRole"):
            peer.request("DELETE", f"{PATHS[kind]}/{name}")


def may(peer, user, rule, verb):
    """True if the authorizer knows the rule."""
    attributes = {"group": rule["apiGroups"][0], "resource": rule["resources"][0], "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return peer.request("POST", path, review)["status"]["allowed"]


def join(cluster, peer, count=1, gpus=2, **options):
    # A kubelet checks its status every 10 s; tests do not wait so long.
    options = NodeOptions(labels={"group": peer.name, **options.pop("labels", {})}, **options)
    nodes = cluster.join_in_memory(peer.name, count, {GPU: gpus}, options=options)
    peer.ready(*(node.name for node in nodes))
    return nodes


def events(peer, reason, namespace=None):
    found = peer.request("GET", f"/api/v1/namespaces/{namespace or peer.name}/events")["items"]
    return [
        each
        for each in found
        if each["reason"] == reason and each["source"].get("component") == "kubelet"
    ]


def counts(peer, reason, node):
    return [
        each["count"]
        for each in events(peer, reason, "default")
        if each["involvedObject"]["name"] == node.name
    ]


def test_join_needs_no_other_permissions(connect, peer, denied):
    warnings = []
    with connect(warn=warnings.append) as cluster:
        join(cluster, peer, 2)
        cluster.leave(how="keep")
        # Taking over needs GET of Node and Lease, and a PATCH of the labels.
        first, second = join(cluster, peer, 2, labels={"rack": "7"}, status_interval=0.5)
        assert peer.request("GET", node_path(first.name))["metadata"]["labels"]["rack"] == "7"
        for name in "ab":
            peer.pod(name, nodeName=first.name)
            peer.phase(name, "Running")
        peer.pod("c", nodeName=first.name)
        rejected = peer.phase("c", "Failed")["status"]
        assert rejected["reason"] == "UnexpectedAdmissionError"
        peer.wait(lambda: events(peer, "UnexpectedAdmissionError"))
        peer.delete("a")
        peer.gone("a")

        for _ in range(2):
            annotate(peer, second, f"device-unhealthy={GPU}/gpu-0; not-ready")
            peer.wait(lambda: (allocatable(peer, second), ready(peer, second)) == ("1", False))
            annotate(peer, second, None)
            peer.wait(lambda: (allocatable(peer, second), ready(peer, second)) == ("2", True))
        # An equal event is a PATCH of the count.
        peer.wait(lambda: counts(peer, "NodeNotReady", second) == [2])
    for node in (first, second):
        with pytest.raises(NotFound):
            peer.request("GET", node_path(node.name))
    assert not denied
    assert not [line for line in warnings if "forbidden" in line]


def test_shard_leases_are_in_the_namespace_of_the_manifest(connect, peer, denied):
    warnings = []

    def share(cluster, identity):
        options = NodeOptions(labels={"group": peer.name})
        specs = NodeSpecs.numbered(peer.name, 2, {GPU: 1}, options=options)
        cluster.check(specs.names, shards=True, namespace=NAMESPACE)
        cluster.join_shards(specs, 2, NAMESPACE, identity)

    names = [f"{peer.name}-{index}" for index in range(2)]
    with connect(warn=warnings.append, leave="delete") as second:
        with connect(warn=warnings.append, leave="keep") as first:
            share(first, "first")
            peer.wait(lambda: len(first.nodes) == 2)
            share(second, "second")
            assert not second.nodes
        peer.wait(lambda: sorted(second.nodes) == names)
        peer.ready(*names)
    assert not denied
    assert not [line for line in warnings if "cannot" in line]


STATIC = pod_manifest("static", {GPU: 1})
MIRROR_PERMISSIONS = ("", "pods", ["get", "create"])


def test_mirror_pods_need_two_more_permissions(connect, grant, peer, denied):
    grant(MIRROR_PERMISSIONS)
    manifest = {**STATIC, "metadata": {"name": "static", "namespace": peer.name}}
    with connect() as cluster:
        (node,) = join(cluster, peer)
        node.kubelet.admit(manifest)
        peer.phase(f"static-{node.name}", "Running")
        # It is recreated, and deleted with the static pod.
        peer.request(
            "DELETE",
            f"/api/v1/namespaces/{peer.name}/pods/static-{node.name}",
            {"gracePeriodSeconds": 0},
        )
        peer.phase(f"static-{node.name}", "Running")
        (uid,) = node.kubelet.pods()
        node.kubelet.terminate(uid)
        peer.gone(f"static-{node.name}")
    assert not denied


def test_node_stays_without_permission_for_mirror_pods(connect, peer, denied):
    warnings = []
    manifest = {**STATIC, "metadata": {"name": "static", "namespace": peer.name}}
    with connect(warn=warnings.append) as cluster:
        (node,) = join(cluster, peer)
        node.kubelet.admit(manifest)
        peer.wait(lambda: [line for line in warnings if f'User "{USER}" cannot' in line])
        assert not node.is_over
        # Other pods are not affected.
        peer.pod("a")
        peer.phase("a", "Running")
    assert denied


@pytest.fixture
def topologies(peer):
    """Install the CustomResourceDefinition of NodeResourceTopology objects."""
    names = {"plural": TOPOLOGIES, "singular": "noderesourcetopology"}
    names |= {"kind": "NodeResourceTopology"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha2", "served": True, "storage": True}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{TOPOLOGIES}.{TOPOLOGY_GROUP}",
            "annotations": {"api-approved.kubernetes.io": "https://example.com/approved"},
        },
        "spec": {
            "group": TOPOLOGY_GROUP,
            "names": names,
            "scope": "Cluster",
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definition = f"{path}/{TOPOLOGIES}.{TOPOLOGY_GROUP}"
    peer.request("POST", path, body)
    at = f"/apis/{TOPOLOGY_GROUP}/v1alpha2/{TOPOLOGIES}"
    peer.wait(lambda: "items" in peer.request("GET", at), "the definition")
    yield at
    peer.request("DELETE", definition)

    def is_gone():
        try:
            peer.request("GET", definition)
        except NotFound:
            return True
        return False

    # Until its objects are deleted, no definition with this name can be created.
    peer.wait(is_gone, "the definition gone")


def test_topology_objects_need_three_more_permissions(connect, grant, peer, topologies, denied):
    grant((TOPOLOGY_GROUP, TOPOLOGIES, ["create", "patch", "delete"]))
    with connect() as cluster:
        (node,) = join(cluster, peer, gpus="2@0,2@1", topology=True)
        at = f"{topologies}/{node.name}"

        def available():
            zones = peer.request("GET", at)["zones"]
            return [zone["resources"][0]["available"] for zone in zones]

        peer.wait(lambda: available() == ["2", "2"])
        peer.pod("a", 2, nodeName=node.name)
        peer.wait(lambda: sorted(available()) != ["2", "2"])
    with pytest.raises(NotFound):
        peer.request("GET", at)
    assert not denied


def test_no_topology_objects_without_permission(connect, peer, topologies):
    warnings = []
    with connect(warn=warnings.append) as cluster:
        (node,) = join(cluster, peer, topology=True)
        peer.wait(lambda: any("NodeResourceTopology" in line for line in warnings))
        peer.pod("a", nodeName=node.name)
        peer.phase("a", "Running")
        assert peer.request("GET", topologies)["items"] == []


def test_as_nodes_needs_the_permission_to_impersonate(connect, grant, peer, denied):
    with connect(as_nodes=True) as cluster:
        with pytest.raises(ClusterError, match="impersonate users, impersonate groups"):
            cluster.check(["n"])
        grant(*IMPERSONATE)
        (node,) = join(cluster, peer)
        peer.pod("a")
        peer.phase("a", "Running")
        peer.delete("a")
        peer.gone("a")
    with pytest.raises(NotFound):
        peer.request("GET", node_path(node.name))
    assert not denied


def test_strict_needs_no_permission_of_the_role(grant, peer, control_plane):
    """No permission of the role in deploy/join.yaml is needed."""
    grant(("", "nodes", ["list", "delete"]), *IMPERSONATE, user="strict")
    warnings = []
    kubeconfig = control_plane.kubeconfig_of("strict")
    with Cluster.connect(kubeconfig, as_nodes="strict", warn=warnings.append) as cluster:
        (node,) = join(cluster, peer)
        peer.pod("a", nodeName=node.name)
        peer.phase("a", "Running")
        peer.delete("a")
        peer.gone("a")
    with pytest.raises(NotFound):
        peer.request("GET", node_path(node.name))
    assert not warnings


def rules_of(kind, name):
    """Return the rules of a role in the manifest, as ``grant`` expects them."""
    (role,) = (
        each
        for each in yaml.safe_load_all(MANIFEST.read_text())
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )
    return [
        (group, resource, rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]


def test_only_nodes_with_drivers_need_the_permissions_for_dra(grant, peer, control_plane):
    if peer.minor < 34:
        pytest.skip("resource.k8s.io/v1 exists since 1.34")
    user, name = "without-dra", "devicemanager-join"
    grant(*rules_of("ClusterRole", name), *rules_of("Role", name), user=user)
    warnings = []
    drivers = (simulated_driver(f"{peer.name}.example.com", [None]),)
    with Cluster.connect(control_plane.kubeconfig_of(user), warn=warnings.append) as cluster:
        (node,) = join(cluster, peer)
        peer.pod("a")
        peer.phase("a", "Running")
        cluster.leave([node.name])
        with pytest.raises(ClusterError, match="missing permissions: create resourceslices"):
            join(cluster, peer, drivers=drivers)
        grant(*rules_of("ClusterRole", f"{name}-dra"), user=user)
        (node,) = join(cluster, peer, drivers=drivers)
        query = {"fieldSelector": f"spec.nodeName={node.name}"}
        path = "/apis/resource.k8s.io/v1/resourceslices"
        peer.wait(lambda: peer.request("GET", path, query=query)["items"])
    assert not [line for line in warnings if "forbidden" in line]


def annotate(peer, node, text):
    body = {"metadata": {"annotations": {"devicemanager.io/faults": text}}}
    peer.request("PATCH", node_path(node.name), body, patch="merge")


def allocatable(peer, node):
    return peer.request("GET", node_path(node.name))["status"]["allocatable"][GPU]


def ready(peer, node):
    status = peer.request("GET", node_path(node.name))["status"]
    return {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
