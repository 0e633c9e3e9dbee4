"""Every known bug of the reference kubelet, with and without it.

``sides`` runs a test without and with the quirk, and records that the quirk is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import grpc
import pytest

import checkpoint
import podresources
from devicemanager.core.allocation.container import AllocationSteps
from devicemanager.core.dra.cache import ClaimCache
from devicemanager.core.dra.effects import AwaitClaims, CallDriver
from devicemanager.core.dra.errors import DraError
from devicemanager.core.dra.model import PodClaim
from devicemanager.core.dra.prepare import prepare
from devicemanager.core.dra.unprepare import unprepare
from devicemanager.core.errors import EndpointError, KubeletPanic, RpcError, StartError
from devicemanager.core.ids import PodUid
from devicemanager.core.rejection import Rejected
from devicemanager.core.topology import NumaTopology
from devicemanager.events.stream import EventKind, EventStream
from devicemanager.kubelet.manager.driver import Driver
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.pod_resources import api_profile
from devicemanager.kubelet.registration.connection import Connection
from devicemanager.kubelet.settings import KUBELET_LIST_LIMIT, QUIRKS, Settings
from devicemanager.testing.fakes import ALLOCATE, FakeCall, FakePlugin, first
from podresources import ClaimResource, DynamicResource
from tests import dra_world
from tests.helpers import container, device, devices, pod
from tests.hostile import hostile
from tests.node import GPU, NIC, Node, allocations

TESTED: set[str] = set()

Quirks = frozenset[str]
RIGHT: Quirks = frozenset()


def sides(name: str) -> pytest.MarkDecorator:
    """Run a test without and with a quirk."""
    TESTED.add(name)
    return pytest.mark.parametrize("quirks", [RIGHT, frozenset({name})], ids=["right", name])


def unavailable(requested: int, available: int) -> str:
    return (
        "Allocate failed due to requested number of devices unavailable for vendor.com/gpu. "
        f"Requested: {requested}, Available: {available}, which is unexpected"
    )


UNREGISTERED = (
    "Allocate failed due to cannot allocate unregistered device vendor.com/gpu, which is unexpected"
)
NO_HEALTHY = (
    "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
    "vendor.com/gpu, which is unexpected"
)


# -- without sockets -----------------------------------------------------------------------


@sides("Q1")
def test_end_of_a_replaced_stream(quirks: Quirks) -> None:
    node = Node(quirks=quirks, kubelet_version="1.36")
    old = node.plugin(devices("a", "b"))
    new = node.plugin(devices("a", "b"))
    assert not new.closed
    old.leave()
    assert node.manager.capacity().allocatable == {GPU: 0 if quirks else 2}
    assert new.closed is bool(quirks)
    # A second end has no effect.
    old.leave()
    assert node.manager.capacity().capacity == {GPU: 2}


@sides("Q2")
def test_reregistration_of_the_same_socket(quirks: Quirks) -> None:
    node = Node(quirks=quirks, kubelet_version="1.37")
    old = node.plugin(devices("a"))
    new = FakePlugin(GPU)
    if quirks:
        with pytest.raises(EndpointError, match=r"^device plugin already connected: plugin\.sock"):
            new.register(node.manager.plugins)
        new.register(node.manager.plugins, "other.sock")
        assert not old.closed
        return
    new.register(node.manager.plugins)
    new.send_list(devices("b", "c"))
    assert old.closed and not new.closed
    assert node.manager.capacity().capacity == {GPU: 2}
    assert node.messages(EventKind.REPLACED) == [
        "vendor.com/gpu: plugin.sock registered again, its older connection is closed"
    ]


@sides("Q2")
def test_end_of_a_plugin_after_a_rejected_reregistration(quirks: Quirks) -> None:
    node = Node(quirks=quirks, kubelet_version="1.37")
    old = node.plugin(devices("a"))
    if quirks:
        with pytest.raises(EndpointError, match=r"^device plugin already connected"):
            FakePlugin(GPU).register(node.manager.plugins)
    old.leave()
    # The rejection removed the kubelet's client: it does not notice the end.
    assert node.manager.capacity().allocatable == {GPU: 1 if quirks else 0}


@sides("Q3")
def test_connection_of_a_replaced_plugin(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    old = node.plugin(devices("a"))
    node.plugin(devices("a"))
    assert old.closed == (not quirks)


@sides("Q24")
@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_list_of_an_older_plugin(quirks: Quirks, version: str) -> None:
    node = Node(quirks=quirks, kubelet_version=version)
    old = node.plugin(devices("a", "b"), name="old.sock")
    new = node.plugin(devices("a"), name="new.sock")
    assert old.closed is (version == "1.36" and not quirks)
    old.send_list(devices("a", "b", "c"))
    assert node.manager.capacity().capacity == {GPU: 3 if quirks else 1}
    new.send_list(devices("d"))
    assert node.manager.capacity().capacity == {GPU: 1}
    node.manager.self_check()


@sides("Q4")
def test_failed_preferred_allocation(quirks: Quirks) -> None:
    node = Node(quirks=quirks, topology_policy="best-effort")
    plugin = node.plugin([device("a", 0), device("b")], preference=first)
    plugin.before_answer = _failing_from(plugin, call=1)
    # The aligned device is chosen before the call for the other one fails.
    assert "GetPreferredAllocation rpc failed" in node.admit(pod("p", gpu=2)).message
    after = node.admit(pod("q", gpu=2))
    assert (after.admitted, after.message) == ((False, unavailable(2, 1)) if quirks else (True, ""))
    node.manager.self_check()


@sides("Q4")
def test_leaked_devices_are_freed_with_their_pod(quirks: Quirks) -> None:
    # The pod has devices when a call fails: they are freed with the leaked ones.
    node = Node(quirks=quirks)
    plugin = node.plugin(devices("a", "b", "c"), preference=first)
    spec = pod("p", container("app", gpu=2), init=[container("init", gpu=1)])
    plugin.before_answer = _failing_from(plugin, call=3)
    assert "GetPreferredAllocation rpc failed" in node.admit(spec).message
    assert node.admit(pod("q", gpu=3)).admitted
    node.manager.self_check()


def _failing_from(plugin: FakePlugin, call: int) -> Callable[[object], None]:
    def fail(_: object) -> None:
        if len(plugin.calls) >= call:
            plugin.before_answer = lambda _: None
            raise RpcError("Internal", "no")

    return fail


@sides("Q4")
def test_response_without_containers(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    plugin = node.plugin(devices("a", "b"), responses=())
    assert "no containers return in allocation response" in node.admit(pod("p", gpu=1)).message
    plugin.responses = (b"",)
    after = node.admit(pod("q", gpu=2))
    assert (after.admitted, after.message) == ((False, unavailable(2, 1)) if quirks else (True, ""))
    node.manager.self_check()


@sides("Q4")
@pytest.mark.parametrize("way", ["a pod is freed", "an Allocate fails"])
def test_leaked_devices_are_freed_later(quirks: Quirks, way: str) -> None:
    node = Node(quirks=quirks)
    plugin = node.plugin(devices("a", "b", "c"))
    node.admit(pod("holder", gpu=1))
    plugin.responses = ()
    node.admit(pod("p", gpu=1))
    plugin.responses = (b"",)
    left = 2 - len(quirks)
    assert node.admit(pod("q", gpu=2)).message == ("" if not quirks else unavailable(2, left))
    node.terminate("q")
    if way == "a pod is freed":
        node.terminate("holder")
    else:
        plugin.allocate_error = RpcError("Unknown", "no")
        assert not node.admit(pod("r", gpu=1)).admitted
        plugin.allocate_error = None
    count = 3 if way == "a pod is freed" else 2
    assert node.admit(pod("s", gpu=count)).admitted
    node.manager.self_check()


@sides("Q4")
def test_failed_allocate_leaks_nothing(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    plugin = node.plugin(devices("a"), allocate_error=RpcError("Unknown", "no"))
    assert not node.admit(pod("p", gpu=1)).admitted
    plugin.allocate_error = None
    assert node.admit(pod("q", gpu=1)).admitted


@sides("Q5")
def test_finished_init_container_after_a_restart(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    node.plugin(devices("a"))
    spec = pod("p", container("app", gpu=1), init=[container("init", gpu=1)])
    assert node.admit(spec, start=True).admitted
    node.restart()
    record = node.pods.known("p")
    assert (record.phase, record.message) == (("Failed", NO_HEALTHY) if quirks else ("Running", ""))


@sides("Q25")
def test_device_that_is_being_allocated(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    plugin = node.plugin(devices("a", "b", "c"))
    node.admit(pod("ends", gpu=1))

    def free(_: object) -> None:
        plugin.before_answer = lambda _: None
        node.terminate("ends")

    plugin.before_answer = free
    assert node.admit(pod("p", gpu=1)).admitted
    assert node.devices("p") == {"app": {GPU: ["b"]}}
    assert node.admit(pod("q", gpu=2)).admitted
    assert node.devices("q") == {"app": {GPU: ["a", "b" if quirks else "c"]}}
    # The device is in use until both pods have been terminated.
    assert node.admit(pod("r", gpu=1)).admitted is False
    node.terminate("p", "q")
    node.manager.self_check()
    assert node.admit(pod("s", gpu=3)).admitted


@sides("Q26")
def test_cdi_devices_of_a_claim(quirks: Quirks) -> None:
    def device_of(name: str, driver: str = "d", *cdi: str) -> ClaimResource:
        return ClaimResource(driver, "pool", name, cdi)

    devices_of_claim = (
        device_of("1", "d", "a"),
        device_of("2", "other", "x"),
        device_of("3", "d", "b", "c"),
    )
    claim = DynamicResource("claim", "default", devices_of_claim)
    one = podresources.Pod(
        "p", "default", (podresources.Container("c", dynamic_resources=(claim,)),)
    )
    profile = api_profile(Settings(quirks=quirks))
    [given] = profile.pod(one).containers[0].dynamic_resources
    repeated = ("a", "b", "c") if quirks else ("b", "c")
    assert [each.cdi_devices for each in given.claim_resources] == [("a",), ("x",), repeated]


@sides("Q27")
def test_container_that_had_restarted(quirks: Quirks) -> None:
    node = Node(quirks=quirks, kubelet_version="1.32")
    node.plugin(devices("a", "b"))
    for uid in ("once", "twice"):
        assert node.admit(pod(uid, gpu=1), start=True).admitted
    node.start("twice")
    node.restart()
    phases = {uid: node.pods.known(uid).phase for uid in ("once", "twice")}
    assert phases == {"once": "Running", "twice": "Failed" if quirks else "Running"}


@sides("Q4")
def test_health_of_leaked_devices_is_not_reported(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    plugin = node.plugin(devices("a"), responses=())
    node.admit(pod("p", gpu=1))
    plugin.send_list([device("a", health="Unhealthy")])
    assert node.manager.health_updates.empty()


@sides("Q4")
def test_hints_after_a_failed_allocation_of_a_removed_resource(quirks: Quirks) -> None:
    node = Node(quirks=quirks, topology_policy="restricted")
    plugin = node.plugin([device("a", 0), device("b", 0)], preference=first)
    plugin.preference_error = RpcError("Unknown", "no")
    assert "GetPreferredAllocation rpc failed" in node.admit(pod("p", gpu=1)).message
    plugin.leave()
    node.clock.advance(301.0)
    reason = node.admit(pod("q", gpu=1)).reason
    # The resource is still known, and its last list has a topology.
    assert reason == ("TopologyAffinityError" if quirks else "")


@sides("Q33")
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_readmission_with_a_device_that_is_no_longer_listed(quirks: Quirks, scope: str) -> None:
    node = Node(quirks=quirks, topology_policy="best-effort", topology_scope=scope)
    plugin = node.plugin([device("a", 0), device("b", 0)])
    assert node.admit(pod("p", gpu=1)).admitted
    plugin.send_list([device("b", 0)])
    assert node.messages(EventKind.LIST_SUSPECT) == [
        "vendor.com/gpu: the plugin no longer lists allocated devices (a): a kubelet from v1.34 "
        "on panics when it admits their pods again; list the devices as Unhealthy"
    ]
    plugin.send_list([device("b", 0, health="Unhealthy")])
    assert len(node.messages(EventKind.LIST_SUSPECT)) == 1
    if quirks:
        with pytest.raises(
            KubeletPanic,
            match=r"^panic: runtime error: invalid memory address or nil "
            r"pointer dereference \(Q33\)",
        ):
            node.workers.readmit()
    else:
        node.workers.readmit()
    node.manager.self_check()


@sides("Q33")
def test_list_without_the_chosen_device_during_allocate(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    plugin = node.plugin([device("a", 0), device("b")])

    def shorten(call: FakeCall) -> None:
        if call.method == ALLOCATE:
            plugin.send_list([device("b")])

    plugin.before_answer = shorten
    if quirks:
        with pytest.raises(
            KubeletPanic, match=r"^panic: runtime error: invalid memory address or nil pointer"
        ):
            node.admit(pod("p", gpu=1))
    else:
        assert node.admit(pod("p", gpu=1)).admitted
    node.manager.self_check()


@sides("Q28")
def test_distances_of_numa_nodes_with_gaps_in_their_ids(quirks: Quirks) -> None:
    distances = [[10, 30, 20], [30, 10, 20], [20, 20, 10]]
    node = Node(
        quirks=quirks,
        numa=NumaTopology.of([0, 2, 5], distances),
        topology_policy="best-effort",
        topology_options={"prefer-closest-numa-nodes": "true"},
    )
    node.plugin([device("a", 0), device("b", 2), device("c", 5)])
    if quirks:
        with pytest.raises(
            KubeletPanic,
            match=r"^panic: runtime error: index out of range \[5\] with length 3 \(Q28\)",
        ):
            node.admit(pod("p", gpu=2))
        assert node.pods.get(PodUid("p")) is None
    else:
        assert node.admit(pod("p", gpu=2)).containers["app"].affinity == (0, 5)
    node.manager.self_check()


@sides("Q8")
def test_health_update_names_the_pod_of_the_device(quirks: Quirks) -> None:
    node = Node(quirks=quirks, kubelet_version="1.36")
    gpu = node.plugin([device("0")])
    node.plugin([device("0")], NIC, "nic.sock")
    node.admit(pod("with-gpu", gpu=1))
    node.admit(pod("with-nic", nic=1))
    gpu.send_list([device("0", health="Unhealthy")])
    reported = {node.manager.health_updates.get_nowait() for _ in range(1 + len(quirks))}
    assert reported == ({"with-gpu", "with-nic"} if quirks else {"with-gpu"})
    assert node.manager.health_updates.empty()


@sides("Q9")
def test_health_of_removed_devices(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    plugin = node.plugin(devices("a", "b"))
    node.admit(pod("p", gpu=2))

    def health() -> list[str]:
        (of_gpus,) = node.manager.allocated_resources_status(PodUid("p"))["app"]
        return [one.health.value for one in of_gpus.resources]

    def reports() -> int:
        return node.manager.health_updates.qsize()

    # With the quirk, a vanished device is Healthy even if it was Unhealthy before.
    plugin.send_list([device("a"), device("b", health="Unhealthy")])
    assert health() == ["Healthy", "Unhealthy"]
    assert node.manager.health_updates.get_nowait() == "p"
    plugin.send_list(devices("a"))
    assert health() == ["Healthy", "Healthy" if quirks else "Unknown"]
    assert reports() == (0 if quirks else 1)
    plugin.leave()
    assert health() == (["Healthy"] * 2 if quirks else ["Unhealthy", "Unknown"])
    assert reports() == (0 if quirks else 2)
    plugin.register(node.manager.plugins)
    plugin.send_list([device("a", health="Unhealthy")])
    # Without the quirk it was unhealthy already. The reference compares with the last list.
    assert reports() == (1 if quirks else 2)


@sides("Q10")
def test_checkpoint_after_a_pod_is_deleted(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    node.plugin(devices("a", "b"))
    for uid in ("p", "q"):
        node.admit(pod(uid, gpu=1))
    node.terminate("p")
    q = ("q", "app", GPU)
    assert node.entries() == ({("p", "app", GPU), q} if quirks else {q})
    node.admit(pod("r", gpu=1))
    assert node.entries() == {q, ("r", "app", GPU)}


@sides("Q10")
def test_deleted_pod_that_is_admitted_again_is_written(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    node.plugin(devices("a"))
    node.admit(pod("p", gpu=1))
    node.terminate("p")
    node.admit(pod("p", gpu=1))
    assert node.entries() == {("p", "app", GPU)}


@sides("Q10")
def test_finished_pod_keeps_its_devices_until_the_next_allocation(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    node.plugin(devices("a", "b"))
    node.admit(pod("p", gpu=1))
    node.workers.stop("p", 0)
    assert node.devices("p") == ({"app": {GPU: ["a"]}} if quirks else {})
    node.admit(pod("q"))
    assert bool(node.manager.holdings(PodUid("p"))) is bool(quirks), "q requests no device"
    node.admit(pod("r", gpu=2))
    assert node.manager.holdings(PodUid("p")) == {}
    assert node.devices("r") == {"app": {GPU: ["a", "b"]}}


@sides("Q10")
def test_pod_with_the_uid_of_a_deleted_pod(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    node.plugin(devices("a", "b"))
    node.admit(pod("p", gpu=1))
    node.terminate("p")
    admission = node.admit(pod("p", gpu=2))
    text = 'pod "p" container "app" changed request for resource "vendor.com/gpu" from 1 to 2'
    assert (text in admission.message) is bool(quirks)


@sides("Q10")
@pytest.mark.parametrize("version", ["1.31", "1.32"])
def test_pod_admitted_last_is_not_freed_by_a_list(quirks: Quirks, version: str) -> None:
    node = Node(quirks=quirks, kubelet_version=version)
    node.plugin(devices("a"))
    node.admit(pod("p", gpu=1))
    node.workers.stop("p", 0)
    node.manager.free_inactive()
    keeps = bool(quirks) and version == "1.31"
    assert bool(node.manager.holdings(PodUid("p"))) is keeps


@sides("Q13")
def test_topology_without_nodes(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    node.plugin([device("a"), device("b", 1), attrs.evolve(device("n"), numa=())])
    listed = {id_ for entry in node.source().allocatable().devices for id_ in entry.device_ids}
    assert listed == ({"a", "b"} if quirks else {"a", "b", "n"})
    # It can be allocated in both cases.
    assert node.manager.capacity().allocatable == {GPU: 3}


@sides("Q14")
def test_declared_resource_without_a_plugin(quirks: Quirks) -> None:
    node = Node(quirks=quirks, declared_resources=frozenset({GPU}))
    admission = node.admit(pod("p", gpu=1))
    assert (admission.admitted, admission.message) == (
        (True, "") if quirks else (False, UNREGISTERED)
    )
    warned = "pod default/p container app requests vendor.com/gpu, which no plugin has registered: "
    assert node.messages(EventKind.UNKNOWN_RESOURCE) == (
        [warned + "the container runs without the resource"] if quirks else []
    )


def test_undeclared_resource_without_a_plugin() -> None:
    node = Node(declared_resources=frozenset({NIC}))
    assert node.admit(pod("p", gpu=1)).admitted
    assert len(node.messages(EventKind.UNKNOWN_RESOURCE)) == 1
    assert node.admit(pod("zero", nic=0)).admitted
    assert not Node(strict=True).admit(pod("p", gpu=1)).admitted


@sides("Q16")
def test_limit_of_zero(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    plugin = node.plugin([device("a", health="Unhealthy")])
    admission = node.admit(pod("p", gpu=0))
    assert (admission.admitted, admission.message) == (
        (False, NO_HEALTHY) if quirks else (True, "")
    )
    plugin.send_list(devices("a"))
    assert node.admit(pod("q", gpu=0)).admitted
    assert plugin.calls == []


# -- settings instead of quirks ------------------------------------------------------


class Waiting(EventStream):
    """An event stream that records the timeouts of waits, and calls a function during each."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        self.waits.append(timeout)
        before = condition()
        self.meanwhile()
        return before or condition()


@pytest.mark.parametrize("wait", [0.0, 60.0])
def test_q6_reboot_before_the_plugin_reregisters(wait: float) -> None:
    events = Waiting()
    node = Node(events=events, wait_for_plugin=wait)
    node.plugin(devices("a", "b"))
    node.admit(pod("p", gpu=1), start=True)
    node.admit(pod("without"), start=True)
    events.meanwhile = lambda: node.plugin(devices("a", "b"))
    node.restart(reboot=True)
    record = node.pods.known("p")
    if wait:
        # No wait for the second pod, which has no devices.
        assert (record.phase, events.waits) == ("Running", [60.0, 60.0])
        assert node.devices("p") == {"app": {GPU: ["a"]}}
    else:
        assert (record.phase, record.message, events.waits) == ("Failed", NO_HEALTHY, [])


def test_q6_wait_times_out() -> None:
    events = Waiting()
    node = Node(events=events, wait_for_plugin=60.0)
    node.plugin(devices("a"))
    node.admit(pod("p", gpu=1), start=True)
    node.restart(reboot=True)
    assert (node.pods.known("p").message, events.waits) == (NO_HEALTHY, [60.0])


def test_q6_restart_does_not_wait() -> None:
    events = Waiting()
    node = Node(events=events, wait_for_plugin=60.0)
    node.plugin(devices("a"))
    node.admit(pod("p", gpu=1), start=True)
    node.restart()
    assert (node.pods.known("p").phase, events.waits) == ("Running", [])


def test_q22_seed_shuffles_devices() -> None:
    def chosen(seed: int | None) -> list[tuple[str, ...]]:
        node = Node(shuffle_seed=seed)
        plugin = node.plugin(devices(*"abcdefghij"))
        for uid in ("p", "q", "r"):
            assert node.admit(pod(uid, gpu=3)).admitted
        return allocations(plugin)

    assert chosen(None) == [tuple("abc"), tuple("def"), tuple("ghi")]
    assert chosen(1) == chosen(1)
    assert len({tuple(chosen(seed)) for seed in range(5)}) > 1
    assert all(sorted(ids) == list(ids) for ids in chosen(1))


# -- quirks of servers and files -------------------------------------------


@pytest.fixture
def root(directory: Path) -> Path:
    return directory


@sides("Q3")
def test_connection_of_a_rejected_registration(
    quirks: Quirks, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    def close(self: Connection) -> None:
        closed.append(self.path.name)
        original(self)

    original = Connection.close
    monkeypatch.setattr(Connection, "close", close)

    def reject(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.INTERNAL, "no options")

    with (
        MockKubelet(root, Settings(quirks=quirks)) as kubelet,
        hostile.RawPlugin(kubelet.plugin_dir / "p.sock", options=reject),
    ):
        rejection = hostile.register(kubelet.plugin_socket, "p.sock")
        assert rejection is not None and "no options" in rejection
        assert closed == ([] if quirks else ["p.sock"])
    assert closed.count("p.sock") >= 1  # at the latest when the kubelet stops
    kubelet.check()


@sides("Q7")
def test_order_of_allocated_resources(quirks: Quirks, root: Path) -> None:
    names = [f"vendor.com/r{number}" for number in range(6)]
    with MockKubelet(root, Settings(quirks=quirks)) as kubelet:
        for name in names:
            plugin = FakePlugin(name)
            plugin.register(kubelet.manager.plugins, f"{name[-2:]}.sock")
            plugin.send_list(devices(*"abcdef"))
        kubelet.admit(pod("p", **{f"r{number}": 6 for number in range(6)}))
        orders = {
            (
                tuple(one.name for one in status),
                tuple(health.resource_id for health in status[0].resources),
            )
            for status in (kubelet.allocated_resources_status("p")["app"] for _ in range(20))
        }
    if quirks:
        assert len(orders) > 1
    else:
        assert orders == {(tuple(names), tuple("abcdef"))}


@sides("Q21")
def test_corrupt_checkpoint(quirks: Quirks, root: Path) -> None:
    directory = root / "device-plugins"
    directory.mkdir(0o750)
    path = directory / "kubelet_internal_checkpoint"
    path.write_bytes(b"{corrupt")
    with MockKubelet(root, Settings(quirks=quirks)) as kubelet:
        aside = [each for each in directory.glob("kubelet_internal_checkpoint*") if each != path]
        if quirks:
            assert path.read_bytes() == b"{corrupt" and aside == []
        else:
            assert not path.exists() and [each.read_bytes() for each in aside] == [b"{corrupt"]
        kind = EventKind.CHECKPOINT_FAILED if quirks else EventKind.CHECKPOINT_SET_ASIDE
        assert len(kubelet.events.recent(kind)) == 1
        plugin = FakePlugin(GPU)
        plugin.register(kubelet.manager.plugins)
        plugin.send_list(devices("a"))
        # In both cases the next write creates a valid file. Without the quirk, the invalid file
        # still exists.
        assert checkpoint.loads(path.read_bytes()).registered_devices == {GPU: ("a",)}
        left = [each.read_bytes() for each in directory.glob("kubelet_internal_checkpoint*")]
        assert (b"{corrupt" in left) == (not quirks)


@sides("Q23")
def test_endpoint_outside_the_plugin_directory(quirks: Quirks, root: Path) -> None:
    with (
        MockKubelet(root, Settings(quirks=quirks)) as kubelet,
        hostile.RawPlugin(root / "x.sock") as plugin,
    ):
        rejection = hostile.register(kubelet.plugin_socket, "../x.sock")
        if quirks:
            assert rejection is None
            kubelet.wait_for_resource(hostile.RESOURCE, 2)
        else:
            assert rejection == (
                "failed to dial device plugin: endpoint '../x.sock' is not a file name: "
                "use a socket in the plugin directory"
            )
            assert plugin.streams == 0
    kubelet.check()


LARGE = hostile.devices(*(f"{number}-{'x' * 100_000}" for number in range(45)))


@pytest.mark.parametrize("limit", [KUBELET_LIST_LIMIT, -1])
def test_q11_list_above_the_limit(limit: int, root: Path) -> None:
    assert len(LARGE) > KUBELET_LIST_LIMIT
    settings = Settings(max_list_bytes=limit)
    with (
        MockKubelet(root, settings) as kubelet,
        hostile.RawPlugin(kubelet.plugin_dir / "p.sock", hostile.lists(LARGE)),
    ):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        if limit < 0:
            kubelet.wait_for_resource(hostile.RESOURCE, 45)
            return
        event = kubelet.wait_for_event(EventKind.STREAM_ENDED, after=0, resource=hostile.RESOURCE)
        assert "a list is larger than 4194304 bytes" in event.message
        assert "raise Settings.max_list_bytes" in event.message
        assert kubelet.capacity() == {hostile.RESOURCE: 0}
    kubelet.check()


@sides("Q29")
def test_writes_of_the_checkpoint(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    plugin = node.plugin(devices("a"))
    written = node.store.writes
    plugin.send_list(devices("a"))
    assert node.store.writes - written == (1 if quirks else 0)
    written = node.store.writes
    plugin.leave()
    assert node.store.writes - written == (0 if quirks else 1)


@sides("Q30")
def test_list_of_a_plugin_that_disconnects_beside_another(quirks: Quirks) -> None:
    node = Node(quirks=quirks, kubelet_version="1.37")
    node.plugin(devices("a", "b"), name="old.sock")
    new = node.plugin(devices("c"), name="new.sock")
    new.leave()
    assert node.manager.capacity().capacity == {GPU: 1 if quirks else 2}


@sides("Q31")
def test_rejected_pod_keeps_the_devices_of_its_first_container(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    node.plugin(devices("a", "b"))
    rejected = node.admit(pod("p", container("one", gpu=1), container("two", gpu=2)))
    assert not rejected.admitted
    assert node.devices("p") == ({"one": {GPU: ["a"]}} if quirks else {})
    assert node.entries() == ({("p", "one", GPU)} if quirks else set())
    node.manager.self_check()
    node.admit(pod("q", gpu=2))
    assert node.devices("q") == {"app": {GPU: ["a", "b"]}}
    assert node.entries() == {("q", "app", GPU)}


@sides("Q31")
def test_file_lacks_the_container_that_failed(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    node.plugin(devices("a"))
    node.plugin([], NIC, "nic.sock")
    assert not node.admit(pod("p", container("app", gpu=1, nic=1))).admitted
    assert node.devices("p") == ({"app": {GPU: ["a"]}} if quirks else {})
    assert node.entries() == set()


@sides("Q31")
def test_kept_devices_are_never_free(quirks: Quirks, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(quirks=quirks)
    node.plugin(devices("a", "b"))
    run = Driver.run

    def racing(driver: Driver, steps: AllocationSteps, uid: PodUid) -> None:
        try:
            run(driver, steps, uid)
        except Rejected:
            monkeypatch.undo()
            node.admit(pod("q", gpu=1))
            raise

    monkeypatch.setattr(Driver, "run", racing)
    node.admit(pod("p", container("one", gpu=1), container("two", gpu=2)))
    assert node.devices("p") == ({"one": {GPU: ["a"]}} if quirks else {})
    assert node.devices("q") == {"app": {GPU: ["b" if quirks else "a"]}}
    node.manager.self_check()


@sides("Q32")
def test_health_of_a_device_that_two_pods_have(quirks: Quirks) -> None:
    node = Node(quirks=quirks)
    entries = tuple(
        checkpoint.PodDevicesEntry(uid, "app", GPU, {-1: ("a",)}, b"") for uid in ("p", "q")
    )
    node.manager.restore(checkpoint.Checkpoint(entries, {GPU: ()}))
    plugin = node.plugin(devices("a"))
    while not node.manager.health_updates.empty():
        node.manager.health_updates.get_nowait()
    plugin.send_list([device("a", health="Unhealthy")])
    assert node.manager.health_updates.qsize() == (1 if quirks else 2)


# -- names of quirks -----------------------------------------------------------------------------


@sides("Q34")
def test_pod_with_two_entries_for_one_claim(quirks: Quirks) -> None:
    world = dra_world.World(dra_world.rules("1.37", *quirks))
    world.add(dra_world.claim("c1"))
    if quirks:
        with pytest.raises(DraError, match=r"NodePrepareResources skipped 1 ResourceClaims$"):
            world.prepare(dra_world.pod("p", "c1", "c1"))
    else:
        world.prepare(dra_world.pod("p", "c1", "c1"))
    asked = ("c1", "c1") if quirks else ("c1",)
    assert world.calls() == [(dra_world.GPU, "NodePrepareResources", asked)]


@sides("Q35")
def test_devices_of_a_claim_that_is_prepared_again(quirks: Quirks) -> None:
    world = dra_world.World(dra_world.rules("1.36", *quirks))
    world.add(dra_world.claim("c1"))
    world.prepare(dra_world.pod())
    restarted = [attrs.evolve(each, prepared=False) for each in world.cache]
    world.cache = ClaimCache(restarted)
    world.prepare(dra_world.pod())
    (claim,) = world.cache
    assert len(claim.drivers[dra_world.GPU].devices or ()) == (2 if quirks else 1)


@sides("Q36")
def test_prepare_after_a_failed_unprepare(quirks: Quirks) -> None:
    world = dra_world.World(dra_world.rules("1.37", *quirks))
    world.add(dra_world.claim("c1"))
    world.prepare(dra_world.pod())
    world.fail(RpcError("Internal", "no"), lambda effect: isinstance(effect, CallDriver))
    with pytest.raises(DraError, match="NodeUnprepareResources: rpc error"):
        world.unprepare(dra_world.pod())
    if quirks:
        with pytest.raises(DraError, match=r"ResourceClaim c1 is being unprepared$"):
            world.prepare(dra_world.pod())
    else:
        world.prepare(dra_world.pod())
    world.unprepare(dra_world.pod())
    assert not len(world.cache)


@sides("Q37")
def test_two_pods_that_prepare_a_claim_at_the_same_time(quirks: Quirks) -> None:
    world = dra_world.World(dra_world.rules("1.37", *quirks))
    world.add(dra_world.claim("c1", reserved=("p-uid", "q-uid")))

    def start(name: str) -> dra_world.Run:
        steps = prepare(dra_world.pod(name), world.cache, world.drivers, world.rules)
        return dra_world.Run(world, steps)

    first = start("p")
    first.until(CallDriver)
    second = start("q")
    second.until(CallDriver if quirks else AwaitClaims)
    first.finish()
    if not quirks:
        second.resume()
    second.finish()
    assert len(world.calls()) == 1 + len(quirks)
    (claim,) = world.cache
    assert claim.prepared and claim.pods == {"p-uid", "q-uid"}


@sides("Q38")
def test_corrupt_state_file_of_dra(quirks: Quirks, directory: Path) -> None:
    (directory / "dra_manager_state").write_text("{")
    kubelet = MockKubelet(directory, Settings(quirks=quirks))
    if quirks:
        with pytest.raises(StartError, match="failed to get checkpoint dra_manager_state"):
            kubelet.start()
        return
    with kubelet:
        assert (directory / "dra_manager_state.corrupt-1").exists()


@sides("Q39")
def test_end_of_a_pod_whose_claim_was_never_created(quirks: Quirks) -> None:
    world = dra_world.World(dra_world.rules("1.37", *quirks))
    pod = attrs.evolve(dra_world.pod("p"), claims=(PodClaim("x0", template="t"),))
    steps = unprepare(pod, world.cache, world.drivers, world.rules)
    if quirks:
        with pytest.raises(DraError, match="ResourceClaim not created yet"):
            dra_world.Run(world, steps)
        return
    dra_world.Run(world, steps).finish()
    assert not world.calls()


def test_every_quirk_is_tested_on_both_sides() -> None:
    assert set(QUIRKS) == TESTED


def test_no_quirk_is_enabled_by_default() -> None:
    assert Settings().quirks == frozenset()


def test_an_unknown_quirk_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"^unknown quirk Q99: use one of Q1, Q2, "):
        Settings(quirks={"Q2", "Q99"})


@pytest.mark.parametrize(
    ("version", "name", "has"),
    [("1.24", "Q1", "Q3, Q4"), ("1.36", "Q2", "Q1, Q3"), ("1.37", "Q1", "Q2, Q3")],
)
def test_quirk_that_the_version_never_had_is_rejected(version: str, name: str, has: str) -> None:
    text = f"kubelet {version} does not have quirk {name}: use one of {has}"
    with pytest.raises(ValueError, match="^" + text):
        Settings(kubelet_version=version, quirks={name})


def test_reference_enables_all_quirks_of_the_version() -> None:
    old, new = (Settings(kubelet_version=each, quirks="reference") for each in ("1.24", "1.37"))
    assert {"Q1", "Q2", "Q16"}.isdisjoint(old.quirks) and {"Q3", "Q4"} <= old.quirks
    assert {"Q2", "Q9", "Q16"} <= new.quirks and {"Q1", "Q8"}.isdisjoint(new.quirks)
    assert Settings(quirks=["reference", "Q2"]).quirks == Settings(quirks="reference").quirks
