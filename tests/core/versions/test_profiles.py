"""Observable differences of versions: PodResources, plugin directory, topology and status."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

from devicemanager import MockKubelet, NumaTopology, Settings, TopologyConfigError
from devicemanager.testing import pod_manifest
from podresources import PodResourcesClient, PodResourcesError, RateLimited

GPU = "vendor.com/gpu"
Make = Callable[..., MockKubelet]


@pytest.fixture
def kubelet(make_mock_kubelet) -> Make:
    """Create a kubelet of a version, and a client."""

    def make(version: str, **gates: bool) -> MockKubelet:
        settings = Settings(kubelet_version=version, feature_gates=gates, durability="process")
        return make_mock_kubelet(settings)

    return make


def answer(kubelet: MockKubelet, method: str, *arguments: str) -> object:
    """Return the response to a client, or the code and text of the error."""
    with PodResourcesClient(kubelet.pod_resources_socket) as client:
        try:
            return getattr(client, method)(*arguments)
        except PodResourcesError as failed:
            cause = failed.__cause__
            assert isinstance(cause, grpc.Call)
            return cause.code().name, cause.details()


@pytest.mark.parametrize(
    ("version", "gates", "expected"),
    [
        ("1.26", {}, ("UNIMPLEMENTED", "unknown method Get for service v1.PodResourcesLister")),
        ("1.27", {}, ("UNKNOWN", "PodResources API Get method disabled")),
        ("1.33", {"KubeletPodResourcesGet": True}, None),
        ("1.34", {}, None),
    ],
)
def test_p6_get(kubelet: Make, version: str, gates: dict[str, bool], expected: object) -> None:
    node = kubelet(version, **gates)
    node.admit(pod_manifest("p", {}))
    found = answer(node, "get", "p")
    assert found == expected if expected else found.name == "p"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "1.20",
            (
                "UNIMPLEMENTED",
                "unknown method GetAllocatableResources for service v1.PodResourcesLister",
            ),
        ),
        ("1.22", ("UNKNOWN", "Pod Resources API GetAllocatableResources disabled")),
        ("1.23", None),
    ],
)
def test_p4_get_allocatable(kubelet: Make, version: str, expected: object) -> None:
    found = answer(kubelet(version), "get_allocatable")
    assert found == expected if expected else found.devices == ()


def finished(kubelet: MockKubelet) -> None:
    manifest = pod_manifest("done", {}, uid="done")
    manifest["spec"]["restartPolicy"] = "Never"
    kubelet.admit(manifest)
    kubelet.finish("done")
    kubelet.admit(pod_manifest("runs", {}))


@pytest.mark.parametrize(
    ("version", "gates", "listed", "got"),
    [
        ("1.33", {"KubeletPodResourcesGet": True}, ["done", "runs"], True),
        ("1.34.6", {}, ["runs"], True),
        ("1.34.7", {}, ["runs"], False),
        ("1.36", {"KubeletPodResourcesListUseActivePods": False}, ["done", "runs"], False),
    ],
)
def test_p2_p3_finished_pods(
    kubelet: Make, version: str, gates: dict[str, bool], listed: list[str], got: bool
) -> None:
    node = kubelet(version, **gates)
    finished(node)
    assert [pod.name for pod in answer(node, "list")] == listed
    assert [pod.name for pod in answer(node, "list_v1alpha1")] == ["done", "runs"]
    found = answer(node, "get", "done")
    assert (
        found.name == "done"
        if got
        else found
        == (
            "UNKNOWN",
            "pod done in namespace default not found",
        )
    )


@pytest.mark.parametrize(("version", "names"), [("1.29", ["main"]), ("1.30", ["side", "main"])])
def test_p7_sidecars(kubelet: Make, version: str, names: list[str]) -> None:
    node = kubelet(version)
    manifest = pod_manifest("p", {})
    manifest["spec"]["initContainers"] = [{"name": "side", "image": "i", "restartPolicy": "Always"}]
    node.admit(manifest)
    [pod] = answer(node, "list")
    assert [container.name for container in pod.containers] == names


@pytest.mark.parametrize(("version", "ids"), [("1.22", {"a", "b"}), ("1.23", {"b"})])
def test_p5_unhealthy_devices_in_allocatable(
    kubelet: Make, simulated_plugin: Callable[..., object], version: str, ids: set[str]
) -> None:
    gates = {"KubeletPodResourcesGetAllocatable": True}
    node = kubelet(version, **gates)
    plugin = simulated_plugin(GPU, 2, kubelet=node)
    names = dict(zip("ab", sorted(device.id for device in plugin.devices), strict=True))
    plugin.set_health(names["a"], False)
    node.wait_for_resource(GPU, 1)
    found = answer(node, "get_allocatable")
    assert {id_ for each in found.devices for id_ in each.device_ids} == {names[x] for x in ids}


@pytest.mark.parametrize(("version", "rejected"), [("1.26", False), ("1.27", True)])
def test_p12_rate_limit(kubelet: Make, version: str, rejected: bool) -> None:
    node = kubelet(version)
    answers = []
    with PodResourcesClient(node.pod_resources_socket) as client:
        for _ in range(60):
            try:
                client.list()
            except RateLimited:
                answers.append("rejected")
    assert ("rejected" in answers) is rejected


@pytest.mark.parametrize(("version", "reported"), [("1.35", False), ("1.36", True)])
def test_h1_allocated_resources_status(
    kubelet: Make, simulated_plugin: Callable[..., object], version: str, reported: bool
) -> None:
    node = kubelet(version)
    simulated_plugin(GPU, 1, kubelet=node)
    node.admit(pod_manifest("p", {GPU: 1}, uid="p"))
    assert bool(node.allocated_resources_status("p")) is reported


@pytest.mark.parametrize(
    ("version", "left"),
    [
        ("1.24", {"DEPRECATION", "directory", "kubelet.sock"}),
        ("1.32", {"directory", "kubelet.sock"}),
        ("1.33", {"directory", "kubelet.sock", "lock", "config"}),
    ],
)
def test_d1_d2_plugin_directory_after_a_start(
    make_mock_kubelet: Callable[..., MockKubelet], version: str, left: set[str]
) -> None:
    node = make_mock_kubelet(Settings(kubelet_version=version), start=False)
    node.plugin_dir.mkdir(parents=True)
    (node.plugin_dir / "directory").mkdir()
    (node.plugin_dir / "lock").touch()
    (node.plugin_dir / "config").symlink_to("/etc/hostname")
    node.start()
    assert {path.name for path in node.plugin_dir.iterdir()} == left


CLOSEST, MOST = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"


@pytest.mark.parametrize(
    ("version", "gates", "options", "text"),
    [
        (
            "1.25",
            {},
            {CLOSEST: "true"},
            r"topology manager policy options map\[prefer-closest-numa-nodes:true\] "
            r'require feature gates "TopologyManager", "TopologyMan',
        ),
        (
            "1.27",
            {"TopologyManagerPolicyOptions": True},
            {CLOSEST: "true"},
            r"Topology Manager Policy Alpha-level Options",
        ),
        ("1.30", {}, {MOST: "9"}, 'unknown Topology Manager Policy option: "max-allowable'),
        (
            "1.32",
            {"TopologyManagerPolicyBetaOptions": False},
            {MOST: "9"},
            r"Topology Manager Policy Beta",
        ),
        (
            "1.33",
            {"TopologyManagerPolicyBetaOptions": False},
            {MOST: "9"},
            r"topology manager policy beta-level",
        ),
        (
            "1.28",
            {"TopologyManagerPolicyOptions": False},
            {CLOSEST: "true"},
            r"topology manager policy options "
            r'map\[prefer-closest-numa-nodes:true\] require feature gates "Topo',
        ),
    ],
)
def test_ta2_ta3_ta4_options_rejected_by_the_version(
    version: str, gates: dict[str, bool], options: dict[str, str], text: str
) -> None:
    numa = NumaTopology.of([0, 1], [[10, 20], [20, 10]])
    with pytest.raises(TopologyConfigError, match="^" + text):
        Settings(
            kubelet_version=version,
            feature_gates=gates,
            topology_options=options,
            topology_policy="restricted",
            numa=numa,
        )


def test_ta2_ta3_options_accepted_by_the_version() -> None:
    numa = NumaTopology.of([0, 1], [[10, 20], [20, 10]])
    for version in ("1.28", "1.31", "1.36"):
        Settings(
            kubelet_version=version,
            topology_options={CLOSEST: "true"},
            topology_policy="restricted",
            numa=numa,
        )


def test_ta2_closest_nodes_require_distances() -> None:
    with pytest.raises(
        TopologyConfigError,
        match=r"^cannot discover NUMA topology: error getting NUMA distances from cadvisor",
    ):
        Settings(
            topology_policy="restricted",
            topology_options={CLOSEST: "true"},
            numa=NumaTopology.of([0, 1]),
        )
