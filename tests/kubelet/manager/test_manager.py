"""The manager with fake plugins: admission to checkpoint, plugins that come and go."""

from __future__ import annotations

import threading

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import checkpoint
from checkpoint.shared_writer import MemoryStore
from devicemanager.core.allocation.container import AdmissionContext
from devicemanager.core.errors import (
    AllocationError,
    EndpointError,
    RequestError,
    RpcError,
)
from devicemanager.core.ids import ContainerName, EndpointId, PodUid, ResourceName
from devicemanager.core.inventory import Columns
from devicemanager.core.rejection import Rejected
from devicemanager.core.topology import NumaTopology
from devicemanager.events.stream import EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.settings import Settings
from devicemanager.testing import fakes
from devicemanager.testing.fakes import FakePlugin
from tests import strategies
from tests.helpers import container, device, devices, entries, pod
from tests.node import Node
from tests.strategies import GPU, NIC

UNKNOWN = RpcError("Unknown", "no")
SEVERAL = "1.37"
"""The first version in which several plugins can serve one resource."""


class Harness(Node):
    """A node of which only the manager is used."""

    def plugin(self, *ids: str, resource=GPU, name="plugin.sock", **keywords) -> FakePlugin:
        """Register a plugin and let it list these devices."""
        return super().plugin(devices(*ids), resource, name, **keywords)

    def held(self, uid: str) -> dict[str, dict[str, list[str]]]:
        return self.devices(uid)

    def rejection(self, spec) -> str:
        before = self.seen()
        with pytest.raises(Rejected) as rejected:
            self.manager.admit(spec)
        assert self.seen() == before
        return rejected.value.message

    def seen(self) -> object:
        """Return everything that is visible, except for the version."""
        state = self.manager.state
        counts = self.manager.capacity()
        return (
            entries(state.ledger),
            next_write(self.manager),
            self.store.data,
            self.store.writes,
            dict(counts.capacity),
            dict(counts.allocatable),
            {name: listed.devices() for name, listed in self.manager.devices().items()},
            {name: state.ledger.count(name) for name in (GPU, NIC)},
        )


def next_write(manager: DeviceManager) -> bytes:
    """Return the contents that would be written now, without a write."""
    return b"".join(manager.state._document.snapshot()())


def failed(text: str) -> str:
    return f"Allocate failed due to {text}, which is unexpected"


# -- admission -------------------------------------------------------------------------


def test_admission_allocates_and_writes_the_checkpoint():
    harness = Harness()
    plugin = harness.plugin("a", "b", responses=(b"first", b"second"))
    harness.manager.admit(pod("p", gpu=1))
    assert harness.held("p") == {"app": {GPU: ["a"]}}
    assert [(call.method, call.device_ids) for call in plugin.calls] == [("Allocate", ("a",))]
    saved = checkpoint.loads(harness.store.data)
    assert saved.entries == (checkpoint.PodDevicesEntry("p", "app", GPU, {-1: ("a",)}, b"first"),)
    assert saved.registered_devices == {GPU: ("a", "b")}


def test_preference_of_the_plugin_is_used():
    harness = Harness()
    plugin = harness.plugin("a", "b", "c", preference=fakes.last)
    harness.manager.admit(pod("p", gpu=2))
    assert harness.held("p") == {"app": {GPU: ["b", "c"]}}
    assert plugin.calls == [
        fakes.FakeCall("GetPreferredAllocation", available=("a", "b", "c"), size=2),
        fakes.FakeCall("Allocate", ("b", "c")),
    ]


def test_preference_is_not_requested_without_the_option():
    harness = Harness()
    plugin = harness.plugin("a", "b")
    plugin.preference = fakes.last
    harness.manager.admit(pod("p", gpu=1))
    assert [call.method for call in plugin.calls] == ["Allocate"]


def test_pod_without_devices_writes_nothing():
    harness = Harness()
    harness.manager.admit(pod("p", gpu=1))
    assert (harness.held("p"), harness.store.writes) == ({}, 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda plugin: setattr(plugin, "allocate_error", UNKNOWN),
         "rpc error: code = Unknown desc = no"),
        (lambda plugin: setattr(plugin, "preference_error", UNKNOWN),
         "device plugin GetPreferredAllocation rpc failed with err: "
         "rpc error: code = Unknown desc = no"),
        (lambda plugin: setattr(plugin, "responses", ()),
         "no containers return in allocation response "),
        (lambda plugin: plugin.leave(),
         "no healthy devices present; cannot allocate unhealthy devices vendor.com/gpu"),
        (lambda plugin: plugin.send_list(devices("a")),
         "requested number of devices unavailable for vendor.com/gpu. Requested: 2, Available: 1"),
    ],
)  # fmt: skip
def test_rejection_messages(change, text):
    harness = Harness()
    plugin = harness.plugin("a", "b", preference=fakes.first)
    change(plugin)
    assert harness.rejection(pod("p", gpu=2)) == failed(text)


def test_endpoint_that_disconnects_during_the_preference():
    # Between choice and Allocate: the plugin disconnects during GetPreferredAllocation.
    harness = Harness()
    harness.plugin("a", resource=NIC)
    plugin = harness.plugin("a", "b", preference=fakes.first)
    plugin.before_answer = lambda call: plugin.leave()
    before = entries(harness.manager.state.ledger)
    with pytest.raises(Rejected) as rejected:
        harness.manager.admit(pod("p", gpu=1, nic=1))
    assert rejected.value.message == failed(
        "requested number of devices unavailable for vendor.com/gpu. Requested: 1, Available: 0"
    )
    assert entries(harness.manager.state.ledger) == before
    harness.manager.self_check()


def test_stopped_endpoint_fails_allocate():
    # All devices are reused, so none must be free: only Allocate notices.
    harness = Harness()
    plugin = harness.plugin("a")
    spec = pod("p", container("app", gpu=1), init=[container("init", gpu=1)])

    def leave_and_come_back(call):
        if len(plugin.calls) == 1:
            harness.manager.state.connections.clear()

    plugin.before_answer = leave_and_come_back
    with pytest.raises(Rejected) as rejected:
        harness.manager.admit(spec)
    assert rejected.value.message == failed("endpoint plugin.sock has been stopped")
    harness.manager.self_check()
    assert harness.held("p") == {}


def test_second_admission_of_a_pod_is_an_error():
    harness = Harness()
    plugin = harness.plugin("a", "b")
    errors = []

    def again(call):
        plugin.before_answer = lambda call: None
        try:
            harness.manager.admit(pod("p", gpu=1))
        except RequestError as error:
            errors.append(str(error))

    plugin.before_answer = again
    harness.manager.admit(pod("p", gpu=1))
    assert errors == ["pod p is already being admitted: wait for the result"]
    assert harness.held("p") == {"app": {GPU: ["a"]}}


def test_exception_in_an_admission_frees_everything():
    harness = Harness()
    plugin = harness.plugin("a")
    plugin.before_answer = lambda call: 1 // 0
    before = harness.seen()
    with pytest.raises(ZeroDivisionError) as error:
        harness.manager.admit(pod("p", gpu=1))
    # The frames of the exception stay alive with it; the clean-up must not depend on their end.
    assert harness.seen() == before, error
    harness.manager.self_check()


def test_readmission_calls_no_plugin():
    harness = Harness()
    plugin = harness.plugin("a", "b")
    harness.manager.admit(pod("p", gpu=1))
    harness.manager.admit(pod("p", gpu=1))
    assert len(plugin.calls) == 1
    assert "changed request for resource" in harness.rejection(pod("p", gpu=2))


@given(
    strategies.inventories | strategies.full_inventories,
    strategies.pod_lists | strategies.light_pod_lists,
    strategies.preferences,
    st.lists(st.sampled_from(["", "", "", "allocate", "prefer", "empty", "bug"]), max_size=8),
    strategies.policies,
    strategies.scopes,
)
def test_rejected_pod_changes_nothing(lists, pods, preference, faults, policy, scope):
    # After a rejection at any RPC, ledger, document, file, capacity and lists are unchanged; an
    # admitted pod is in the file.
    harness = Harness(
        Settings(
            numa=NumaTopology.of(list(strategies.NODES)),
            topology_policy=policy,
            topology_scope=scope,
        )
    )
    left = list(faults)
    for resource, rows in lists.items():
        plugin = FakePlugin(resource, preference)
        plugin.before_answer = lambda call, plugin=plugin: misbehave(plugin, call, left)
        plugin.register(harness.manager.plugins)
        plugin.send_list(rows)
    for spec in pods:
        before = harness.seen()
        try:
            harness.manager.admit(spec)
        except (Rejected, ZeroDivisionError) as error:
            event(type(error).__name__)
            assert harness.seen() == before
        else:
            event("admitted")
            assert harness.store.data in (None, next_write(harness.manager))
        harness.manager.self_check()


def misbehave(plugin: FakePlugin, call: fakes.FakeCall, faults: list[str]) -> None:
    fault = faults.pop(0) if faults else ""
    plugin.responses = () if fault == "empty" else (b"",)
    if fault == "bug":
        raise ZeroDivisionError
    if fault == "allocate" and call.method == fakes.ALLOCATE:
        raise UNKNOWN
    if fault == "prefer" and call.method == fakes.GET_PREFERRED_ALLOCATION:
        raise UNKNOWN


# -- events during an RPC ----------------------------------------------------------------


def test_another_pod_is_admitted_during_an_rpc():
    harness = Harness()
    plugin = harness.plugin("a", "b", "c", preference=fakes.first)

    def admit_another(call):
        plugin.before_answer = lambda call: None
        harness.manager.admit(pod("q", gpu=2))

    plugin.before_answer = admit_another
    harness.manager.admit(pod("p", gpu=1))
    assert (harness.held("p"), harness.held("q")) == (
        {"app": {GPU: ["c"]}},
        {"app": {GPU: ["a", "b"]}},
    )
    harness.manager.self_check()


def test_list_changes_during_an_rpc():
    harness = Harness()
    plugin = harness.plugin("a", "b", preference=fakes.first)

    def lose_a(call):
        plugin.before_answer = lambda call: None
        plugin.send_list(devices("b", "c"))

    plugin.before_answer = lose_a
    harness.manager.admit(pod("p", gpu=2))
    assert harness.held("p") == {"app": {GPU: ["b", "c"]}}


def test_promoted_plugin_allocates():
    # The newest disconnects during GetPreferredAllocation: the older one allocates.
    harness = Harness(kubelet_version=SEVERAL)
    old = harness.plugin("a", "b", name="old.sock")
    new = harness.plugin("a", "b", name="new.sock", preference=fakes.first)
    new.before_answer = lambda call: new.leave()
    harness.manager.admit(pod("p", gpu=1))
    assert [call.method for call in old.calls] == ["Allocate"]
    assert [call.method for call in new.calls] == ["GetPreferredAllocation"]


def test_pod_released_during_its_admission_has_nothing():
    harness = Harness()
    plugin = harness.plugin("a")
    plugin.before_answer = lambda call: harness.manager.release(PodUid("p"))
    with pytest.raises(Rejected):
        harness.manager.admit(pod("p", gpu=1))
    assert harness.held("p") == {}
    plugin.before_answer = lambda call: None
    harness.manager.admit(pod("q", gpu=1))
    harness.manager.self_check()


# -- the checkpoint ----------------------------------------------------------------------


class FullDisk(MemoryStore):
    """A store that can run full."""

    full = False

    def write(self, data: bytes) -> None:
        if self.full:
            raise checkpoint.CheckpointWriteError("the file", "no space left on device")
        super().write(data)


def full_disk() -> Harness:
    return Harness(store=FullDisk())


def test_policy_without_hints_records_no_affinities():
    harness = Harness()
    harness.plugin("a")
    harness.manager.admit(pod("p", gpu=1))
    assert harness.manager.affinities(PodUid("p")) == {}


def test_failed_checkpoint_write_rejects_the_pod():
    harness = full_disk()
    harness.plugin("a", "b")
    harness.manager.admit(pod("first", gpu=1))
    harness.store.full = True
    message = harness.rejection(pod("p", gpu=1))
    assert message.startswith("Allocate failed due to failed to write checkpoint file ")
    assert "no space left on device" in message and message.endswith(", which is unexpected")
    assert harness.kinds(EventKind.CHECKPOINT_FAILED) == [EventKind.CHECKPOINT_FAILED]
    assert harness.manager.affinities(PodUid("p")) == {}
    harness.manager.self_check()
    harness.store.full = False
    harness.manager.admit(pod("p", gpu=1))
    assert harness.held("p") == {"app": {GPU: ["b"]}}


def test_list_is_applied_although_the_write_fails():
    harness = full_disk()
    plugin = harness.plugin("a")
    harness.store.full = True
    plugin.send_list(devices("a", "b"))
    assert harness.manager.capacity().capacity == {GPU: 2}
    assert harness.kinds(EventKind.CHECKPOINT_FAILED) == [EventKind.CHECKPOINT_FAILED]
    harness.store.full = False
    plugin.send_list(devices("a", "b", "c"))
    assert checkpoint.loads(harness.store.data).registered_devices == {GPU: ("a", "b", "c")}


def test_checkpoint_is_written_only_after_changes():
    harness = Harness()
    plugin = FakePlugin(GPU)
    plugin.register(harness.manager.plugins)
    plugin.send_list(devices("a", "b"))
    assert harness.store.writes == 1
    plugin.send_list(devices("b", "a"))  # the same list in another order
    harness.manager.capacity()
    harness.manager.release(PodUid("nobody"))
    assert harness.store.writes == 1
    harness.manager.admit(pod("p", gpu=1))
    assert harness.store.writes == 2
    harness.manager.admit(pod("p", gpu=1))
    harness.manager.admit(pod("without"))
    assert harness.store.writes == 2
    plugin.send_list([device("a"), device("b", health="Unhealthy")])
    assert harness.store.writes == 3
    harness.manager.release(PodUid("p"))
    harness.manager.release(PodUid("p"))
    assert harness.store.writes == 4
    plugin.leave()
    assert harness.store.writes == 5


def test_first_list_without_devices_is_written():
    # After a restart the resource is known: a pod that requests it is rejected.
    harness = Harness()
    plugin = FakePlugin(GPU)
    plugin.register(harness.manager.plugins)
    assert harness.store.writes == 0
    plugin.send_list([])
    plugin.send_list([])
    assert harness.store.writes == 1
    assert checkpoint.loads(harness.store.data).registered_devices == {GPU: ()}


def test_release_of_several_pods_writes_once():
    # Q10: deleted pods leave the file at once, with one write.
    harness = Harness()
    harness.plugin("a", "b")
    harness.manager.admit(pod("p", gpu=1))
    harness.manager.admit(pod("q", gpu=1))
    writes = harness.store.writes
    harness.manager.release(PodUid("p"), PodUid("q"))
    assert harness.store.writes == writes + 1
    assert checkpoint.loads(harness.store.data).entries is None


def test_failed_pod_is_freed_before_the_next_allocation():
    harness = Harness()
    harness.plugin("a")
    harness.manager.admit(pod("p", gpu=1))
    harness.manager.deactivate(PodUid("p"))
    assert harness.held("p") == {"app": {GPU: ["a"]}}
    harness.manager.admit(pod("q", gpu=1))
    assert (harness.held("p"), harness.held("q")) == ({}, {"app": {GPU: ["a"]}})


# -- restart -----------------------------------------------------------------------------


def restarted(harness: Harness, settings: Settings | None = None) -> Harness:
    after = Harness(settings)
    after.manager.restore(checkpoint.loads(harness.store.data))
    return after


@given(
    strategies.inventories | strategies.full_inventories,
    strategies.pod_lists | strategies.light_pod_lists,
    strategies.preferences,
)
def test_restart_restores_ledger_and_file(lists, pods, preference):
    # The checkpoint restores an equal ledger; when the plugins have listed again, the file has the
    # same bytes.
    harness = Harness()
    for resource, rows in lists.items():
        plugin = FakePlugin(resource, preference)
        plugin.register(harness.manager.plugins)
        plugin.send_list(rows)
    for spec in pods:
        try:
            harness.manager.admit(spec)
        except Rejected:
            harness.manager.release(spec.uid)
    if harness.store.data is None:
        return
    again = restarted(harness)
    assert entries(again.manager.state.ledger) == entries(harness.manager.state.ledger)
    again.manager.self_check()
    counts = again.manager.capacity()
    assert set(counts.capacity.values()) <= {0}
    for resource, rows in lists.items():
        plugin = FakePlugin(resource)
        plugin.register(again.manager.plugins)
        plugin.send_list(rows)
    assert next_write(again.manager) == next_write(harness.manager)
    event(f"{len(harness.manager.pods())} pods held devices")


def test_restored_resources_have_no_devices():
    harness = Harness()
    harness.plugin("a", "b")
    harness.manager.admit(pod("p", gpu=1))
    again = restarted(harness)
    counts = again.manager.capacity()
    assert (counts.capacity, counts.allocatable) == ({GPU: 0}, {GPU: 0})
    assert again.manager.is_known(GPU) and not again.manager.is_known(NIC)
    again.clock.advance(300.0)
    assert again.manager.removed() == frozenset()
    again.clock.advance(0.5)
    assert again.manager.removed() == {GPU}
    # Allocated devices remain and make their resource a known one.
    assert again.manager.is_known(GPU)


def test_running_containers_need_no_devices_until_sources_are_ready():
    harness = Harness()
    harness.plugin("a", "b")
    harness.manager.admit(pod("p", gpu=1))
    harness.manager.admit(pod("q", gpu=1))
    again = restarted(harness)
    assert not again.manager.is_sources_ready
    running = AdmissionContext(sources_ready=False, running=frozenset({ContainerName("app")}))
    again.manager.admit(pod("p", gpu=1), running)
    with pytest.raises(
        Rejected,
        match=r"^UnexpectedAdmissionError: Allocate failed due to no healthy devices present",
    ):
        again.manager.admit(pod("q", gpu=1), AdmissionContext(sources_ready=False))
    again.manager.deactivate(PodUid("q"))
    with pytest.raises(Rejected):
        again.manager.admit(pod("r", gpu=1))
    # Nothing is freed before all pods are known.
    assert again.manager.pods() == {"p", "q"}
    again.manager.sources_ready(frozenset({PodUid("p")}))
    assert again.manager.pods() == {"p"}
    assert again.manager.is_sources_ready
    assert [entry.pod_uid for entry in checkpoint.loads(again.store.data).entries] == ["p"]


def test_sources_are_ready_if_the_checkpoint_has_no_pods():
    harness = Harness()
    harness.plugin("a")
    assert restarted(harness).manager.is_sources_ready


# -- plugins -----------------------------------------------------------------------------


def counts(harness: Harness) -> tuple[dict[str, int], dict[str, int]]:
    found = harness.manager.capacity()
    return dict(found.capacity), dict(found.allocatable)


def test_list_replaces_the_previous_list():
    harness = Harness()
    plugin = harness.plugin("a", "b", "b")
    assert counts(harness) == ({GPU: 2}, {GPU: 2})
    plugin.send_list([device("a", health="Odd"), device("c")])
    assert counts(harness) == ({GPU: 2}, {GPU: 1})
    plugin.leave()
    assert counts(harness) == ({GPU: 2}, {GPU: 0})
    assert plugin.closed


def test_plugin_that_disconnects_before_its_first_list():
    harness = Harness()
    plugin = FakePlugin(GPU)
    plugin.register(harness.manager.plugins)
    assert counts(harness) == ({}, {})
    plugin.leave()
    assert counts(harness) == ({GPU: 0}, {GPU: 0})


def test_late_events_of_a_replaced_plugin_are_ignored():
    # Q1, Q2, Q3
    harness = Harness()
    old = harness.plugin("a", "b")
    new = harness.plugin("a", "b", "c")
    assert old.closed and not new.closed
    assert harness.kinds(EventKind.REPLACED) == [EventKind.REPLACED]
    before = harness.seen()
    old.send_list(devices("z"))
    old.leave()
    old.leave()
    harness.manager.plugins.update(EndpointId(999), Columns.of(devices("z")))
    harness.manager.plugins.disconnect(EndpointId(999), "never there")
    assert harness.seen() == before
    assert harness.kinds(EventKind.STREAM_ENDED) == []
    harness.manager.admit(pod("p", gpu=3))
    assert len(new.calls) == 1 and old.calls == []


@pytest.mark.parametrize("version", ["1.36", SEVERAL])
def test_rolling_upgrade_keeps_the_counts(version):
    harness = Harness(kubelet_version=version)
    old = harness.plugin("a", "b", name="old.sock")
    new = FakePlugin(GPU)
    new.register(harness.manager.plugins, "new.sock")
    assert counts(harness) == ({GPU: 2}, {GPU: 2})
    new.send_list(devices("a", "b"))
    old.leave()
    assert counts(harness) == ({GPU: 2}, {GPU: 2})
    assert harness.kinds(EventKind.PROMOTED) == []
    harness.manager.admit(pod("p", gpu=1))
    assert len(new.calls) == 1


def test_failed_rolling_upgrade_promotes_the_old_plugin():
    harness = Harness(kubelet_version=SEVERAL)
    old = harness.plugin("a", "b", name="old.sock")
    new = harness.plugin("a", name="new.sock")
    assert counts(harness) == ({GPU: 1}, {GPU: 1})
    new.leave()
    assert counts(harness) == ({GPU: 2}, {GPU: 2})
    assert harness.kinds(EventKind.PROMOTED) == [EventKind.PROMOTED]
    harness.manager.admit(pod("p", gpu=1))
    assert len(old.calls) == 1
    old.leave()
    assert counts(harness) == ({GPU: 2}, {GPU: 0})


def test_resource_expires_after_the_grace_period():
    harness = Harness()
    plugin = harness.plugin("a")
    plugin.leave()
    writes = harness.store.writes
    harness.clock.advance(300.0)
    assert harness.manager.expire() == ()
    assert counts(harness) == ({GPU: 1}, {GPU: 0})
    # By the timer alone: nothing is read.
    harness.clock.advance(0.001)
    assert harness.kinds(EventKind.ENDPOINT_EXPIRED) == [EventKind.ENDPOINT_EXPIRED]
    assert harness.store.writes == writes + 1
    assert checkpoint.loads(harness.store.data).registered_devices == {}
    assert counts(harness) == ({}, {})
    assert not harness.manager.is_known(GPU)
    assert harness.manager.removed() == {GPU}


def test_resources_expire_in_the_order_they_stopped():
    harness = Harness()
    gpu, nic = harness.plugin("a"), harness.plugin("a", resource=NIC)
    gpu.leave()
    harness.clock.advance(100.0)
    nic.leave()
    harness.clock.advance(200.5)
    assert counts(harness) == ({NIC: 1}, {NIC: 0})
    harness.clock.advance(100.0)
    assert counts(harness) == ({}, {})
    times = [each.time for each in harness.manager.events.recent(EventKind.ENDPOINT_EXPIRED)]
    assert times == pytest.approx([1300.0, 1400.0])


def test_reading_capacities_expires_nothing():
    class LateTimers(ManualClock):
        """A clock whose timers are late."""

        def call_at(self, when, callback):
            return super().call_at(when + 1000.0, callback)

    harness = Harness(clock=LateTimers(1000.0))
    harness.plugin("a").leave()
    harness.clock.advance(301.0)
    assert counts(harness) == ({GPU: 1}, {GPU: 0})
    assert harness.manager.is_known(GPU)
    assert harness.manager.expire() == (GPU,)
    assert counts(harness) == ({}, {})


@pytest.mark.parametrize("in_use", [False, True])
def test_large_lists_of_removed_resources_are_kept_only_for_pods(in_use, monkeypatch):
    # Otherwise plugins with ever new names could fill the memory.
    monkeypatch.setattr("devicemanager.core.endpoints._MOST_REMOVED", 2)
    harness = Harness()
    plugin = harness.plugin("a", "b")
    if in_use:
        harness.manager.admit(pod("p", gpu=1))
    plugin.leave()
    harness.clock.advance(301.0)
    assert counts(harness) == ({}, {})
    assert (harness.manager.state.endpoints.last_list(GPU) is not None) is in_use


def test_hints_are_empty_after_the_grace_period():
    # The kubelet still has the last list, without healthy devices (N3: GetTopologyHints, v1.37).
    harness = Harness(topology_policy="restricted")
    plugin = super(Harness, harness).plugin([device("a", 0), device("b", 0)])
    harness.manager.admit(pod("p", gpu=1))
    plugin.leave()
    harness.clock.advance(301.0)
    with pytest.raises(Rejected, match=r"^TopologyAffinityError"):
        harness.manager.admit(pod("q", gpu=1))


def test_nothing_expires_after_close():
    harness = Harness()
    harness.plugin("a").leave()
    harness.manager.close()
    harness.clock.advance(1000.0)
    assert harness.manager.removed() == frozenset()


def test_disconnect_after_close_arms_no_timer():
    harness = Harness()
    plugin = harness.plugin("a")
    harness.manager.close()
    plugin.leave()
    harness.clock.advance(1000.0)
    assert harness.manager.removed() == frozenset()


def test_one_timer_serves_all_resources():
    timers = []

    class Timers(ManualClock):
        def call_at(self, when, callback):
            timers.append(when)
            return super().call_at(when, callback)

    manager = DeviceManager(clock=Timers())
    for resource in (GPU, NIC):
        plugin = FakePlugin(resource)
        plugin.register(manager.plugins)
        plugin.send_list(devices("a"))
        plugin.leave()
    assert len(timers) == 1


def test_grace_period_is_a_setting():
    harness = Harness(Settings(grace_period=5.0))
    harness.plugin("a").leave()
    harness.clock.advance(5.5)
    assert harness.manager.removed() == {GPU}


def test_plugin_that_reregisters_in_time_keeps_the_resource():
    harness = Harness()
    harness.plugin("a").leave()
    harness.clock.advance(299.0)
    harness.plugin("a", "b")
    harness.clock.advance(299.0)
    assert counts(harness) == ({GPU: 2}, {GPU: 2})


def test_suspect_list_publishes_a_warning():
    harness = Harness()
    harness.plugin("a", "a", "")
    messages = [each.message for each in harness.manager.events.recent(EventKind.LIST_SUSPECT)]
    assert messages == [
        "vendor.com/gpu: 1 duplicate device ID: the kubelet can count a device twice",
        "vendor.com/gpu: a device has an empty ID",
    ]


def test_list_is_indexed_without_the_lock():
    # A long list does not block other threads.
    harness = Harness()
    plugin = harness.plugin("a")
    locked = []

    class Watched(list):
        def __iter__(self):
            locked.append(harness.manager.state.lock.locked())
            return super().__iter__()

    columns = Columns.of(devices("c", "b"))
    columns = Columns(Watched(columns.ids), Watched(columns.health), Watched(columns.numa))
    harness.manager.plugins.update(plugin.register(harness.manager.plugins), columns)
    assert counts(harness) == ({GPU: 2}, {GPU: 2})
    assert locked and not any(locked)


def test_two_concurrent_lists_are_both_applied():
    # The second was compared with the list before the first; it is compared again.
    harness = Harness()
    plugin = harness.plugin("a", "b")
    other = []

    class Overtaken(list):
        def __iter__(self):
            if not other:
                other.append(True)
                plugin.send_list(devices("c", "d", "e"))
            return super().__iter__()

    endpoint = plugin.register(harness.manager.plugins, "plugin.sock")
    columns = Columns.of(devices("a", "x"))
    columns = Columns(Overtaken(columns.ids), columns.health, columns.numa)
    harness.manager.plugins.update(endpoint, columns)
    assert counts(harness) == ({GPU: 2}, {GPU: 2})
    messages = [each.message for each in harness.manager.events.recent(EventKind.DEVICES_UPDATED)]
    assert messages[-2:] == [
        "vendor.com/gpu: 3 devices, 3 healthy (3 added, 2 removed)",
        "vendor.com/gpu: 2 devices, 2 healthy (2 added, 3 removed)",
    ]


# -- large responses ---------------------------------------------------------------------


def test_large_response_publishes_a_warning():
    harness = Harness()
    plugin = harness.plugin("a", "b", responses=(b"x" * 65_535,))
    harness.manager.admit(pod("usual", gpu=1))
    assert harness.manager.events.recent(EventKind.ALLOCATION_SUSPECT) == ()
    plugin.responses = (b"x" * 65_536, b"y" * 5_000_000)
    harness.manager.admit(pod("p", gpu=1))
    [warning] = harness.manager.events.recent(EventKind.ALLOCATION_SUSPECT)
    assert warning.is_warning and (warning.resource, warning.pod) == (GPU, "p")
    assert warning.message.startswith("the response of vendor.com/gpu to Allocate has 65536 bytes")


@pytest.mark.parametrize(("limit", "fits"), [(70_000, False), (80_000, True), (None, True)])
def test_too_large_response_rejects_the_pod(limit, fits):
    harness = Harness(Settings(max_allocate_bytes=limit))
    harness.plugin("a", responses=(b"x" * 80_000,))
    if fits:
        harness.manager.admit(pod("p", gpu=1))
        return
    assert harness.rejection(pod("p", gpu=1)) == (
        "Allocate failed due to the response of vendor.com/gpu to Allocate has 80000 bytes: "
        "the limit is 70000 bytes (Settings.max_allocate_bytes), which is unexpected"
    )
    assert harness.manager.pods() == frozenset()


@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False)])
def test_limit_below_the_size_of_a_warning_applies(size, fits):
    harness = Harness(Settings(max_allocate_bytes=100))
    harness.plugin("a", responses=(b"x" * size,))
    if fits:
        harness.manager.admit(pod("p", gpu=1))
    else:
        assert f"has {size} bytes: the limit is 100 " in harness.rejection(pod("p", gpu=1))
    assert harness.manager.events.recent(EventKind.ALLOCATION_SUSPECT) == ()


# -- health ------------------------------------------------------------------------------


def reported(harness: Harness) -> list[str]:
    found = []
    while not harness.manager.health_updates.empty():
        found.append(harness.manager.health_updates.get_nowait())
    return found


def test_health_change_of_an_allocated_device_reports_its_pod():
    # Q8: the pod with the device of this resource, not of another with the same ID.
    harness = Harness()
    gpu = harness.plugin("a", "b")
    harness.plugin("a", resource=NIC)
    harness.manager.admit(pod("p", gpu=1))
    harness.manager.admit(pod("q", nic=1))
    gpu.send_list([device("a"), device("b", health="Unhealthy")])
    assert reported(harness) == []
    gpu.send_list([device("a", health="Unhealthy"), device("b", health="Unhealthy")])
    assert reported(harness) == ["p"]
    gpu.send_list(devices("a", "b"))
    assert reported(harness) == ["p"]
    gpu.send_list(devices("b"))
    assert reported(harness) == ["p"]
    gpu.leave()
    assert reported(harness) == []


def test_full_queue_drops_the_report_with_an_event():
    harness = Harness(Settings(health_queue_size=2))
    gpu = harness.plugin("a", "b", "c")
    for uid in "pqr":
        harness.manager.admit(pod(uid, gpu=1))
    gpu.leave()
    assert len(reported(harness)) == 2
    dropped = harness.manager.events.recent(EventKind.HEALTH_DROPPED)
    assert len(dropped) == 1 and dropped[0].is_warning


# -- containers --------------------------------------------------------------------------


def test_pre_start_calls_plugins_that_require_it():
    harness = Harness()
    gpu = harness.plugin("a", "b", pre_start_required=True)
    nic = harness.plugin("n", resource=NIC)
    harness.plugin("f", resource=ResourceName("vendor.com/fpga"))  # before the others
    harness.manager.admit(pod("p", container("x", fpga=1, gpu=2, nic=1), container("y")))
    for plugin in (gpu, nic):
        plugin.calls.clear()
    # A checkpoint can have devices that the container does not request.
    harness.manager.pre_start(PodUid("p"), ContainerName("x"), [NIC])
    assert gpu.calls == []
    harness.manager.pre_start(PodUid("p"), ContainerName("x"), [NIC, GPU])
    harness.manager.pre_start(PodUid("p"), ContainerName("y"), [])
    assert gpu.calls == [fakes.FakeCall("PreStartContainer", ("a", "b"))]
    assert nic.calls == []


def test_pre_start_failures_have_the_kubelets_texts():
    harness = Harness()
    gpu = harness.plugin("a", pre_start_required=True)
    harness.manager.admit(pod("p", gpu=1))
    gpu.pre_start_error = RpcError("DeadlineExceeded", "context deadline exceeded")
    with pytest.raises(AllocationError) as error:
        harness.manager.pre_start(PodUid("p"), ContainerName("app"), [GPU])
    assert str(error.value) == (
        "device plugin PreStartContainer rpc failed with err: "
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    )
    gpu.leave()
    with pytest.raises(
        AllocationError,
        match=r"^device plugin PreStartContainer rpc failed with err: "
        r"endpoint plugin.sock has been stopped",
    ):
        harness.manager.pre_start(PodUid("p"), ContainerName("app"), [GPU])


def test_allocate_now_for_one_container():
    harness = Harness()
    spec = pod("p", container("x", gpu=1), container("y", gpu=1))
    harness.manager.admit(spec)
    assert harness.held("p") == {}
    harness.plugin("a", "b")
    harness.manager.allocate_now(spec, spec.containers[1], is_init=False)
    assert harness.held("p") == {"y": {GPU: ["a"]}}
    harness.manager.allocate_now(spec, spec.containers[0], is_init=False)
    assert harness.held("p") == {"x": {GPU: ["b"]}, "y": {GPU: ["a"]}}
    assert len(checkpoint.loads(harness.store.data).entries) == 2
    with pytest.raises(Rejected, match="Requested: 1, Available: 0"):
        harness.manager.allocate_now(pod("q", gpu=1), container("app", gpu=1), is_init=False)


# -- settings and end ----------------------------------------------------------------------


def test_shuffle_is_repeatable_and_chooses_free_devices():
    # Q22
    def chosen(seed: int | None) -> list[dict[str, dict[str, list[str]]]]:
        harness = Harness(Settings(shuffle_seed=seed))
        harness.plugin(*(f"d{n}" for n in range(10)))
        for uid in "pqr":
            harness.manager.admit(pod(uid, gpu=3))
        harness.manager.self_check()
        return [harness.held(uid) for uid in "pqr"]

    assert chosen(7) == chosen(7)
    in_order = chosen(None)
    assert in_order[0] == {"app": {GPU: ["d0", "d1", "d2"]}}
    assert any(chosen(seed) != in_order for seed in range(3))


def test_closed_manager_ignores_plugins_and_writes_nothing():
    harness = Harness()
    plugin = harness.plugin("a")
    harness.manager.close()
    assert plugin.closed
    writes = harness.store.writes
    plugin.send_list(devices("a", "b"))
    plugin.leave()
    with pytest.raises(EndpointError, match=r"^the kubelet is stopping$"):
        FakePlugin(NIC).register(harness.manager.plugins)
    with pytest.raises(
        Rejected,
        match=r"^UnexpectedAdmissionError: Allocate failed due to endpoint "
        r"plugin.sock has been stopped",
    ):
        harness.manager.admit(pod("p", gpu=1))
    assert harness.store.writes == writes
    assert counts(harness) == ({GPU: 1}, {GPU: 1})


@pytest.mark.parametrize(
    ("quirks", "closed"), [((), True), (("Q1",), False), (("Q3",), False), (("Q24",), False)]
)
def test_quirks_leave_replaced_connections_open(quirks, closed):
    harness = Harness(Settings(quirks=quirks, kubelet_version="1.36"))
    old = harness.plugin("a")
    harness.plugin("a")
    assert old.closed is closed
    harness.manager.close()
    assert old.closed


def test_fake_plugin_that_never_registered():
    with pytest.raises(ValueError, match=r"^the fake plugin of vendor\.com/gpu has not registered"):
        FakePlugin("vendor.com/gpu").send_list([])


# -- threads -------------------------------------------------------------------------------


def test_concurrent_admissions_and_releases_stay_consistent():
    # No device has two pods, the indexes agree, and the file says the same.
    harness = Harness()
    ids = [f"d{n:02}" for n in range(40)]
    rows = [device(id_, n % 2) for n, id_ in enumerate(ids)]
    for resource in (GPU, NIC):
        plugin = FakePlugin(resource, fakes.last)
        plugin.register(harness.manager.plugins)
        plugin.send_list(rows)
    together = threading.Barrier(8)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        together.wait()
        try:
            for turn in range(5):
                uid = f"{number}-{turn}"
                harness.manager.admit(pod(uid, gpu=1, nic=1))
                if turn % 2:
                    harness.manager.release(PodUid(uid))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    harness.manager.self_check()
    assert len(harness.manager.pods()) == 24
    given_out = [
        (resource, id_)
        for uid in harness.manager.pods()
        for by_resource in harness.held(uid).values()
        for resource, held in by_resource.items()
        for id_ in held
    ]
    assert len(given_out) == len(set(given_out)) == 48
    saved = checkpoint.loads(harness.store.data)
    assert {entry.pod_uid for entry in saved.entries} == harness.manager.pods()


def test_concurrent_admissions_for_too_few_devices():
    # As many pods as devices are admitted; the others are rejected, and none waits.
    harness = Harness()
    harness.plugin(*(f"d{n}" for n in range(5)), preference=fakes.first)
    together = threading.Barrier(8)
    answers: list[bool] = []

    def work(number: int) -> None:
        together.wait()
        try:
            harness.manager.admit(pod(f"p{number}", gpu=1))
        except Rejected:
            answers.append(False)
        else:
            answers.append(True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 3 + [True] * 5
    assert len(harness.manager.pods()) == 5
    harness.manager.self_check()


def test_plugin_that_disconnects_before_its_first_list_is_not_in_the_checkpoint():
    harness = Harness()
    silent = FakePlugin("vendor.com/silent")
    silent.register(harness.manager.plugins)
    silent.leave()
    harness.plugin("a")
    assert checkpoint.loads(harness.store.data).registered_devices == {GPU: ("a",)}


@pytest.mark.parametrize("quirks", [(), ("Q10",)])
def test_resource_is_known_while_an_ended_pod_has_devices(quirks):
    # The kubelet looks the resource up before it frees devices of ended pods.
    harness = Harness(Settings(quirks=quirks))
    plugin = harness.plugin("a")
    harness.manager.admit(pod("p", gpu=1))
    plugin.leave()
    harness.clock.advance(301.0)
    harness.manager.expire()
    harness.manager.release(PodUid("p"))
    if quirks:
        with pytest.raises(Rejected, match="cannot allocate unregistered device"):
            harness.manager.admit(pod("q", gpu=1))
    harness.manager.admit(pod("r", gpu=1))
    assert harness.held("r") == {}


def test_node_check_counts_devices_in_use_only_for_pods_with_devices():
    harness = Harness()
    silent = FakePlugin(GPU)
    silent.register(harness.manager.plugins)
    # Without its device: the plugin has not sent a list yet.
    harness.manager.admit(pod("without", gpu=1))
    silent.send_list(devices("a", "b"))
    harness.manager.admit(pod("with", gpu=1))
    silent.leave()
    running = AdmissionContext(sources_ready=False, running=frozenset({ContainerName("app")}))
    with pytest.raises(Rejected, match="requested: 1, used: 1, capacity: 0"):
        harness.manager.admit(pod("without", gpu=1), running)
