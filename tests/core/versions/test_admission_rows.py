"""Admission, restart and reboot just below and at the version of each difference."""

from __future__ import annotations

import pytest

from devicemanager import ManifestError, Settings
from devicemanager.objects import manifests
from devicemanager.testing import pod_manifest
from devicemanager.testing.fakes import PRE_START_CONTAINER
from tests.helpers import container, device, devices, pod
from tests.node import GPU, Node

BELOW_A1 = ["1.24", "1.25.9", "1.26.4", "1.27.1"]
FROM_A1 = ["1.25.10", "1.26.5", "1.27.2"]
FROM_A2 = ["1.25.14", "1.26.9", "1.27.6", "1.28", "1.32", "1.36", "1.37"]
NO_HEALTHY = (
    "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
    "vendor.com/gpu, which is unexpected"
)


def outcome(node: Node) -> tuple[str, str]:
    record = node.pods.known("p")
    return record.phase.value, record.message


ADMITTED, REJECTED = ("Running", ""), ("Failed", NO_HEALTHY)


@pytest.mark.parametrize(
    ("version", "expected"),
    [(each, ADMITTED) for each in (*BELOW_A1, *FROM_A2)] + [(each, REJECTED) for each in FROM_A1],
)
def test_a1_a2_kubelet_restart_while_the_plugin_is_disconnected(
    version: str, expected: tuple[str, str]
) -> None:
    node = Node(kubelet_version=version)
    node.plugin(devices("a"))
    assert node.admit(pod("p", gpu=1), start=True).admitted
    node.restart()
    assert outcome(node) == expected
    # Its devices stay allocated until another pod is admitted.
    assert node.devices("p") == {"app": {GPU: ["a"]}}


@pytest.mark.parametrize(
    ("version", "expected"),
    [(each, ADMITTED) for each in BELOW_A1] + [(each, REJECTED) for each in (*FROM_A1, *FROM_A2)],
)
def test_a1_reboot_before_the_plugin_registers_again(
    version: str, expected: tuple[str, str]
) -> None:
    node = Node(kubelet_version=version)
    plugin = node.plugin(devices("a"), pre_start_required=True)
    assert node.admit(pod("p", gpu=1), start=True).admitted
    plugin.calls.clear()
    node.restart(reboot=True)
    assert outcome(node) == expected
    if expected == ADMITTED:
        # The container starts with the stored response and without PreStartContainer.
        assert node.start("p").envs == {"A": "1"}
        assert PRE_START_CONTAINER not in [call.method for call in plugin.calls]


@pytest.mark.parametrize(
    ("version", "expected"),
    [(each, ADMITTED) for each in BELOW_A1] + [(each, REJECTED) for each in (*FROM_A1, *FROM_A2)],
)
def test_a1_finished_init_containers_after_a_restart(
    version: str, expected: tuple[str, str]
) -> None:
    # Includes Q5: without it no pod is rejected.
    for quirks in ("reference", ()):
        node = Node(kubelet_version=version, quirks=quirks)
        node.plugin(devices("a"))
        spec = pod("p", container("app"), init=[container("init", gpu=1)])
        assert node.admit(spec, start=True).admitted
        node.restart()
        assert outcome(node) == (expected if quirks else ADMITTED)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.27.1", "can't allocate unregistered device vendor.com/gpu"),
        ("1.27.2", "cannot allocate unregistered device vendor.com/gpu"),
    ],
)
def test_a1_unregistered_resource(version: str, text: str) -> None:
    node = Node(kubelet_version=version, strict=True)
    rejected = node.admit(pod("p", gpu=1))
    assert rejected.message == f"Allocate failed due to {text}, which is unexpected"
    # The same for a resource that only a pod still uses.
    node = Node(kubelet_version=version)
    plugin = node.plugin(devices("a", "b"))
    node.admit(pod("holder", gpu=1))
    plugin.leave()
    node.clock.advance(Settings().grace_period + 1)
    assert GPU not in node.manager.devices()
    rejected = node.admit(pod("p", gpu=1))
    assert rejected.message == f"Allocate failed due to {text}, which is unexpected"


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (
            "1.27.1",
            "Allocate failed due to requested number of devices unavailable for vendor.com/gpu. "
            "Requested: 1, Available: 0, which is unexpected",
        ),
        ("1.27.2", NO_HEALTHY),
    ],
)
def test_a1_no_healthy_device(version: str, message: str) -> None:
    node = Node(kubelet_version=version)
    node.plugin(devices("a")).leave()
    rejected = node.admit(pod("p", gpu=1))
    assert rejected.message == message
    since = "kubelets do this since 1.25.10, 1.26.5, 1.27.2 and 1.28 (k/k#116376)"
    assert (since in rejected.explain().splitlines()[2]) is (version == "1.27.2")
    assert node.admit(pod("none", gpu=0)).admitted


@pytest.mark.parametrize(("version", "left"), [("1.28", 2), ("1.29", 1)])
def test_a6_reuse_of_sidecar_devices(version: str, left: int) -> None:
    node = Node(kubelet_version=version, feature_gates={"SidecarContainers": True})
    node.plugin(devices("a", "b"))
    spec = pod("p", container("app", gpu=1), init=[container("side", restartable=True, gpu=1)])
    assert node.admit(spec).admitted
    assert node.devices("p")["app"] == {GPU: ["a" if left == 2 else "b"]}


@pytest.mark.parametrize(("version", "gate", "fits"), [("1.27", None, True), ("1.28", True, False)])
def test_ta8_sidecar_and_app_containers(version: str, gate: bool | None, fits: bool) -> None:
    gates = {} if gate is None else {"SidecarContainers": gate}
    node = Node(
        kubelet_version=version,
        feature_gates=gates,
        topology_policy="single-numa-node",
        topology_scope="pod",
    )
    node.plugin([device("a", 0), device("b", 1)])
    spec = pod("p", container("app", gpu=1), init=[container("side", restartable=True, gpu=1)])
    assert node.admit(spec).admitted is fits


EMPTY_REPLY = "&AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}"


@pytest.mark.parametrize(("version", "printed"), [("1.33", EMPTY_REPLY), ("1.34", "")])
def test_allocate_response_without_containers(version: str, printed: str) -> None:
    node = Node(kubelet_version=version)
    node.plugin(devices("a"), responses=())
    assert node.admit(pod("p", gpu=1)).message == (
        f"Allocate failed due to no containers return in allocation response {printed}, "
        "which is unexpected"
    )


@pytest.mark.parametrize("version", ["1.30", "1.31"])
def test_init_container_requests_an_unknown_resource(version: str) -> None:
    node = Node(kubelet_version=version)
    app = container("app", unknown=3)
    # In all versions the request of an app container is left out.
    assert node.admit(pod("apps", app)).admitted
    assert node.admit(pod("nothing", app, init=(container("init"),))).admitted
    inits = pod("inits", app, init=(container("init", unknown=2),))
    admission = node.admit(inits)
    if version == "1.31":
        assert admission.admitted
        return
    assert (admission.reason, admission.message) == (
        "OutOfvendor.com/unknown",
        "Node didn't have enough resource: vendor.com/unknown, requested: 2, used: 6, capacity: 0",
    )


BACKED = {
    "extendedResourceClaimStatus": {
        "resourceClaimName": "claim",
        "requestMappings": [
            {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}
        ],
    }
}


@pytest.mark.parametrize(
    ("version", "gate", "count", "message"),
    [
        # Without a claim status, a request larger than the node's amount is rejected.
        ("1.33", None, 2, "requested number of devices unavailable"),
        ("1.34", False, 2, "requested number of devices unavailable"),
        ("1.34", True, 1, ""),
        ("1.35", False, 2, "requested number of devices unavailable"),
        ("1.35", True, 2, ""),
        ("1.36", None, 2, ""),
        ("1.36", False, 2, "requested number of devices unavailable"),
    ],
)
def test_a11_resource_provided_by_a_claim(
    version: str, gate: bool | None, count: int, message: str
) -> None:
    gates = {} if gate is None else {"DRAExtendedResource": gate}
    node = Node(kubelet_version=version, feature_gates=gates)
    plugin = node.plugin(devices("a"))
    backed = manifests.parse(pod_manifest("p", {GPU: count}, uid="p") | {"status": BACKED})
    admission = node.admit(backed, start=True)
    assert message in admission.message and admission.admitted is (not message)
    # Up to 1.34 the plugin is called nevertheless.
    assert bool(plugin.calls) is (version == "1.34" and not message)


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ("Running", "status"),
        ({"extendedResourceClaimStatus": []}, "status.extendedResourceClaimStatus"),
        (
            {"extendedResourceClaimStatus": {"requestMappings": {}}},
            "status.extendedResourceClaimStatus.requestMappings",
        ),
        (
            {"extendedResourceClaimStatus": {"requestMappings": [{"containerName": "main"}]}},
            r"status.extendedResourceClaimStatus.requestMappings\[0\].resourceName",
        ),
        (
            {"extendedResourceClaimStatus": {"requestMappings": [{"containerName": 1}]}},
            r"status.extendedResourceClaimStatus.requestMappings\[0\].containerName",
        ),
    ],
)
def test_a11_invalid_claim_status(status: object, field: str) -> None:
    with pytest.raises(ManifestError, match="^" + field):
        manifests.parse(pod_manifest("p", {GPU: 1}) | {"status": status})


POD_SCOPE = (
    "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
)
CONTAINER_SCOPE = (
    "Pod Scope pod with pod-level resources failed admission with a container-level topology "
    "manager"
)
LOCALITY = "Resources cannot be allocated with Topology locality"


@pytest.mark.parametrize(
    ("version", "gate", "scope", "message"),
    [
        ("1.35", None, "pod", LOCALITY),
        ("1.36", None, "pod", LOCALITY),
        ("1.36", True, "pod", POD_SCOPE),
        ("1.36", True, "container", CONTAINER_SCOPE),
    ],
)
def test_ta5_pod_level_resources(version: str, gate: bool | None, scope: str, message: str) -> None:
    gates = {} if gate is None else {"PodLevelResourceManagers": gate}
    node = Node(
        kubelet_version=version,
        feature_gates=gates,
        topology_policy="single-numa-node",
        topology_scope=scope,
    )
    node.plugin([device("a", 0), device("b", 1)])
    manifest = pod_manifest("p", {GPU: 2})
    assert node.admit(manifests.parse(manifest)).message == LOCALITY
    manifest = pod_manifest("q", {GPU: 2})
    manifest["spec"]["resources"] = {"limits": {"cpu": "1"}}
    rejected = node.admit(manifests.parse(manifest))
    assert (rejected.reason, rejected.message) == ("TopologyAffinityError", message)


@pytest.mark.parametrize("gate", [False, True])
def test_a11_node_check_skips_claimed_resources(gate: bool) -> None:
    node = Node(kubelet_version="1.34", feature_gates={"DRAExtendedResource": gate})
    # The pod is admitted without the device: no plugin has registered the resource.
    assert node.admit(pod("without", gpu=1)).admitted
    node.plugin(devices("a"))
    backed = manifests.parse(pod_manifest("p", {GPU: 1}, uid="p") | {"status": BACKED})
    assert node.admit(backed).reason == ("" if gate else f"OutOf{GPU}")
