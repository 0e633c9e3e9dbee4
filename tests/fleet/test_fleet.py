"""Fleets: reading a cluster, the archive, usage, room for pods, rehearsals and joining."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest

import checkpoint
from devicemanager.client.errors import ApiError, Conflict
from devicemanager.cluster.cluster import Cluster
from devicemanager.cluster.node_specs import NodeSpecs
from devicemanager.cluster.options import NodeOptions
from devicemanager.fleet import (
    Candidate,
    Fleet,
    FleetError,
    collect_fleet,
    fields,
    fit,
    fleet_archive,
    read_fleet,
    rehearse_fleet,
    report,
    usage,
)
from devicemanager.fleet.fitting import NodeFit, quota, reasons
from devicemanager.fleet.joining import FleetSpecs, create_objects
from devicemanager.fleet.parallel import in_processes
from devicemanager.fleet.rehearsals import NodeRehearsal
from devicemanager.fleet.snapshots import snapshot_of
from devicemanager.rehearsal import Configure, Reboot, WithoutPlugin
from devicemanager.snapshot import KubeletConfig, archive, read_snapshot
from devicemanager.snapshot.model import LoggedPod, Part, PodDirectories, SnapshotError
from devicemanager.testing import pod_manifest
from tests.fleet.made_up import EVERYTHING, GPU, QUOTA, TEMPLATE, claim, counters, node, pod, slice_
from tests.snapshot.made_up import WHOLE, entry, saved

if TYPE_CHECKING:
    from devicemanager.client.api import ApiClient


def load_all(server: Any) -> None:
    for each in EVERYTHING:
        server.load(each)
        if each["kind"] == "Node":
            # The server taints new nodes until a node lifecycle controller finds them ready.
            name, spec = each["metadata"]["name"], each["spec"]
            server.change("nodes", name, lambda value, spec=spec: {**value, "spec": spec})


@pytest.fixture
def fleet(apiserver: Any, tmp_path: Path) -> Fleet:
    load_all(apiserver)
    apiserver.log.clear()
    snapshots = {"worker.tar.gz": attrs.evolve(WHOLE, node="node-c")}
    return collect_fleet(apiserver.kubeconfig(tmp_path / "source"), snapshots=snapshots)


def made(*nodes: dict[str, Any], pods: tuple[dict[str, Any], ...] = ()) -> Fleet:
    return Fleet("2026-01-31T12:00:00Z", "t", "s", objects={"nodes": nodes, "pods": pods})


def fits(fleet: Fleet, manifest: dict[str, Any], replicas: int = 10) -> dict[str, int]:
    found = fit(fleet, Candidate.of(fleet, manifest, [TEMPLATE]), replicas)
    return {each.node: each.pods for each in found}


# -- reading -----------------------------------------------------------------------------


def test_a_cluster_is_only_listed_and_secrets_are_left_alone(apiserver: Any, fleet: Fleet) -> None:
    logged = apiserver.log.find()
    assert {each.method for each in logged} == {"GET"}
    assert not any("secrets" in each.path for each in logged)
    text = json.dumps(fleet.objects)
    assert "hidden" not in text
    assert [len(fleet.all(each)) for each in ("nodes", "pods", "resourceslices")] == [3, 6, 2]


def test_an_archive_has_everything(fleet: Fleet) -> None:
    again = read_fleet(fleet_archive(fleet))
    assert again == fleet
    assert fleet_archive(again) == fleet_archive(fleet)
    assert snapshot_of(again.nodes[2]).node == "node-c"
    assert str(again.nodes[0].version) == "1.36.1"


def test_an_older_server_without_kinds_leaves_a_note(tmp_path: Path) -> None:
    from devicemanager.apiserver import FakeApiServer

    hidden = [f"resource.k8s.io/{each}" for each in ("v1", "v1beta1", "v1beta2")]
    with FakeApiServer(hidden=hidden) as server:
        found = collect_fleet(server.kubeconfig(tmp_path / "kubeconfig"))
    absent = [part.name for part in found.parts if part.absent]
    assert "resourceslices.json" in absent and "nodes.json" not in absent


def test_node_of_a_snapshot_is_found_by_the_name_of_its_host(
    apiserver: Any, tmp_path: Path
) -> None:
    one = node("node-a", 4)
    one["metadata"]["labels"] = {"kubernetes.io/hostname": "worker-1"}
    two = node("node-b", 4)
    del two["metadata"]["labels"]
    for each in (one, two):
        apiserver.load(each)
    snapshots = {"a.tar.gz": WHOLE, "b.tar.gz": attrs.evolve(WHOLE, node="node-b")}
    found = collect_fleet(apiserver.kubeconfig(tmp_path / "k"), snapshots=snapshots)
    assert {name: read_snapshot(data).node for name, data in found.archives.items()} == {
        "node-a": "worker-1",
        "node-b": "node-b",
    }


def test_snapshot_of_an_unknown_node_is_an_error(apiserver: Any, tmp_path: Path) -> None:
    with pytest.raises(FleetError, match=r"x\.tar\.gz: the cluster has no node worker-1"):
        collect_fleet(apiserver.kubeconfig(tmp_path / "k"), snapshots={"x.tar.gz": WHOLE})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema": "x"}, "unknown schema 'x'"),
        ({"parts": 3}, "missing or invalid field"),
        ({"snapshots": {"no": "node"}}, "missing or invalid field: 'no'"),
    ],
)
def test_a_damaged_index_is_one_clear_line(change: Any, text: str) -> None:
    from devicemanager.fleet.archive import FORM
    from devicemanager.snapshot.packing import pack, unpack

    files = unpack(fleet_archive(made()), "f", FORM)
    files["fleet.json"] = json.dumps({**json.loads(files["fleet.json"]), **change}).encode()
    with pytest.raises(FleetError, match=text):
        read_fleet(pack(files, 0, FORM))


@pytest.mark.parametrize(
    ("plural", "path", "value", "text"),
    [
        ("nodes", "spec.taints", 3, r"spec\.taints: expected a list"),
        ("nodes", "spec.taints", [{"key": 3}], r"spec\.taints\[0\]\.key: expected a string"),
        ("nodes", "status.capacity", {"cpu": []}, r"status\.capacity: expected an object with q"),
        ("nodes", "status.nodeInfo", "v1", r"status\.nodeInfo: expected an object"),
        ("nodes", "metadata.labels", {"a": 1}, r"metadata\.labels has a value that is not a s"),
        ("pods", "spec.containers", [3], r"spec\.containers\[0\]: expected an object"),
        ("pods", "spec.tolerations", [{"key": []}], r"spec\.tolerations\[0\]\.key: expected a str"),
        ("pods", "spec.resourceClaims", {"a": 1}, r"spec\.resourceClaims: expected a list"),
        ("resourcequotas", "status.used", [1], r"status\.used: expected an object with quant"),
        ("resourceslices", "spec.pool", 3, r"cannot unmarshal number into Go struct field"),
        ("resourceslices", "spec.devices", [{"name": 3}], r"cannot unmarshal number into Go st"),
        ("resourceclaims", "status.allocation.devices.results", "x", r"cannot unmarshal string"),
    ],
)
def test_wrong_type_in_an_object_is_one_clear_line(
    fleet: Fleet, plural: str, path: str, value: Any, text: str
) -> None:
    objects = json.loads(json.dumps(fleet.objects))
    *above, last = path.split(".")
    target = objects[plural][0]
    for name in above:
        target = target[name]
    target[last] = value
    broken = attrs.evolve(fleet, objects=objects)
    with pytest.raises(FleetError, match=rf"^f: {plural}\.json: item 0: .*{text}") as raised:
        read_fleet(fleet_archive(broken), "f")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"name": "a", "secret": "s", "labels": None}, {"name": "a"}),
        ({"list": [{"name": "a", "secret": "s"}, 7]}, {"list": [{"name": "a"}, 7]}),
        # Wrong types are kept, so that reading the archive names them.
        ({"list": {"name": "a"}}, {"list": {"name": "a"}}),
        ("text", "text"),
    ],
)
def test_only_named_fields_are_kept(value: Any, expected: Any) -> None:
    text = fields.KINDS["nodes"]["metadata"]["name"]
    known = {"name": text, "labels": text, "list": [{"name": text}]}
    assert fields.kept(value, known) == expected


REQUIREMENT = {"key": "zone", "operator": "In", "values": ["a"]}
RESOURCES = {
    "limits": {GPU: "1"},
    "requests": {"cpu": 1},
    "claims": [{"name": "gpu", "request": "half"}],
}
CONTAINER = {"name": "main", "image": "i", "restartPolicy": "Always", "resources": RESOURCES}
CLAIM = {"name": "gpu", "resourceClaimName": "a", "resourceClaimTemplateName": "half"}
IDENTITY = {"name": "a", "namespace": "ml", "uid": "u", "creationTimestamp": "2026-01-31T12:00:00Z"}
DEVICES = {"requests": [{"name": "gpu"}], "constraints": [{"requests": ["gpu"]}]}
ALLOCATION = {
    "devices": {"results": [{"request": "gpu"}]},
    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [REQUIREMENT]}]},
}
COMPLETE: dict[str, dict[str, Any]] = {
    "nodes": {
        "metadata": {**IDENTITY, "labels": {"zone": "a"}},
        "spec": {
            "taints": [{"key": GPU, "value": "a", "effect": "NoSchedule"}],
            "unschedulable": True,
        },
        "status": {
            "capacity": {"cpu": "4"},
            "allocatable": {"cpu": "4"},
            "declaredFeatures": ["RestartAllContainersOnContainerExits"],
            "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}],
            "nodeInfo": {"kubeletVersion": "v1.36.1"},
        },
    },
    "pods": {
        "metadata": IDENTITY,
        "spec": {
            "nodeName": "node-a",
            "restartPolicy": "Never",
            "overhead": {"cpu": "1"},
            "resources": RESOURCES,
            "nodeSelector": {"zone": "a"},
            "tolerations": [
                {
                    "key": GPU,
                    "operator": "Equal",
                    "value": "a",
                    "effect": "NoExecute",
                    "tolerationSeconds": 5,
                }
            ],
            "resourceClaims": [CLAIM],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [REQUIREMENT], "matchFields": [REQUIREMENT]}
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
                }
            },
            "containers": [CONTAINER],
            "initContainers": [CONTAINER],
        },
        "status": {
            "phase": "Failed",
            "reason": "UnexpectedAdmissionError",
            "message": "m",
            "resourceClaimStatuses": [CLAIM],
            "extendedResourceClaimStatus": {
                "resourceClaimName": "a",
                "requestMappings": [
                    {"containerName": "main", "resourceName": GPU, "requestName": "gpu"}
                ],
            },
        },
    },
    "resourcequotas": {
        "metadata": IDENTITY,
        "spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"], "scopeSelector": {"a": []}},
        "status": {"used": {"pods": "1"}},
    },
    "resourceslices": {"metadata": IDENTITY, "spec": slice_("node-a")["spec"]},
    "deviceclasses": {
        "metadata": IDENTITY,
        "spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": GPU},
    },
    "resourceclaims": {
        "metadata": IDENTITY,
        "spec": {"devices": DEVICES},
        "status": {"allocation": ALLOCATION, "reservedFor": [{"name": "train"}]},
    },
    "resourceclaimtemplates": {"metadata": IDENTITY, "spec": {"spec": {"devices": DEVICES}}},
}
"""An object of each kind with all fields that results depend on."""


@pytest.mark.parametrize("plural", fields.KINDS)
def test_fields_that_results_depend_on_are_kept(plural: str) -> None:
    value = COMPLETE[plural]
    assert fields.problem(value, fields.KINDS[plural]) == ""
    assert fields.kept(value, fields.KINDS[plural]) == value


@pytest.mark.parametrize(
    ("plural", "value", "text"),
    [
        ("nodes", {"metadata": {"uid": 1}}, "metadata.uid: expected a string"),
        ("nodes", {"spec": {"unschedulable": 1}}, "spec.unschedulable: expected true or false"),
        ("nodes", {"spec": {"taints": {}}}, "spec.taints: expected a list"),
        ("nodes", {"status": []}, "status: expected an object"),
        ("nodes", {"status": {"capacity": []}}, "status.capacity: expected an object with quan"),
        ("nodes", {"metadata": {"labels": 1}}, "metadata.labels: expected an object with strings"),
        (
            "pods",
            {"spec": {"tolerations": [{}, {"tolerationSeconds": "5"}]}},
            "spec.tolerations[1].tolerationSeconds: expected a number",
        ),
    ],
)
def test_first_field_of_a_wrong_type_is_named(plural: str, value: Any, text: str) -> None:
    assert fields.problem(value, fields.KINDS[plural]).startswith(text)


def test_other_data_is_not_a_fleet() -> None:
    with pytest.raises(SnapshotError, match="f: not a fleet"):
        read_fleet(b"x", "f")
    broken = made({"metadata": {}})
    with pytest.raises(FleetError, match=r"f: nodes\.json: item 0: spec or status is not"):
        read_fleet(fleet_archive(broken), "f")


# -- usage -------------------------------------------------------------------------------


def test_usage_counts_devices_and_fragments(fleet: Fleet) -> None:
    found = {each.name: each for each in usage(fleet)}
    a, b, c = (found[name].resources[0] for name in ("node-a", "node-b", "node-c"))
    assert (a.capacity, a.healthy, a.allocated, a.free, a.fits) == (4, 4, 3, 1, (1, 0, 0, 0))
    assert (b.capacity, b.healthy, b.allocated, b.free, b.fits) == (4, 3, 1, 2, (2, 1, 0, 0))
    # This node has a snapshot: four devices, three of them allocated.
    assert (c.capacity, c.allocated, c.free, c.aligned) == (4, 3, 1, True)
    kinds = {name: [one.kind for one in each.findings] for name, each in found.items()}
    assert kinds["node-a"] == []
    assert kinds["node-b"] == ["devices-unhealthy"]
    assert kinds["node-c"][0] == "pods-rejected"


def with_devices_on_two_nodes(policy: str) -> Fleet:
    """A node with four devices. g0 and g2 are allocated, g1 and g3 are free."""
    snapshot = attrs.evolve(
        WHOLE,
        node="node-a",
        # g0 and g1 are on one NUMA node, g2 and g3 on the other one.
        pods=(),
        checkpoint=saved(entry("u-train", "g0"), entry("u-infer", "g2")),
        config=KubeletConfig("c", {"topologyManagerPolicy": policy}, pid=1),
    )
    return attrs.evolve(made(node("node-a", 4)), archives={"node-a": archive(snapshot)})


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_policies_that_reject_no_pods_do_not_align(policy: str) -> None:
    (found,) = usage(with_devices_on_two_nodes(policy))
    assert (found.resources[0].fits, found.resources[0].aligned) == ((2, 1, 0, 0), False)


def test_alignment_on_numa_nodes_can_prevent_pods() -> None:
    fleet = with_devices_on_two_nodes("single-numa-node")
    (found,) = usage(fleet)
    assert (found.resources[0].free, found.resources[0].fits) == (2, (2, 0, 0, 0))
    assert found.resources[0].lost_to_alignment == (0, 1, 0, 0)
    assert "without NUMA alignment, 1 more pod with 2 vendor.com/gpu would fit: on node-a" in list(
        report.splits([found], fleet)
    )
    manifest = pod_manifest("new", {GPU: 2})
    (fitted,) = fit(fleet, Candidate.of(fleet, manifest), 1)
    assert fitted.reason.startswith("TopologyAffinityError")


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_all_free_devices_are_used_if_alignment_rejects_no_pod(policy: str) -> None:
    snapshot = attrs.evolve(
        WHOLE,
        pods=(),
        checkpoint=saved(entry("u-train", "g0")),
        config=KubeletConfig("c", {"topologyManagerPolicy": policy}, pid=1),
    )
    fleet = attrs.evolve(made(node("node-a", 4)), archives={"node-a": archive(snapshot)})
    (found,) = usage(fleet)
    assert (found.resources[0].free, found.resources[0].fits) == (3, (3, 1, 0, 0))
    assert found.resources[0].lost_to_alignment == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ({"type": "Ready", "status": "False", "reason": "KubeletNotReady"}, "KubeletNotReady"),
        ({"type": "Ready", "status": "Unknown"}, "Unknown"),
        ({"type": "Ready", "status": "Unknown", "reason": ""}, "Unknown"),
        ({"type": "Ready", "status": "True"}, None),
        ({"type": "MemoryPressure", "status": "False"}, None),
    ],
)
def test_node_that_is_not_ready_is_an_error(condition: dict[str, str], text: str | None) -> None:
    one = node("node-a", 2)
    one["status"]["conditions"] = [condition]
    (found,) = usage(made(one))
    expected = [] if text is None else [("not-ready", f"the node is not ready: {text}")]
    assert [(each.kind, each.text) for each in found.findings] == expected


def test_problems_of_a_node_have_numbers() -> None:
    one = node("node-a", 2, healthy=1)
    del one["status"]["conditions"]
    failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    other = {"phase": "Failed", "reason": "TopologyAffinityError"}
    unknown = pod("x", "node-a")
    unknown["spec"]["containers"][0]["resources"] = {"limits": {"vendor.com/nic": "3"}}
    pods = (
        pod("a", "node-a", 1, **failed),
        pod("b", "node-a", 1, **failed),
        pod("c", "node-a", 1, **other),
        pod("d", "node-a", 2),
        unknown,
    )
    (found,) = usage(made(one, pods=pods))
    assert sorted((each.severity.value, each.kind, each.text) for each in found.findings) == [
        ("error", "devices-missing", "pods request 2 devices of vendor.com/gpu; healthy: 1"),
        ("error", "devices-missing", "pods request 3 devices of vendor.com/nic; healthy: 0"),
        ("error", "pods-rejected", "the kubelet rejected 1 pod: TopologyAffinityError"),
        ("error", "pods-rejected", "the kubelet rejected 2 pods: UnexpectedAdmissionError"),
        ("warning", "devices-unhealthy", "unhealthy devices of vendor.com/gpu: 1 of 2"),
    ]
    assert found.findings[-1].severity.value == "warning"
    # No device is free, although more are allocated than are healthy.
    assert (found.resources[0].allocated, found.resources[0].free) == (2, 0)


def test_node_whose_healthy_devices_are_all_used_has_no_problem() -> None:
    (found,) = usage(made(node("node-a", 2), pods=(pod("a", "node-a", 2),)))
    assert (found.findings, found.resources[0].free) == ((), 0)


def test_devices_that_only_the_capacity_has_are_unhealthy() -> None:
    one = node("node-a", 4)
    del one["status"]["allocatable"][GPU]
    (found,) = usage(made(one))
    (gpus,) = found.resources
    assert (gpus.capacity, gpus.healthy, gpus.free, gpus.aligned) == (4, 0, 0, False)
    assert [each.text for each in found.findings] == [f"unhealthy devices of {GPU}: 4 of 4"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.36.1-vendor.3", "1.36.1"),
        ("1.34", "1.34"),
        ("v1.99.0", ""),
        ("v2.0.0", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_version_of_a_kubelet_is_empty_if_it_is_unknown(text: str | None, version: str) -> None:
    one = node("node-a", 1)
    one["status"]["nodeInfo"] = {} if text is None else {"kubeletVersion": text}
    (found,) = usage(made(one))
    assert (found.name, found.version, found.has_snapshot) == ("node-a", version, False)
    del one["status"]["nodeInfo"]
    assert made(one).nodes[0].version is None


def test_snapshot_made_from_objects_says_only_what_the_server_knows() -> None:
    one = node("node-a", 3, healthy=2)
    one["status"]["capacity"]["vendor.com/nic"] = "2"
    running = pod("train", "node-a", 1)
    too_large = pod("large", "node-a", 5)
    (only,) = made(one, pods=(running, too_large, pod("web", "node-a"))).nodes
    snapshot = snapshot_of(only)
    assert (snapshot.taken, snapshot.tool, snapshot.node, snapshot.root) == ("", "", "node-a", "")
    assert [each.source for each in snapshot.parts] == [
        "the checkpoint",
        "the kubelet's configuration",
    ]
    assert all(each.problem for each in snapshot.parts)
    assert snapshot.directories == PodDirectories(
        ("u-train",), (LoggedPod("ml", "train", "u-train"),)
    )
    saved = checkpoint.loads(snapshot.checkpoint or b"")
    registered = {str(name): len(ids) for name, ids in saved.registered_devices.items()}
    # The server does not know any healthy device of the other resource.
    assert registered == {GPU: 2, "vendor.com/nic": 0}
    assert [str(each.pod_uid) for each in saved.entries or ()] == ["u-train"]


@pytest.mark.parametrize("field", ["capacity", "allocatable"])
def test_invalid_amount_of_a_node_names_the_node(field: str) -> None:
    one = node("node-a", 1)
    one["status"][field][GPU] = "many"
    with pytest.raises(FleetError, match=r"^node-a: quantities must match"):
        list(usage(made(one)))


def test_invalid_pod_is_an_error() -> None:
    broken = pod("train", "node-a", 1)
    broken["spec"]["containers"][0]["resources"]["limits"][GPU] = "many"
    with pytest.raises(FleetError, match="many"):
        list(usage(made(node("node-a", 1), pods=(broken,))))


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (1, "node-0"),
        (3, "node-0, node-1, node-2"),
        (4, "node-0, node-1, node-2 and 1 more"),
        (5, "node-0, node-1, node-2 and 2 more"),
    ],
)
def test_at_most_three_nodes_are_named(count: int, names: str) -> None:
    policy = {"topologyManagerPolicy": "single-numa-node"}
    snapshot = attrs.evolve(
        WHOLE,
        pods=(),
        checkpoint=saved(entry("u-train", "g0"), entry("u-infer", "g2")),
        config=KubeletConfig("c", policy, pid=1),
    )
    nodes = [node(f"node-{number}", 4) for number in range(count)]
    archives = {each["metadata"]["name"]: archive(snapshot) for each in nodes}
    fleet = attrs.evolve(made(*nodes), archives=archives)
    found = list(usage(fleet, 1))
    pods = "pods" if count > 1 else "pod"
    first = next(iter(report.splits(found, fleet)))
    text = (
        f"without NUMA alignment, {count} more {pods} with 2 vendor.com/gpu would fit: on {names}"
    )
    assert first == text


def test_free_partitions_without_counters_are_blocked(fleet: Fleet) -> None:
    (pool,) = report.pools(fleet)
    assert (pool.devices, pool.allocated, pool.blocked) == (3, 1, 1)


def test_devices_with_admin_access_and_of_old_generations_do_not_count() -> None:
    admin, newer = claim("shared", "half-0", "node-a"), slice_("node-a")
    admin["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    newer["spec"]["pool"]["generation"] = 2
    for each in newer["spec"]["devices"]:
        del each["consumesCounters"]
    objects = {"resourceclaims": (admin,), "resourceslices": (slice_("node-a"), newer)}
    (pool,) = report.pools(attrs.evolve(made(), objects=objects))
    assert (pool.devices, pool.allocated, pool.blocked) == (3, 0, 0)


def test_unread_parts_are_named_unless_the_server_has_no_such_objects() -> None:
    parts = (
        Part("a.json", "/a"),
        Part("b.json", "/b", "Forbidden"),
        Part("c.json", "/c", "the server has no c", absent=True),
    )
    fleet = attrs.evolve(made(node("node-a", 1)), parts=parts)
    assert list(report.assumptions(fleet, 0)) == ["/b is not in the archive: Forbidden"]
    first, *_ = report.assumptions(fleet, 1)
    assert first.startswith("on 1 of 1 nodes, all free devices are equal")


@pytest.mark.parametrize(
    ("gpus", "slices", "text"),
    [
        (0, 7, ["the MIG split prevents pods with vendor.com/gpu: 7 vendor.com/mig-1g.5gb are "]),
        (1, 7, []),
        (0, 0, []),
    ],
)
def test_free_mig_slices_do_not_serve_whole_devices(
    gpus: int, slices: int, text: list[str]
) -> None:
    one = node("node-a", gpus)
    for field in ("capacity", "allocatable"):
        one["status"][field] |= {"vendor.com/mig-1g.5gb": str(slices)}
    fleet = made(one)
    found = list(report.splits(list(usage(fleet)), fleet))
    assert [each.partition("free, ")[0] for each in found] == text


# -- fitting -----------------------------------------------------------------------------


def test_a_pod_fits_where_devices_are_free_and_the_node_matches(fleet: Fleet) -> None:
    one = pod_manifest("new", {GPU: 1}, namespace="ml")
    assert fits(fleet, one) == {"node-a": 1, "node-b": 2, "node-c": 0}
    one["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert fits(fleet, one)["node-c"] == 1
    one["spec"]["nodeSelector"] = {"zone": "b"}
    assert fits(fleet, one) == {"node-a": 0, "node-b": 2, "node-c": 0}
    # Two pods on node-b request one of its four CPUs each.
    assert fits(fleet, pod_manifest("new", {"cpu": "1500m"}, namespace="ml"))["node-b"] == 1


def test_quotas_limit_copies(fleet: Fleet) -> None:
    candidate = Candidate.of(fleet, pod_manifest("new", {GPU: 2}, namespace="ml"))
    assert list(quota(fleet, candidate)) == [("gpus", f"requests.{GPU}", 1), ("gpus", "pods", 95)]


@pytest.mark.parametrize(
    "scopes",
    [
        {"scopes": ["BestEffort"]},
        {
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
                ]
            }
        },
    ],
)
def test_quota_with_scopes_is_left_out(fleet: Fleet, scopes: dict[str, Any]) -> None:
    scoped = {**QUOTA, "spec": {**QUOTA["spec"], **scopes}}
    fleet = attrs.evolve(fleet, objects={**fleet.objects, "resourcequotas": (scoped,)})
    candidate = Candidate.of(fleet, pod_manifest("new", {GPU: 2}, namespace="ml"))
    assert list(quota(fleet, candidate)) == []


def limits_of(hard: dict[str, str], used: dict[str, str], **changes: Any) -> list[int]:
    """Return the number of copies of a pod that a quota with these amounts allows."""
    value = {
        "metadata": {"name": "q", "namespace": "ml"},
        "spec": {"hard": hard, **changes},
        "status": {"used": used},
    }
    fleet = attrs.evolve(made(), objects={"resourcequotas": (value,)})
    one = pod_manifest("new", {GPU: 2, "cpu": "500m", "memory": "1Gi"}, namespace="ml")
    return [count for _, _, count in quota(fleet, Candidate.of(fleet, one))]


@pytest.mark.parametrize(
    ("key", "hard", "used", "expected"),
    [
        ("pods", "3", "1", [2]),
        ("count/pods", "3", "1", [2]),
        ("cpu", "2", "0", [4]),
        ("requests.cpu", "2", "600m", [2]),
        ("limits.cpu", "2", "2", [0]),
        ("limits.memory", "4Gi", "6Gi", [0]),
        ("memory", "4Gi", "1Gi", [3]),
        (f"requests.{GPU}", "5", "0", [2]),
        ("configmaps", "1", "1", []),
        ("requests.vendor.com/nic", "0", "0", []),
    ],
)
def test_each_resource_of_a_quota_limits_copies(
    key: str, hard: str, used: str, expected: list[int]
) -> None:
    assert limits_of({key: hard}, {key: used}) == expected


def test_missing_amounts_scopes_and_invalid_amounts_of_a_quota() -> None:
    assert limits_of({"pods": "3"}, {}) == [3]
    assert limits_of({"pods": "3"}, {}, scopes=["BestEffort"]) == []
    assert limits_of({"cpu": "1", "pods": "3"}, {}) == [2, 3]
    with pytest.raises(FleetError, match=r"^invalid quantity 'many' in a ResourceQuota: "):
        limits_of({"pods": "many"}, {})


def test_quotas_of_other_namespaces_and_with_scopes_do_not_end_the_search() -> None:
    def named(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"hard": {"pods": "3"}, **spec},
            "status": {},
        }

    quotas = (
        named("other", "web"),
        named("scoped", "ml", scopes=["BestEffort"]),
        named("selected", "ml", scopeSelector={"matchExpressions": []}),
        {**named("empty", "ml"), "spec": {}},
        named("last", "ml"),
    )
    fleet = attrs.evolve(made(), objects={"resourcequotas": quotas})
    candidate = Candidate.of(fleet, pod_manifest("new", namespace="ml"))
    assert list(quota(fleet, candidate)) == [("last", "pods", 3)]


def test_most_frequent_reason_is_first() -> None:
    found = [("a", 0, "few"), ("b", 0, "many"), ("c", 0, "many"), ("d", 1, "full"), ("e", 2, "")]
    counts = reasons([NodeFit(*each) for each in found])
    assert list(counts.items()) == [("many", 2), ("few", 1)]


@pytest.mark.parametrize(("replicas", "pods"), [(2, 2), (3, 3), (9, 4)])
def test_data_of_a_fit_has_all_nodes(replicas: int, pods: int) -> None:
    found = [NodeFit("a", 3, ""), NodeFit("b", 1, "full")]
    assert report.fit_data(found, replicas) == {
        "replicas": replicas,
        "pods": pods,
        "nodes": [
            {"node": "a", "pods": 3, "reason": ""},
            {"node": "b", "pods": 1, "reason": "full"},
        ],
    }


def test_data_of_a_rehearsal_has_the_problem_of_a_node(fleet: Fleet) -> None:
    done = next(iter(rehearse_fleet(fleet, [Reboot()])))
    assert done.result is not None
    data = report.rehearsal_data([NodeRehearsal("node-x", None, "no"), done])
    assert data["loses_pods"] is done.loses_pods is True
    first, second = data["nodes"]
    assert first == {"node": "node-x", "problem": "no"}
    assert (second["node"], second["problem"]) == ("node-a", None)
    assert report.rehearsal_data([NodeRehearsal("x", None, "no")])["loses_pods"] is False


UNUSABLE = [
    ({"unschedulable": True}, {}, "the node is unschedulable"),
    (
        {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        {},
        "the pod does not tolerate a taint of the node",
    ),
    ({}, {"nodeSelector": {"zone": "b"}}, "the node does not match the pod's node selector"),
    (
        {},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "zone", "operator": "In", "values": ["b"]}
                                ]
                            }
                        ]
                    }
                }
            }
        },
        "the node does not match the pod's required node affinity",
    ),
    ({"unschedulable": False}, {"nodeSelector": {"zone": "a"}}, ""),
    ({}, {"affinity": {"nodeAffinity": {}}}, ""),
]


@pytest.mark.parametrize(("spec", "changes", "reason"), UNUSABLE)
def test_reason_why_the_scheduler_skips_a_node(
    spec: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    fleet = made(node("node-a", 1, **spec))
    manifest = pod_manifest("new", {GPU: 1})
    manifest["spec"] |= changes
    (found,) = fit(fleet, Candidate.of(fleet, manifest), 1)
    assert (found.pods, found.reason) == (0 if reason else 1, reason)


def test_claims_from_templates_are_allocated(fleet: Fleet) -> None:
    one = pod_manifest("new", namespace="ml")
    entry = {"name": "gpu", "resourceClaimTemplateName": "half"}
    one["spec"]["resourceClaims"] = [entry]
    # One half is free; the whole device needs both halves.
    assert fits(fleet, one) == {"node-a": 1, "node-b": 0, "node-c": 0}
    one["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    with pytest.raises(FleetError, match="its copies would share"):
        fits(fleet, one)
    one["spec"]["resourceClaims"] = [{**entry, "resourceClaimTemplateName": "no"}]
    with pytest.raises(FleetError, match="unknown ResourceClaimTemplate ml/no"):
        fits(fleet, one)


# -- rehearsals --------------------------------------------------------------------------


def test_all_nodes_are_rehearsed_with_their_version(fleet: Fleet) -> None:
    found = {each.node: each for each in rehearse_fleet(fleet, [Reboot()])}
    train = found["node-a"].result
    assert train is not None
    assert train.steps[0] == "configure the kubelet: version 1.36.1"
    assert [each.name for each in train.pods] == ["ml/train"]
    assert found["node-a"].loses_pods
    assert any("older pods have the lowest IDs" in each for each in train.assumptions)
    assert {each.basis.partition(",")[0] for each in train.statements} == {"1.36.1"}
    assert {each.problem for each in found.values()} == {""}


def test_a_step_that_a_node_cannot_do_is_its_problem(fleet: Fleet) -> None:
    (_, _, last) = rehearse_fleet(fleet, [WithoutPlugin("vendor.com/nic")])
    assert last.problem.startswith("unknown resource vendor.com/nic")


def test_processes_do_not_change_the_result() -> None:
    nodes = [node(f"node-{n:02}", 2) for n in range(20)]
    pods = tuple(pod(f"p-{n}", f"node-{n:02}", 1 + n % 2) for n in range(20))
    fleet = made(*nodes, pods=pods)
    for work in (usage, lambda *args: rehearse_fleet(args[0], [Reboot()], processes=args[1])):
        assert list(work(fleet, 1)) == list(work(fleet, 2))


def _pid(_: object) -> int:
    return os.getpid()


@pytest.mark.parametrize(
    ("cpus", "values", "is_here"), [(1, 16, True), (2, 15, True), (2, 16, False)]
)
def test_processes_are_started_for_several_cpus_and_many_values(
    cpus: int, values: int, is_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    for processes in (None, cpus):
        pids = set(in_processes(_pid, range(values), processes))
        assert (os.getpid() in pids) is is_here


def _sigint(_: object) -> object:
    return signal.getsignal(signal.SIGINT)


def test_processes_leave_sigint_to_their_parent() -> None:
    assert set(in_processes(_sigint, range(20), 2)) == {signal.SIG_IGN}


def test_an_error_in_a_process_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_processes(_fails, range(20), 2))


def _fails(value: int) -> float:
    return 1 / (19 - value)


# -- a test cluster ----------------------------------------------------------------------


class RecordingApi:
    """An API client that records requests. The server rejects the paths in ``errors``."""

    def __init__(self, errors: dict[str, ApiError] | None = None) -> None:
        self.errors = errors or {}
        self.created: list[tuple[str, dict[str, Any]]] = []

    def request(self, method: str, path: str, body: dict[str, Any]) -> None:
        assert method == "POST"
        if error := self.errors.get(path):
            raise error
        self.created.append((path, body))


def test_objects_are_created_before_the_pods_that_use_them() -> None:
    plain, claiming = pod("plain", "node-a", 1), pod("claiming", "node-a")
    extended = pod("extended", "node-a", extendedResourceClaimStatus={"resourceClaimName": "x"})
    claiming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    shared = {**slice_("node-a"), "metadata": {"name": "shared"}}
    shared["spec"] = {**shared["spec"], "nodeName": None, "allNodes": True}
    other = {
        **claim("shared", "half-1", "node-a"),
        "metadata": {"name": "shared", "namespace": "x"},
    }
    kinds = {
        "nodes": (node("node-a", 1),),
        "pods": (plain, claiming, extended, pod("done", "node-a", phase="Succeeded")),
        "deviceclasses": tuple(each for each in EVERYTHING if each["kind"] == "DeviceClass"),
        "resourceslices": (slice_("node-a"), shared),
        "resourceclaimtemplates": (TEMPLATE,),
        "resourceclaims": (claim("shared", "half-0", "node-a"), other),
    }
    api, warnings = RecordingApi(), list[str]()
    objects = attrs.evolve(made(), objects=kinds)
    assert create_objects(cast("ApiClient", api), objects, warnings.append) == 3
    assert warnings == []
    group = "/apis/resource.k8s.io/v1"
    pods = "/api/v1/namespaces/ml/pods"
    assert [path for path, _ in api.created] == [
        "/api/v1/namespaces",
        f"{group}/deviceclasses",
        f"{group}/resourceslices",
        f"{group}/namespaces/ml/resourceclaimtemplates",
        f"{group}/namespaces/ml/resourceclaims",
        *[pods] * 3,
    ]
    namespace, *resources = [body for _, body in api.created[:5]]
    assert namespace == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    for body, kind in zip(
        resources,
        ("DeviceClass", "ResourceSlice", "ResourceClaimTemplate", "ResourceClaim"),
        strict=True,
    ):
        assert (body["apiVersion"], body["kind"]) == ("resource.k8s.io/v1", kind)
        assert set(body) == {"apiVersion", "kind", "metadata", "spec"}
    assert [body["metadata"] for body in resources] == [
        {"name": "gpu"},
        {"name": "shared"},
        {"name": "half", "namespace": "ml"},
        {"name": "shared", "namespace": "ml"},
    ]
    assert resources[1]["spec"] == shared["spec"]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }
    # The scheduler binds pods with claims to their node; all other pods are bound already.
    scheduled = {"affinity": affinity, "tolerations": [{"operator": "Exists"}]}
    bodies = {body["metadata"]["name"]: body for _, body in api.created[5:]}
    assert set(bodies) == {"plain", "claiming", "extended"}
    for original in (plain, claiming, extended):
        name = original["metadata"]["name"]
        spec = {**original["spec"], "automountServiceAccountToken": False}
        if name != "plain":
            del spec["nodeName"]
            spec |= scheduled
        assert bodies[name] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ml"},
            "spec": spec,
        }


def test_rejected_objects_are_named_and_existing_ones_are_not() -> None:
    path = "/api/v1/namespaces/ml/pods"
    fleet = made(node("node-a", 1), pods=(pod("train", "node-a", 1),))
    for error, expected in (
        (ApiError(403, "Forbidden", "no", "POST", path), [f"POST {path}: 403 Forbidden: no"]),
        (Conflict(409, "AlreadyExists", "exists", "POST", path), []),
    ):
        warnings: list[str] = []
        api = RecordingApi({path: error})
        assert create_objects(cast("ApiClient", api), fleet, warnings.append) == 0
        assert warnings == expected


def test_copy_of_a_node_has_its_labels_taints_and_amounts() -> None:
    taints = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": GPU, "effect": "NoSchedule"},
    ]
    bare = node("node-b", 1)
    del bare["metadata"]["labels"]
    fleet = made(node("node-a", 2, taints=taints), bare)
    fleet = attrs.evolve(fleet, objects={**fleet.objects, "resourceslices": (slice_("node-a"),)})
    options = NodeOptions(labels={"zone": "test"}, taints=({"key": "x", "effect": "NoExecute"},))
    base = NodeSpecs.numbered("unused", 1, options=options)
    specs = FleetSpecs.of(fleet, base, Configure())
    first, second = (specs.options_of(index, as_nodes=False) for index in (0, 1))
    # Labels of the command line replace those of the fleet.
    assert (first.labels["kubernetes.io/hostname"], first.labels["zone"]) == ("node-a", "test")
    assert [each["key"] for each in first.taints] == ["x", GPU]
    assert {name: str(each) for name, each in first.amounts.items()} == {
        "cpu": "4",
        "memory": "16Gi",
        "pods": "110",
    }
    assert [each.driver for each in first.drivers] == ["gpu.example.com"]
    assert [each["key"] for each in second.taints] == ["x"]
    assert second.drivers == ()
    assert "kubernetes.io/hostname" not in second.labels


def test_join_creates_the_same_nodes_with_their_pods(fleet: Fleet, tmp_path: Path) -> None:
    from devicemanager.apiserver import FakeApiServer
    from devicemanager.client.api import ApiClient
    from devicemanager.client.credentials import load

    base = NodeSpecs.numbered("unused", 1)
    specs = FleetSpecs.of(fleet, base, Configure(policy="restricted"))
    warnings: list[str] = []
    with FakeApiServer() as server:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        with Cluster.connect(kubeconfig) as cluster:
            cluster.join_specs(specs)
            api = ApiClient(load(kubeconfig))
            assert create_objects(api, fleet, warnings.append) == 3
            assert create_objects(api, fleet, warnings.append) == 0
            api.close()
            found = {each["metadata"]["name"]: each for each in server.all("nodes")}
            assert sorted(found) == ["node-a", "node-b", "node-c"]
            status = found["node-b"]["status"]
            assert (status["capacity"][GPU], status["capacity"]["cpu"]) == ("3", "4")
            assert found["node-b"]["metadata"]["labels"]["zone"] == "b"
            assert "vendor.com/gpu" in {each["key"] for each in found["node-c"]["spec"]["taints"]}
            assert {each["metadata"]["name"] for each in server.all("pods")} == {
                "train",
                "infer",
                "web",
            }
            assert [len(server.all(each)) for each in ("deviceclasses", "resourceslices")] == [1, 2]
    assert warnings == []


def test_join_schedules_pods_with_claims_to_their_nodes(
    apiserver: Any, tmp_path: Path, until: Any
) -> None:
    from devicemanager.apiserver import Controllers, FakeApiServer
    from devicemanager.client.api import ApiClient
    from devicemanager.client.credentials import load

    for each in (*EVERYTHING, slice_("node-b"), counters("node-b")):
        if each["kind"] != "Pod":
            apiserver.load(each)
    claims = ({"resourceClaimTemplateName": "half"}, {"resourceClaimName": "shared"})
    for number, source in enumerate(claims):
        value = pod(f"dra-{number}", ("node-b", "node-a")[number])
        value["spec"]["resourceClaims"] = [{"name": "gpu", **source}]
        value["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        apiserver.load(value)
    # The cluster made this claim from the template of dra-0. Another cluster makes its own.
    apiserver.load(claim("dra-0-gpu-x7k2p", "half-0", "node-b"))
    fleet = collect_fleet(apiserver.kubeconfig(tmp_path / "source"))
    specs = FleetSpecs.of(fleet, NodeSpecs.numbered("unused", 1), Configure())
    warnings: list[str] = []
    with FakeApiServer() as server, Controllers(server):
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        with Cluster.connect(kubeconfig, warn=warnings.append) as cluster:
            cluster.check(specs.names, options=specs.options)
            cluster.join_specs(specs)
            api = ApiClient(load(kubeconfig))
            assert create_objects(api, fleet, warnings.append) == 2
            api.close()
            until(lambda: {each["status"]["phase"] for each in server.all("pods")} == {"Running"})
            nodes = {
                each["metadata"]["name"]: each["spec"]["nodeName"] for each in server.all("pods")
            }
            assert nodes == {"dra-0": "node-b", "dra-1": "node-a"}
            pools = [
                each["status"]["allocation"]["devices"]["results"][0]["pool"]
                for each in server.all("resourceclaims")
            ]
            assert sorted(pools) == ["node-a", "node-b"]
            names = {each["metadata"]["name"] for each in server.all("resourceclaims")}
            assert "dra-0-gpu-x7k2p" not in names
    assert warnings == []
