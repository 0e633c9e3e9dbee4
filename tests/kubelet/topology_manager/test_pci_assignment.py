"""PCI devices that plugins name by vendor and product ID: which pod gets which address."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from devicemanager.core.errors import AllocationError, RpcError
from devicemanager.core.runoptions import ContainerSettings, PciDevice
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.pods.admission import Admission
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.wire import settings as wire
from devicemanager.testing.factories import MockKubeletFactory
from devicemanager.testing.fakes import FakePlugin
from tests.helpers import container, devices, pod
from tests.node import GPU, NIC, Node

INTEL, OTHER = PciDevice("8086", "1572"), PciDevice("10de", "20b0")

Make = Callable[..., MockKubelet]


def answer(*wanted: PciDevice) -> tuple[bytes, ...]:
    return (wire.settings_to_bytes(ContainerSettings(envs={"A": "1"}, pci_devices=wanted)),)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A host with three devices of one kind and one of another."""
    kinds = {1: "8086:1572", 2: "8086:1572", 3: "10de:20b0", 4: "8086:1572"}
    for slot, ids in kinds.items():
        path = tmp_path / "bus/pci/devices" / f"0000:0{slot}:00.0"
        path.mkdir(parents=True)
        vendor, product = ids.split(":")
        (path / "vendor").write_text(f"0x{vendor}\n")
        (path / "device").write_text(f"0x{product}\n")
    return tmp_path


@pytest.fixture
def kubelet(make_mock_kubelet: MockKubeletFactory, sysfs: Path) -> MockKubelet:
    return make_mock_kubelet(Settings(sysfs=sysfs))


def register(
    on: MockKubelet | Node, *wanted: PciDevice, resource: str = GPU, **fields: object
) -> FakePlugin:
    """Register a plugin of five devices whose responses name these PCI devices."""
    plugin = FakePlugin(resource, responses=answer(*wanted), **fields)
    plugin.register(on.manager.plugins, f"{resource[-3:]}.sock")
    plugin.send_list(devices(*"abcde"))
    return plugin


def given(admission: Admission, name: str = "app") -> list[str]:
    """Return the addresses that a container gets, by device IDs."""
    assert admission.admitted, admission.message
    options = admission.containers[name].run_options
    return [address for device in options.pci_devices for address in device.addresses]


FIRST, SECOND, GPU_SLOT, FOURTH = (f"0000:0{slot}:00.0" for slot in (1, 2, 3, 4))


def test_containers_get_different_addresses(kubelet: MockKubelet) -> None:
    register(kubelet, INTEL, OTHER)
    assert given(kubelet.admit(pod("p", gpu=1))) == [GPU_SLOT, FIRST]
    register(kubelet, INTEL, resource=NIC)
    both = kubelet.admit(pod("q", container("x", nic=1), container("y", nic=1)))
    assert (given(both, "x"), given(both, "y")) == ([SECOND], [FOURTH])


def test_addresses_survive_restarts(kubelet: MockKubelet) -> None:
    register(kubelet, INTEL)
    admission = kubelet.admit(pod("p", gpu=1))
    assert given(admission) == [FIRST]
    kubelet.restart()
    options = kubelet.restart_container("p", "app")
    assert options.pci_devices == (PciDevice("8086", "1572", (FIRST,)),)
    register(kubelet, INTEL)
    assert given(kubelet.admit(pod("q", gpu=1))) == [SECOND]


def test_too_few_addresses_reject_the_pod(kubelet: MockKubelet, sysfs: Path) -> None:
    register(kubelet, INTEL, INTEL)
    assert given(kubelet.admit(pod("p", gpu=1))) == [FIRST, SECOND]
    rejected = kubelet.admit(pod("q", gpu=1))
    assert (rejected.reason, rejected.message) == (
        "UnexpectedAdmissionError",
        "Allocate failed due to too few PCI devices 8086:1572: 2 needed, but 1 of 3 under "
        f"{sysfs / 'bus/pci/devices'} are free, which is unexpected",
    )
    assert kubelet.devices("q") == {}
    register(kubelet, INTEL, resource=NIC)
    assert given(kubelet.admit(pod("r", nic=1))) == [FOURTH]


def test_ended_pod_frees_its_addresses(kubelet: MockKubelet) -> None:
    register(kubelet, OTHER)
    assert given(kubelet.admit(pod("p", gpu=1))) == [GPU_SLOT]
    assert not kubelet.admit(pod("q", gpu=1)).admitted
    kubelet.terminate("p")
    assert given(kubelet.admit(pod("r", gpu=1))) == [GPU_SLOT]


def test_ended_pod_frees_its_addresses_after_a_restart(kubelet: MockKubelet) -> None:
    register(kubelet, OTHER)
    kubelet.admit(pod("p", gpu=1))
    kubelet.restart()
    register(kubelet, OTHER)
    assert not kubelet.admit(pod("q", gpu=1)).admitted
    kubelet.terminate("p")
    assert given(kubelet.admit(pod("r", gpu=1))) == [GPU_SLOT]


@pytest.mark.parametrize("why", ["another resource", "a full disk", "the node check"])
def test_rejected_pod_frees_its_addresses(sysfs: Path, why: str) -> None:
    room = {"pods": 1} if why == "the node check" else {}
    node = Node(sysfs=sysfs, node_allocatable=room)
    register(node, OTHER)
    error = RpcError("Unknown", "no") if why == "another resource" else None
    register(node, resource=NIC, allocate_error=error)
    node.store.broken = why == "a full disk"
    if room:
        assert node.admit(pod("other")).admitted
    assert not node.admit(pod("p", container("x", gpu=1), container("y", nic=1))).admitted
    node.store.broken = False
    if room:
        node.terminate("other")
    assert given(node.admit(pod("q", gpu=1))) == [GPU_SLOT]


def test_failed_late_allocation_keeps_other_addresses(sysfs: Path) -> None:
    node = Node(sysfs=sysfs)
    register(node, OTHER)
    spec = pod("p", gpu=1, nic=1)
    assert given(node.admit(spec)) == [GPU_SLOT]
    nic = register(node, INTEL, INTEL, INTEL, INTEL, resource=NIC)
    with pytest.raises(
        AllocationError, match=r"^too few PCI devices 8086:1572: 4 needed, but 3 of 3"
    ):
        node.start("p")
    nic.responses = answer(INTEL, INTEL, INTEL)
    options = node.start("p")
    addresses = sorted(a for device in options.pci_devices for a in device.addresses)
    assert addresses == [FIRST, SECOND, GPU_SLOT, FOURTH]
    # All four are in use; the end of the pod frees all four.
    assert not node.admit(pod("q", gpu=1)).admitted
    node.terminate("p")
    assert given(node.admit(pod("r", gpu=1))) == [GPU_SLOT]


def test_failed_late_allocation_frees_its_addresses(sysfs: Path) -> None:
    node = Node(sysfs=sysfs)
    spec = pod("p", gpu=1, nic=1)
    assert node.admit(spec).admitted
    register(node, OTHER)
    register(node, resource=NIC, allocate_error=RpcError("Unknown", "no"))
    with pytest.raises(AllocationError, match=r"^rpc error: code = Unknown desc = no$"):
        node.start("p")
    register(node, OTHER, resource="vendor.com/fpga")
    assert given(node.admit(pod("q", fpga=1))) == [GPU_SLOT]


def test_invalid_response_rejects_the_pod(sysfs: Path) -> None:
    node = Node(sysfs=sysfs)
    plugin = register(node)
    plugin.responses = (b"\xc2\x3e\x02\xff",)
    rejected = node.admit(pod("p", gpu=1))
    assert "invalid ContainerAllocateResponse of" in rejected.message
    assert node.devices("p") == {}
