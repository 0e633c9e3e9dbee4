"""Pods that are deleted at an awkward moment: nothing may remain allocated to them."""

from __future__ import annotations

import threading

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import checkpoint
from devicemanager.core.devices import Device
from devicemanager.core.errors import RequestError, RpcError
from devicemanager.core.ids import DeviceId, PodUid
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import Rejected
from devicemanager.core.runoptions import ContainerSettings, PciDevice
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.records import Phase, by_name
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.wire import settings as wire
from devicemanager.objects import manifests
from devicemanager.testing import pod_manifest
from devicemanager.testing.fakes import ALLOCATE, PRE_START_CONTAINER, FakeCall, FakePlugin
from tests.node import GPU, Node


class FourGpus(Node):
    """A node with one plugin of four devices."""

    def __init__(self, saved: checkpoint.Checkpoint | None = None) -> None:
        super().__init__()
        if saved is not None:
            self.manager.restore(saved)
        devices = [Device(DeviceId(f"gpu-{number}")) for number in range(4)]
        self.gpus = self.plugin(devices, pre_start_required=True)

    def admit(self, pod: Pod, *, start: bool = False) -> bool:
        return super().admit(pod, start=start).admitted

    def held(self, uid: str) -> set[str]:
        return {
            id_ for by_name in self.devices(uid).values() for ids in by_name.values() for id_ in ids
        }

    def check_nothing_left(self) -> None:
        self.manager.self_check()
        assert self.manager.pods() == frozenset() and self.pods.records() == ()
        assert self.pods.snapshot().active == ()
        assert not self.entries()


@pytest.fixture
def node() -> FourGpus:
    return FourGpus()


def pod(uid: str, *containers: dict[str, int]) -> Pod:
    return manifests.parse(pod_manifest(uid, *containers, uid=uid))


def test_pod_deleted_before_the_manager_admits_it(node):
    def terminate(event):
        if event.kind is EventKind.UNKNOWN_RESOURCE:
            node.terminate("p")

    node.events.subscribe(terminate)
    assert not node.admit(pod("p", {GPU: 1, "vendor.com/nobody": 1}))
    node.check_nothing_left()


def test_pod_deleted_during_its_checkpoint_write(node):
    ending = threading.Thread(target=node.terminate, args=("p",))

    def terminate():
        ending.start()
        assert node.events.wait_for(lambda: not node.pods.records(), 10)

    node.store.hook = terminate
    assert not node.admit(pod("p", {GPU: 1}), start=True)
    ending.join(10)
    assert [call.method for call in node.gpus.calls] == [ALLOCATE]
    node.check_nothing_left()


def test_pod_deleted_during_a_container_start(node):
    def terminate(call: FakeCall) -> None:
        if call.method == PRE_START_CONTAINER:
            node.terminate("p")

    node.gpus.before_answer = terminate
    admission = node.workers.admit(pod("p", {GPU: 1}, {GPU: 1}), start=True)
    gone = "pod default/p was deleted while its container was being started"
    assert [each.error for each in admission.containers.values()] == [gone, gone]
    methods = [call.method for call in node.gpus.calls]
    assert methods == [ALLOCATE, ALLOCATE, PRE_START_CONTAINER]
    node.check_nothing_left()


def test_failed_pod_that_is_readmitted_keeps_its_devices():
    entry = checkpoint.PodDevicesEntry("other", "main", GPU, {-1: ("gpu-3",)}, b"")
    node = FourGpus(checkpoint.Checkpoint((entry,), {GPU: ()}))
    node.gpus.allocate_error = RpcError("Unknown", "no")
    assert not node.manager.is_sources_ready and not node.admit(pod("p", {GPU: 1}))
    node.gpus.allocate_error = None
    assert node.admit(pod("p", {GPU: 1}))
    node.workers.sources_ready()
    assert node.admit(pod("q", {GPU: 1}))
    assert node.manager.pods() == {"p", "q"}


def test_pod_deleted_during_an_allocation_frees_its_pci_devices(tmp_path):
    device = tmp_path / "bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1234\n")
    (device / "device").write_text("0x5678\n")
    settings = ContainerSettings(pci_devices=(PciDevice("1234", "5678"),))
    plugin = FakePlugin(GPU, responses=(wire.settings_to_bytes(settings),))
    manager = DeviceManager(Settings(sysfs=tmp_path))
    plugin.register(manager.plugins)
    plugin.send_list(Device(DeviceId(f"gpu-{number}")) for number in range(4))
    whole = pod("p", {GPU: 1}, {GPU: 1})
    manager.admit(attrs.evolve(whole, containers=whole.containers[:1]))
    plugin.before_answer = lambda _: manager.release(PodUid("p"))
    with pytest.raises(
        Rejected,
        match=r"^UnexpectedAdmissionError: Allocate failed due to the pod "
        r"was deleted during its admission",
    ):
        manager.allocate_now(whole, whole.containers[1], is_init=False)
    plugin.before_answer = lambda _: None
    manager.admit(pod("q", {GPU: 1}))  # the one PCI device is free again


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["admit", "reject", "terminate"]),
            st.sampled_from("ab"),
            st.sampled_from("xyz"),
        ),
        max_size=30,
    )
)
def test_active_pods_stay_sorted(steps):
    # Active are the pods that were admitted and have neither failed nor been deleted, sorted by
    # namespace, name and UID.
    node = FourGpus()
    there: dict[str, tuple[str, str]] = {}
    for verb, namespace, name in steps:
        uid = f"{namespace}-{name}"
        if uid in there or (verb == "terminate" and uid in node.pods.uids()):
            node.terminate(uid)
            there.pop(uid, None)
        if verb != "terminate":
            amount = 1 if verb == "admit" else 99
            limits = {GPU: amount}
            pod = manifests.parse(pod_manifest(name, limits, namespace=namespace, uid=uid))
            if node.admit(pod):
                there[uid] = namespace, name
        snapshot = node.pods.snapshot()
        assert [(pod.namespace, pod.name) for pod in snapshot.active] == sorted(there.values())
        uids = [pod.uid for pod in (*snapshot.active, *snapshot.inactive)]
        assert sorted(uids) == sorted(node.pods.uids())
        assert list(snapshot.inactive) == sorted(snapshot.inactive, key=by_name)


def never(name: str, limits: dict[str, int]) -> Pod:
    manifest = pod_manifest(name, limits, uid=name)
    manifest["spec"]["restartPolicy"] = "Never"
    return manifests.parse(manifest)


def test_finished_pod_frees_its_devices_and_stays_known(node):
    assert node.admit(never("p", {GPU: 4}), start=True)
    assert node.workers.finish("p", {"main": 3}) is Phase.FAILED
    assert node.manager.holdings(PodUid("p")) == {}
    assert not checkpoint.loads(node.store.data or b"").entries
    assert [each.uid for each in node.pods.snapshot().inactive] == ["p"]
    assert [event.pod for event in node.events.recent(EventKind.FINISHED)] == ["p"]
    assert node.admit(pod("q", {GPU: 4}))
    with pytest.raises(RequestError, match=r"^pod default/p cannot finish: it has already ended"):
        node.workers.finish("p", {})
    with pytest.raises(RequestError, match=r"^cannot start a container: pod default/p has failed"):
        node.workers.start_container("p", "main")
    node.terminate("p")
    assert node.pods.uids() == {"q"}


def test_pod_that_cannot_finish_keeps_its_devices(node):
    assert node.admit(pod("p", {GPU: 4}), start=True)
    with pytest.raises(
        RequestError, match=r"^pod default/p cannot finish: with restartPolicy Always"
    ):
        node.workers.finish("p", {})
    assert node.manager.holdings(PodUid("p")) and node.pods.known("p").is_active


def test_interrupt_after_the_commit_leaves_nothing(node):
    """An interrupt can come at any moment: here just after the devices were committed."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    node.store.hook = interrupt
    with pytest.raises(KeyboardInterrupt):
        node.admit(pod("p", {GPU: 2}))
    node.check_nothing_left()
    assert node.admit(pod("p", {GPU: 4}))


def test_pod_admitted_while_sources_become_ready_keeps_its_devices():
    """Reading the known pods and freeing the others is atomic.

    A pod that arrives in between waits, and finds either all of its devices or none.
    """
    before = FourGpus()
    assert before.admit(pod("p", {GPU: 2})) and before.admit(pod("q", {GPU: 1}))
    after = FourGpus(checkpoint.loads(before.store.data or b""))
    assert after.admit(pod("q", {GPU: 1}))
    admitting, uids = threading.Event(), after.pods.uids

    def slow_uids() -> frozenset[PodUid]:
        found = uids()
        threading.Thread(target=lambda: (admitting.set(), after.admit(pod("p", {GPU: 2})))).start()
        assert admitting.wait(10)
        return found

    after.pods.uids = slow_uids
    after.workers.sources_ready()
    assert after.events.wait_for(lambda: "p" in uids() and after.pods.known("p").admitted, 10)
    assert {uid: len(after.held(uid)) for uid in "pq"} == {"p": 2, "q": 1}
    after.manager.self_check()


def test_allocated_resources_status_has_only_app_containers():
    node = FourGpus()
    manifest = pod_manifest("p", {GPU: 1}, uid="p")
    manifest["spec"]["initContainers"] = [
        {"name": "first", "image": "i", "resources": {"limits": {GPU: 2}}}
    ]
    assert node.admit(manifests.parse(manifest), start=True)
    assert set(node.workers.allocated_resources_status("p")) == {"main"}
    with pytest.raises(RequestError, match=r"^no pod has the UID 'x'"):
        node.workers.allocated_resources_status("x")
