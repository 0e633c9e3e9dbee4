"""Checkpoint and container settings just below and at the version of each difference."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import checkpoint
from devicemanager import EventKind, MockKubelet, Settings
from devicemanager.core.runoptions import ContainerSettings
from devicemanager.kubelet.wire import settings as wire
from devicemanager.testing import KUBELET_VERSIONS
from devicemanager.testing.fakes import FakePlugin
from podresources import PodResourcesClient
from tests.helpers import container, device, devices, pod
from tests.node import GPU, Node
from tests.paths import ROOT

GOLDEN = ROOT / "tests" / "checkpoint" / "data"
V1, V2_ZERO, V2 = "v1-to-1.19.json", "v2-to-1.22.json", "v2-from-1.23.json"
READ_V1 = ("1.22", "1.30", "1.24", "1.28")
Make = Callable[..., MockKubelet]


def make(make_mock_kubelet: Make, version: str, **fields: object) -> MockKubelet:
    settings = Settings(kubelet_version=version, durability="process", **fields)
    return make_mock_kubelet(settings, start=False)


@pytest.mark.parametrize("golden", [V1, V2_ZERO, V2])
@pytest.mark.parametrize("version", [*KUBELET_VERSIONS, "1.21", "1.22", "1.30", "1.31"])
def test_k3_k4_file_of_each_format(make_mock_kubelet: Make, version: str, golden: str) -> None:
    node = make(make_mock_kubelet, version)
    node.plugin_dir.mkdir(parents=True, mode=0o750)
    node.checkpoint_path.write_bytes((GOLDEN / golden).read_bytes())
    node.start()
    if golden == V1 and version not in READ_V1:
        assert len(node.events.recent(EventKind.CHECKPOINT_SET_ASIDE)) == 1
        assert node.manager.pods() == frozenset()
        return
    assert node.devices("pod-one") == {"main": {"vendor.com/gpu": ["gpu-0", "gpu-1"]}}
    [holding] = node.manager.holdings("pod-one")["main"].values()
    expected = -1 if golden == V2 else 0
    assert list(holding.devices) == [expected]
    # Entries that were read are unchanged; new ones are written in the version's format.
    plugin = FakePlugin(GPU)
    plugin.register(node.manager.plugins)
    plugin.send_list(devices("x"))
    [entry] = checkpoint.load(node.checkpoint_path).entries or ()
    assert list(entry.device_ids or {}) == [expected]


@pytest.mark.parametrize(("version", "stored"), [("1.27", ()), ("1.28", ("vendor.com/gpu=a",))])
def test_cdi_devices_are_stored_since_1_28(version: str, stored: tuple[str, ...]) -> None:
    settings = ContainerSettings(envs={"A": "1"}, cdi_devices=("vendor.com/gpu=a",))
    node = Node(kubelet_version=version)
    node.plugin(devices("a"), responses=(wire.settings_to_bytes(settings),))
    assert node.admit(pod("p", gpu=1)).admitted
    [entry] = checkpoint.loads(node.store.data or b"").entries or ()
    assert wire.settings_from_bytes(entry.alloc_resp or b"") == ContainerSettings(
        envs={"A": "1"}, cdi_devices=stored
    )


def test_golden_file_equals_the_kubelets() -> None:
    for golden in (V2_ZERO, V2):
        data = (GOLDEN / golden).read_bytes()
        assert checkpoint.dumps(checkpoint.loads(data, v1=True)) == data
    data = (GOLDEN / V1).read_bytes()
    with pytest.raises(
        checkpoint.CheckpointCorrupt,
        match=r"^checkpoint: Data\.PodDeviceEntries\[0\]\.DeviceIDs is a list without NUMA nodes",
    ):
        checkpoint.loads(data)
    assert checkpoint.loads(data, v1=True) == checkpoint.loads((GOLDEN / V2_ZERO).read_bytes())


@pytest.mark.parametrize(
    "change", [(b"gpu-2", b"gpu-3"), (b'"gpu-1"]', b'{"0":[]}]'), (b"[", b"{")]
)
def test_damaged_file_of_the_old_format(change: tuple[bytes, bytes]) -> None:
    data = (GOLDEN / V1).read_bytes().replace(*change, 1)
    with pytest.raises(checkpoint.CheckpointCorrupt):
        checkpoint.loads(data, v1=True)


@pytest.mark.parametrize(("version", "node"), [("1.22", 0), ("1.23", -1)])
def test_k2_p10_device_without_topology(make_mock_kubelet: Make, version: str, node: int) -> None:
    kubelet = make(make_mock_kubelet, version).start()
    plugin = FakePlugin(GPU)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list([device("a"), device("b", 1)])
    kubelet.admit(pod("p", gpu=2))
    [entry] = checkpoint.load(kubelet.checkpoint_path).entries or ()
    assert entry.device_ids == {node: ("a",), 1: ("b",)}
    with PodResourcesClient(kubelet.pod_resources_socket) as client:
        [listed] = client.list()
    nodes = {each.device_ids: each.nodes for each in listed.containers[0].devices}
    assert nodes == {("a",): (0,) if node == 0 else (), ("b",): (1,)}


NAMES = ("vendor.com/gpu=two", "vendor.com/gpu=one")
KEY = "cdi.k8s.io/devicemanager_p-app"
VALUE = "vendor.com/gpu=one,vendor.com/gpu=two"


def answer(*names: str, own: str = "") -> tuple[bytes]:
    annotations = {KEY: own} if own else {}
    given = ContainerSettings(cdi_devices=names, annotations=annotations)
    return (wire.settings_to_bytes(given),)


@pytest.mark.parametrize(
    ("version", "gate", "used", "annotations"),
    [
        ("1.27", None, False, {}),
        ("1.28", None, False, {}),
        ("1.28", True, True, {KEY: VALUE}),
        ("1.29", None, True, {KEY: VALUE}),
        ("1.29", False, False, {}),
        ("1.31", None, True, {KEY: VALUE}),
        ("1.32", None, True, {}),
        ("1.34", None, True, {}),
    ],
)
@pytest.mark.parametrize("start", [False, True])
def test_c1_c2_c3_cdi_devices(
    version: str, gate: bool | None, used: bool, annotations: dict[str, str], start: bool
) -> None:
    gates = {} if gate is None else {"DevicePluginCDIDevices": gate}
    node = Node(kubelet_version=version, feature_gates=gates)
    node.plugin(devices("a"), responses=answer(*NAMES))
    given = node.admit(pod("p", gpu=1), start=start).containers["app"].run_options
    assert given.cdi_devices == (NAMES if used else ())
    assert given.annotations == annotations


def test_c2_annotation_of_the_plugin_wins() -> None:
    node = Node(kubelet_version="1.31")
    node.plugin(devices("a"), responses=answer(*NAMES, own="own"))
    given = node.admit(pod("p", gpu=1), start=True).containers["app"].run_options
    assert given.annotations == {KEY: "own"}


@pytest.mark.parametrize(
    ("uid", "name", "cdi", "fault"),
    [
        ("u" * 36, "a" * 12, "vendor.com/gpu=one", ""),
        ("u" * 36, "a" * 13, "vendor.com/gpu=one", "has more than 63 characters"),
        ("p", "app", "no-kind", "'no-kind' is not a qualified CDI name"),
        ("p_", "app-", "vendor.com/gpu=one", "devicemanager_p_-app- is not a valid anno"),
    ],
)
def test_c2_without_annotation(uid: str, name: str, cdi: str, fault: str) -> None:
    node = Node(kubelet_version="1.31")
    node.plugin(devices("a"), responses=answer(cdi))
    given = node.admit(pod(uid, container(name, gpu=1)), start=True).containers[name].run_options
    assert given.cdi_devices == (cdi,)
    assert bool(given.annotations) is (not fault)
    conflicts = node.messages(EventKind.CONFLICT)
    assert [fault in each for each in conflicts] == [True] * bool(fault)
