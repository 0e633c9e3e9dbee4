"""The manager with fake plugins: admission to checkpoint, plugins that come and go."""

from __future__ import annotations

import threading

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import checkpoint
from devicemanager.clock import ManualClock
from devicemanager.core.allocator import Situation
from devicemanager.core.errors import AllocationError, PluginError, Refused, RequestError, RpcError
from devicemanager.core.ids import ContainerName, EndpointId, PodUid
from devicemanager.core.inventory import Columns
from devicemanager.core.topology import NumaTopology
from devicemanager.events import EventKind
from devicemanager.manager import Manager
from devicemanager.persistence import MemoryStore
from devicemanager.settings import Settings
from devicemanager.testing import fakes
from devicemanager.testing.fakes import FakePlugin
from tests import strategies
from tests.helpers import container, device, devices, entries, pod
from tests.strategies import GPU, NIC

UNKNOWN = RpcError("Unknown", "no")


class Kit:
    """A manager, its store and clock."""

    def __init__(self, settings: Settings | None = None, store: MemoryStore | None = None) -> None:
        self.store = MemoryStore() if store is None else store
        self.clock = ManualClock(1000.0)
        self.manager = Manager(settings, store=self.store, clock=self.clock)

    def plugin(self, *ids: str, resource=GPU, name="plugin.sock", **keywords) -> FakePlugin:
        """A registered plugin that has listed these devices."""
        plugin = FakePlugin(resource, **keywords)
        plugin.register(self.manager.plugins, name)
        plugin.send_list(devices(*ids))
        return plugin

    def held(self, uid: str) -> dict[str, dict[str, list[str]]]:
        return {
            name: {resource: sorted(holding.ids) for resource, holding in by_resource.items()}
            for name, by_resource in self.manager.holdings(PodUid(uid)).items()
        }

    def refusal(self, spec) -> str:
        before = self.seen()
        with pytest.raises(Refused) as refused:
            self.manager.admit(spec)
        assert self.seen() == before
        return refused.value.message

    def seen(self) -> object:
        """All that anybody can see, but for the version."""
        state = self.manager.state
        counts = self.manager.capacity()
        return (
            entries(state.ledger),
            state._document.render(),
            self.store.data,
            self.store.writes,
            dict(counts.capacity),
            dict(counts.allocatable),
            {name: listed.devices() for name, listed in self.manager.devices().items()},
            {name: state.ledger.count(name) for name in (GPU, NIC)},
        )

    def kinds(self, *only: EventKind) -> list[EventKind]:
        return [each.kind for each in self.manager.events.recent(*only)]


def failed(text: str) -> str:
    return f"Allocate failed due to {text}, which is unexpected"


# -- admission -------------------------------------------------------------------------


def test_admitted_and_written_down():
    kit = Kit()
    plugin = kit.plugin("a", "b", responses=(b"first", b"second"))
    kit.manager.admit(pod("p", gpu=1))
    assert kit.held("p") == {"app": {GPU: ["a"]}}
    assert [(call.method, call.device_ids) for call in plugin.calls] == [("Allocate", ("a",))]
    saved = checkpoint.loads(kit.store.data)
    assert saved.entries == (checkpoint.PodDevicesEntry("p", "app", GPU, {-1: ("a",)}, b"first"),)
    assert saved.registered_devices == {GPU: ("a", "b")}


def test_the_plugin_is_asked_for_its_preference():
    kit = Kit()
    plugin = kit.plugin("a", "b", "c", preference=fakes.last)
    kit.manager.admit(pod("p", gpu=2))
    assert kit.held("p") == {"app": {GPU: ["b", "c"]}}
    assert plugin.calls == [
        fakes.Call("GetPreferredAllocation", available=("a", "b", "c"), size=2),
        fakes.Call("Allocate", ("b", "c")),
    ]


def test_what_the_options_did_not_offer_is_not_asked():
    kit = Kit()
    plugin = kit.plugin("a", "b")
    plugin.preference = fakes.last
    kit.manager.admit(pod("p", gpu=1))
    assert [call.method for call in plugin.calls] == ["Allocate"]


def test_a_pod_without_devices_writes_nothing():
    kit = Kit()
    kit.manager.admit(pod("p", gpu=1))
    assert (kit.held("p"), kit.store.writes) == ({}, 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda plugin: setattr(plugin, "allocate_error", UNKNOWN),
         "rpc error: code = Unknown desc = no"),
        (lambda plugin: setattr(plugin, "preference_error", UNKNOWN),
         "device plugin GetPreferredAllocation rpc failed with err: "
         "rpc error: code = Unknown desc = no"),
        (lambda plugin: setattr(plugin, "responses", ()),
         "no containers return in allocation response "
         "&AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}"),
        (lambda plugin: plugin.leave(),
         "no healthy devices present; cannot allocate unhealthy devices vendor.com/gpu"),
        (lambda plugin: plugin.send_list(devices("a")),
         "requested number of devices unavailable for vendor.com/gpu. Requested: 2, Available: 1"),
    ],
)  # fmt: skip
def test_refused(change, text):
    kit = Kit()
    plugin = kit.plugin("a", "b", preference=fakes.first)
    change(plugin)
    assert kit.refusal(pod("p", gpu=2)) == failed(text)


def test_an_endpoint_that_stops_while_the_pod_waits():
    # Between the choice and Allocate: the plugin leaves while its preference is asked for.
    kit = Kit()
    kit.plugin("a", resource=NIC)
    plugin = kit.plugin("a", "b", preference=fakes.first)
    plugin.before_answer = lambda call: plugin.leave()
    before = entries(kit.manager.state.ledger)
    with pytest.raises(Refused) as refused:
        kit.manager.admit(pod("p", gpu=1, nic=1))
    assert refused.value.message == failed(
        "requested number of devices unavailable for vendor.com/gpu. Requested: 1, Available: 0"
    )
    assert entries(kit.manager.state.ledger) == before
    kit.manager.self_check()


def test_a_stopped_endpoint():
    # All devices are reused, so nothing has to be free: only Allocate finds it gone.
    kit = Kit()
    plugin = kit.plugin("a")
    spec = pod("p", container("app", gpu=1), init=[container("init", gpu=1)])

    def leave_and_come_back(call):
        if len(plugin.calls) == 1:
            kit.manager.state.clients.clear()

    plugin.before_answer = leave_and_come_back
    with pytest.raises(Refused) as refused:
        kit.manager.admit(spec)
    assert refused.value.message == failed("endpoint plugin.sock has been stopped")
    kit.manager.self_check()
    assert kit.held("p") == {}


def test_one_admission_of_a_pod_at_a_time():
    kit = Kit()
    plugin = kit.plugin("a", "b")
    errors = []

    def again(call):
        plugin.before_answer = lambda call: None
        try:
            kit.manager.admit(pod("p", gpu=1))
        except RequestError as error:
            errors.append(str(error))

    plugin.before_answer = again
    kit.manager.admit(pod("p", gpu=1))
    assert errors == ["pod p is being admitted already: wait for the answer"]
    assert kit.held("p") == {"app": {GPU: ["a"]}}


def test_a_bug_on_the_way_gives_everything_back():
    kit = Kit()
    plugin = kit.plugin("a")
    plugin.before_answer = lambda call: 1 // 0
    before = kit.seen()
    with pytest.raises(ZeroDivisionError) as error:
        kit.manager.admit(pod("p", gpu=1))
    # While the exception lives so do the frames it went through: they must not be needed.
    assert kit.seen() == before, error
    kit.manager.self_check()


def test_admitted_again_asks_nobody():
    kit = Kit()
    plugin = kit.plugin("a", "b")
    kit.manager.admit(pod("p", gpu=1))
    kit.manager.admit(pod("p", gpu=1))
    assert len(plugin.calls) == 1
    assert "changed request for resource" in kit.refusal(pod("p", gpu=2))


@given(
    strategies.inventories | strategies.full_inventories,
    strategies.pod_lists | strategies.light_pod_lists,
    strategies.preferences,
    st.lists(st.sampled_from(["", "", "", "allocate", "prefer", "empty", "bug"]), max_size=8),
    strategies.policies,
    strategies.scopes,
)
def test_a_refused_pod_changes_nothing(lists, pods, preference, faults, policy, scope):
    # Ledger, document, file, capacity and lists are as before whenever a pod is refused, at
    # whichever RPC its plugin failed; and what is admitted is in the file.
    kit = Kit(
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
        plugin.register(kit.manager.plugins)
        plugin.send_list(rows)
    for spec in pods:
        before = kit.seen()
        try:
            kit.manager.admit(spec)
        except (Refused, ZeroDivisionError) as error:
            event(type(error).__name__)
            assert kit.seen() == before
        else:
            event("admitted")
            assert kit.store.data is None or kit.store.data == kit.manager.state._document.render()
        kit.manager.self_check()


def misbehave(plugin: FakePlugin, call: fakes.Call, faults: list[str]) -> None:
    fault = faults.pop(0) if faults else ""
    plugin.responses = () if fault == "empty" else (b"",)
    if fault == "bug":
        raise ZeroDivisionError
    if fault == "allocate" and call.method == fakes.ALLOCATE:
        raise UNKNOWN
    if fault == "prefer" and call.method == fakes.GET_PREFERRED_ALLOCATION:
        raise UNKNOWN


# -- what happens while a plugin is asked ------------------------------------------------


def test_another_pod_admitted_meanwhile():
    kit = Kit()
    plugin = kit.plugin("a", "b", "c", preference=fakes.first)

    def admit_another(call):
        plugin.before_answer = lambda call: None
        kit.manager.admit(pod("q", gpu=2))

    plugin.before_answer = admit_another
    kit.manager.admit(pod("p", gpu=1))
    assert (kit.held("p"), kit.held("q")) == (
        {"app": {GPU: ["c"]}},
        {"app": {GPU: ["a", "b"]}},
    )
    kit.manager.self_check()


def test_a_list_that_changes_meanwhile():
    kit = Kit()
    plugin = kit.plugin("a", "b", preference=fakes.first)

    def lose_a(call):
        plugin.before_answer = lambda call: None
        plugin.send_list(devices("b", "c"))

    plugin.before_answer = lose_a
    kit.manager.admit(pod("p", gpu=2))
    assert kit.held("p") == {"app": {GPU: ["b", "c"]}}


def test_a_promoted_plugin_answers_instead():
    # The newest leaves while it is asked for its preference: the older one allocates.
    kit = Kit()
    old = kit.plugin("a", "b", name="old.sock")
    new = kit.plugin("a", "b", name="new.sock", preference=fakes.first)
    new.before_answer = lambda call: new.leave()
    kit.manager.admit(pod("p", gpu=1))
    assert [call.method for call in old.calls] == ["Allocate"]
    assert [call.method for call in new.calls] == ["GetPreferredAllocation"]


def test_a_pod_that_is_released_while_it_is_admitted_holds_nothing_in_the_end():
    kit = Kit()
    plugin = kit.plugin("a")
    plugin.before_answer = lambda call: kit.manager.release(PodUid("p"))
    with pytest.raises(Refused):
        kit.manager.admit(pod("p", gpu=1))
    assert kit.held("p") == {}
    plugin.before_answer = lambda call: None
    kit.manager.admit(pod("q", gpu=1))
    kit.manager.self_check()


# -- the checkpoint ----------------------------------------------------------------------


class FullDisk(MemoryStore):
    """A store that can run full."""

    full = False

    def write(self, data: bytes) -> None:
        if self.full:
            raise checkpoint.CheckpointWriteError("the file", "no space left on device")
        super().write(data)


def full_disk() -> Kit:
    return Kit(store=FullDisk())


def test_a_policy_without_hints_keeps_no_affinities():
    kit = Kit()
    kit.plugin("a")
    kit.manager.admit(pod("p", gpu=1))
    assert kit.manager._affinities == {}


def test_a_checkpoint_that_cannot_be_written_refuses_the_pod():
    kit = full_disk()
    kit.plugin("a", "b")
    kit.manager.admit(pod("first", gpu=1))
    kit.store.full = True
    message = kit.refusal(pod("p", gpu=1))
    assert message.startswith("Allocate failed due to failed to write checkpoint file ")
    assert "no space left on device" in message and message.endswith(", which is unexpected")
    assert kit.kinds(EventKind.CHECKPOINT_FAILED) == [EventKind.CHECKPOINT_FAILED]
    assert PodUid("p") not in kit.manager._affinities
    kit.manager.self_check()
    kit.store.full = False
    kit.manager.admit(pod("p", gpu=1))
    assert kit.held("p") == {"app": {GPU: ["b"]}}


def test_a_list_is_taken_even_if_it_cannot_be_written():
    kit = full_disk()
    plugin = kit.plugin("a")
    kit.store.full = True
    plugin.send_list(devices("a", "b"))
    assert kit.manager.capacity().capacity == {GPU: 2}
    assert kit.kinds(EventKind.CHECKPOINT_FAILED) == [EventKind.CHECKPOINT_FAILED]
    kit.store.full = False
    plugin.send_list(devices("a", "b", "c"))
    assert checkpoint.loads(kit.store.data).registered_devices == {GPU: ("a", "b", "c")}


def test_written_only_after_changes():
    kit = Kit()
    plugin = FakePlugin(GPU)
    plugin.register(kit.manager.plugins)
    plugin.send_list(devices("a", "b"))
    assert kit.store.writes == 1
    plugin.send_list(devices("b", "a"))  # the same list in another order
    kit.manager.capacity()
    kit.manager.release(PodUid("nobody"))
    assert kit.store.writes == 1
    kit.manager.admit(pod("p", gpu=1))
    assert kit.store.writes == 2
    kit.manager.admit(pod("p", gpu=1))
    kit.manager.admit(pod("without"))
    assert kit.store.writes == 2
    plugin.send_list([device("a"), device("b", health="Unhealthy")])
    assert kit.store.writes == 3
    kit.manager.release(PodUid("p"))
    kit.manager.release(PodUid("p"))
    assert kit.store.writes == 4
    plugin.leave()
    assert kit.store.writes == 5


def test_a_resource_without_devices_is_written_down_once_it_was_listed():
    # After a restart it is known again: a pod that asks for it is refused, not run without.
    kit = Kit()
    plugin = FakePlugin(GPU)
    plugin.register(kit.manager.plugins)
    assert kit.store.writes == 0
    plugin.send_list([])
    plugin.send_list([])
    assert kit.store.writes == 1
    assert checkpoint.loads(kit.store.data).registered_devices == {GPU: ()}


def test_one_write_for_several_released_pods():
    # Q10: what is deleted leaves the file, at once and once.
    kit = Kit()
    kit.plugin("a", "b")
    kit.manager.admit(pod("p", gpu=1))
    kit.manager.admit(pod("q", gpu=1))
    writes = kit.store.writes
    kit.manager.release(PodUid("p"), PodUid("q"))
    assert kit.store.writes == writes + 1
    assert checkpoint.loads(kit.store.data).entries is None


def test_a_failed_pod_is_freed_before_the_next_allocation():
    kit = Kit()
    kit.plugin("a")
    kit.manager.admit(pod("p", gpu=1))
    kit.manager.deactivate(PodUid("p"))
    assert kit.held("p") == {"app": {GPU: ["a"]}}
    kit.manager.admit(pod("q", gpu=1))
    assert (kit.held("p"), kit.held("q")) == ({}, {"app": {GPU: ["a"]}})


# -- restart -----------------------------------------------------------------------------


def restarted(kit: Kit, settings: Settings | None = None) -> Kit:
    after = Kit(settings)
    after.manager.restore(checkpoint.loads(kit.store.data))
    return after


@given(
    strategies.inventories | strategies.full_inventories,
    strategies.pod_lists | strategies.light_pod_lists,
    strategies.preferences,
)
def test_restart(lists, pods, preference):
    # The checkpoint's text gives the same ledger; once the plugins have listed again, the
    # same bytes.
    kit = Kit()
    for resource, rows in lists.items():
        plugin = FakePlugin(resource, preference)
        plugin.register(kit.manager.plugins)
        plugin.send_list(rows)
    for spec in pods:
        try:
            kit.manager.admit(spec)
        except Refused:
            kit.manager.release(spec.uid)
    if kit.store.data is None:
        return
    again = restarted(kit)
    assert entries(again.manager.state.ledger) == entries(kit.manager.state.ledger)
    again.manager.self_check()
    counts = again.manager.capacity()
    assert set(counts.capacity.values()) <= {0}
    for resource, rows in lists.items():
        plugin = FakePlugin(resource)
        plugin.register(again.manager.plugins)
        plugin.send_list(rows)
    assert again.manager.state._document.render() == kit.manager.state._document.render()
    event(f"{len(kit.manager.pods())} pods held devices")


def test_after_a_restart_resources_are_known_and_empty():
    kit = Kit()
    kit.plugin("a", "b")
    kit.manager.admit(pod("p", gpu=1))
    again = restarted(kit)
    counts = again.manager.capacity()
    assert (counts.capacity, counts.allocatable, counts.removed) == ({GPU: 0}, {GPU: 0}, ())
    assert again.manager.is_known(GPU) and not again.manager.is_known(NIC)
    again.clock.advance(300.0)
    assert again.manager.capacity().removed == ()
    again.clock.advance(0.5)
    assert again.manager.capacity().removed == (GPU,)
    # What is held stays, and makes the resource one of ours.
    assert again.manager.is_known(GPU)


def test_running_containers_need_nothing_until_sources_are_ready():
    kit = Kit()
    kit.plugin("a", "b")
    kit.manager.admit(pod("p", gpu=1))
    kit.manager.admit(pod("q", gpu=1))
    again = restarted(kit)
    assert not again.manager.is_sources_ready
    running = Situation(sources_ready=False, running=frozenset({ContainerName("app")}))
    again.manager.admit(pod("p", gpu=1), running)
    with pytest.raises(Refused, match="no healthy devices present"):
        again.manager.admit(pod("q", gpu=1), Situation(sources_ready=False))
    again.manager.deactivate(PodUid("q"))
    with pytest.raises(Refused):
        again.manager.admit(pod("r", gpu=1))
    # Nothing is freed before all pods are known.
    assert again.manager.pods() == {"p", "q"}
    again.manager.sources_ready(frozenset({PodUid("p")}))
    assert again.manager.pods() == {"p"}
    assert again.manager.is_sources_ready
    assert [entry.pod_uid for entry in checkpoint.loads(again.store.data).entries] == ["p"]


def test_without_pods_sources_are_ready_at_once():
    kit = Kit()
    kit.plugin("a")
    assert restarted(kit).manager.is_sources_ready


# -- plugins -----------------------------------------------------------------------------


def counts(kit: Kit) -> tuple[dict[str, int], dict[str, int]]:
    found = kit.manager.capacity()
    return dict(found.capacity), dict(found.allocatable)


def test_each_list_replaces_the_one_before():
    kit = Kit()
    plugin = kit.plugin("a", "b", "b")
    assert counts(kit) == ({GPU: 2}, {GPU: 2})
    plugin.send_list([device("a", health="Odd"), device("c")])
    assert counts(kit) == ({GPU: 2}, {GPU: 1})
    plugin.leave()
    assert counts(kit) == ({GPU: 2}, {GPU: 0})
    assert plugin.closed


def test_a_list_that_fails_at_once():
    kit = Kit()
    plugin = FakePlugin(GPU)
    plugin.register(kit.manager.plugins)
    assert counts(kit) == ({GPU: 0}, {GPU: 0})
    plugin.leave()
    assert counts(kit) == ({GPU: 0}, {GPU: 0})


def test_late_events_of_a_replaced_plugin():
    # Q1, Q2, Q3
    kit = Kit()
    old = kit.plugin("a", "b")
    new = kit.plugin("a", "b", "c")
    assert old.closed and not new.closed
    assert kit.kinds(EventKind.REPLACED) == [EventKind.REPLACED]
    before = kit.seen()
    old.send_list(devices("z"))
    old.leave()
    old.leave()
    kit.manager.plugins.update(EndpointId(999), Columns.of(devices("z")))
    kit.manager.plugins.disconnect(EndpointId(999), "never there")
    assert kit.seen() == before
    assert kit.kinds(EventKind.STREAM_ENDED) == []
    kit.manager.admit(pod("p", gpu=3))
    assert len(new.calls) == 1 and old.calls == []


def test_a_rolling_upgrade_does_not_dip():
    kit = Kit()
    old = kit.plugin("a", "b", name="old.sock")
    new = FakePlugin(GPU)
    new.register(kit.manager.plugins, "new.sock")
    assert counts(kit) == ({GPU: 2}, {GPU: 2})
    new.send_list(devices("a", "b"))
    old.leave()
    assert counts(kit) == ({GPU: 2}, {GPU: 2})
    assert kit.kinds(EventKind.PROMOTED) == []
    kit.manager.admit(pod("p", gpu=1))
    assert len(new.calls) == 1


def test_a_rolling_upgrade_that_fails_is_rolled_back():
    kit = Kit()
    old = kit.plugin("a", "b", name="old.sock")
    new = kit.plugin("a", name="new.sock")
    assert counts(kit) == ({GPU: 1}, {GPU: 1})
    new.leave()
    assert counts(kit) == ({GPU: 2}, {GPU: 2})
    assert kit.kinds(EventKind.PROMOTED) == [EventKind.PROMOTED]
    kit.manager.admit(pod("p", gpu=1))
    assert len(old.calls) == 1
    old.leave()
    assert counts(kit) == ({GPU: 2}, {GPU: 0})


def test_the_grace_time():
    kit = Kit()
    plugin = kit.plugin("a")
    plugin.leave()
    writes = kit.store.writes
    kit.clock.advance(300.0)
    assert kit.manager.capacity().removed == ()
    assert counts(kit) == ({GPU: 1}, {GPU: 0})
    kit.clock.advance(0.001)
    found = kit.manager.capacity()
    assert (found.capacity, found.allocatable, found.removed) == ({}, {}, (GPU,))
    assert kit.manager.capacity().removed == ()
    assert kit.kinds(EventKind.ENDPOINT_EXPIRED) == [EventKind.ENDPOINT_EXPIRED]
    assert kit.store.writes == writes + 1
    assert checkpoint.loads(kit.store.data).registered_devices == {}
    assert not kit.manager.is_known(GPU)


def test_the_grace_time_is_a_setting():
    kit = Kit(Settings(grace_period=5.0))
    kit.plugin("a").leave()
    kit.clock.advance(5.5)
    assert kit.manager.capacity().removed == (GPU,)


def test_a_plugin_that_comes_back_in_time():
    kit = Kit()
    kit.plugin("a").leave()
    kit.clock.advance(299.0)
    kit.plugin("a", "b")
    kit.clock.advance(299.0)
    assert counts(kit) == ({GPU: 2}, {GPU: 2})


def test_a_suspect_list_says_so():
    kit = Kit()
    kit.plugin("a", "a", "")
    messages = [each.message for each in kit.manager.events.recent(EventKind.LIST_SUSPECT)]
    assert messages == [
        "vendor.com/gpu: 1 device ids are listed twice: the last one counts",
        "vendor.com/gpu: a device has an empty id",
    ]


# -- health ------------------------------------------------------------------------------


def reported(kit: Kit) -> list[str]:
    found = []
    while not kit.manager.health_updates.empty():
        found.append(kit.manager.health_updates.get_nowait())
    return found


def test_a_held_device_that_changes_health_reports_its_pod():
    # Q8: the pod that holds the device of this resource, not of another with the same id.
    kit = Kit()
    gpu = kit.plugin("a", "b")
    kit.plugin("a", resource=NIC)
    kit.manager.admit(pod("p", gpu=1))
    kit.manager.admit(pod("q", nic=1))
    gpu.send_list([device("a"), device("b", health="Unhealthy")])
    assert reported(kit) == []
    gpu.send_list([device("a", health="Unhealthy"), device("b", health="Unhealthy")])
    assert reported(kit) == ["p"]
    gpu.send_list(devices("a", "b"))
    assert reported(kit) == ["p"]
    gpu.send_list(devices("b"))
    assert reported(kit) == ["p"]
    gpu.leave()
    assert reported(kit) == []


def test_a_full_queue_drops_the_report_with_an_event():
    kit = Kit(Settings(health_queue_size=2))
    gpu = kit.plugin("a", "b", "c")
    for uid in "pqr":
        kit.manager.admit(pod(uid, gpu=1))
    gpu.leave()
    assert len(reported(kit)) == 2
    dropped = kit.manager.events.recent(EventKind.HEALTH_DROPPED)
    assert len(dropped) == 1 and dropped[0].is_warning


# -- containers --------------------------------------------------------------------------


def test_pre_start():
    kit = Kit()
    gpu = kit.plugin("a", "b", pre_start_required=True)
    nic = kit.plugin("n", resource=NIC)
    kit.manager.admit(pod("p", container("x", gpu=2, nic=1), container("y")))
    for plugin in (gpu, nic):
        plugin.calls.clear()
    kit.manager.pre_start(PodUid("p"), ContainerName("x"))
    kit.manager.pre_start(PodUid("p"), ContainerName("y"))
    assert gpu.calls == [fakes.Call("PreStartContainer", ("a", "b"))]
    assert nic.calls == []


def test_pre_start_fails():
    kit = Kit()
    gpu = kit.plugin("a", pre_start_required=True)
    kit.manager.admit(pod("p", gpu=1))
    gpu.pre_start_error = RpcError("DeadlineExceeded", "context deadline exceeded")
    with pytest.raises(AllocationError) as error:
        kit.manager.pre_start(PodUid("p"), ContainerName("app"))
    assert str(error.value) == (
        "device plugin PreStartContainer rpc failed with err: "
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    )
    gpu.leave()
    with pytest.raises(AllocationError, match=r"endpoint plugin.sock has been stopped"):
        kit.manager.pre_start(PodUid("p"), ContainerName("app"))


def test_allocating_at_container_start():
    kit = Kit()
    spec = pod("p", container("x", gpu=1), container("y", gpu=1))
    kit.manager.admit(spec)
    assert kit.held("p") == {}
    kit.plugin("a", "b")
    kit.manager.allocate_now(spec, spec.containers[1], is_init=False)
    assert kit.held("p") == {"y": {GPU: ["a"]}}
    kit.manager.allocate_now(spec, spec.containers[0], is_init=False)
    assert kit.held("p") == {"x": {GPU: ["b"]}, "y": {GPU: ["a"]}}
    assert len(checkpoint.loads(kit.store.data).entries) == 2
    with pytest.raises(Refused, match="Requested: 1, Available: 0"):
        kit.manager.allocate_now(pod("q", gpu=1), container("app", gpu=1), is_init=False)


# -- settings and end ----------------------------------------------------------------------


def test_a_shuffle_is_repeatable_and_chooses_free_devices():
    # Q22
    def chosen(seed: int | None) -> list[dict[str, dict[str, list[str]]]]:
        kit = Kit(Settings(shuffle_seed=seed))
        kit.plugin(*(f"d{n}" for n in range(10)))
        for uid in "pqr":
            kit.manager.admit(pod(uid, gpu=3))
        kit.manager.self_check()
        return [kit.held(uid) for uid in "pqr"]

    assert chosen(7) == chosen(7)
    in_order = chosen(None)
    assert in_order[0] == {"app": {GPU: ["d0", "d1", "d2"]}}
    assert any(chosen(seed) != in_order for seed in range(3))


def test_closed():
    kit = Kit()
    plugin = kit.plugin("a")
    kit.manager.close()
    assert plugin.closed
    writes = kit.store.writes
    plugin.send_list(devices("a", "b"))
    plugin.leave()
    with pytest.raises(PluginError, match="stopping"):
        FakePlugin(NIC).register(kit.manager.plugins)
    with pytest.raises(Refused, match=r"endpoint plugin.sock has been stopped"):
        kit.manager.admit(pod("p", gpu=1))
    assert kit.store.writes == writes
    assert counts(kit) == ({GPU: 1}, {GPU: 1})


def test_a_fake_plugin_that_never_registered():
    with pytest.raises(ValueError, match="has not registered"):
        FakePlugin("vendor.com/gpu").send_list([])


# -- threads -------------------------------------------------------------------------------


def test_eight_threads():
    # Whoever admits at the same time: no device has two pods, all that is left fits, and
    # the file says the same.
    kit = Kit()
    ids = [f"d{n:02}" for n in range(40)]
    rows = [device(id_, n % 2) for n, id_ in enumerate(ids)]
    for resource in (GPU, NIC):
        plugin = FakePlugin(resource, fakes.last)
        plugin.register(kit.manager.plugins)
        plugin.send_list(rows)
    together = threading.Barrier(8)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        together.wait()
        try:
            for turn in range(5):
                uid = f"{number}-{turn}"
                kit.manager.admit(pod(uid, gpu=1, nic=1))
                if turn % 2:
                    kit.manager.release(PodUid(uid))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    kit.manager.self_check()
    assert len(kit.manager.pods()) == 24
    given_out = [
        (resource, id_)
        for uid in kit.manager.pods()
        for by_resource in kit.held(uid).values()
        for resource, held in by_resource.items()
        for id_ in held
    ]
    assert len(given_out) == len(set(given_out)) == 48
    saved = checkpoint.loads(kit.store.data)
    assert {entry.pod_uid for entry in saved.entries} == kit.manager.pods()


def test_eight_threads_for_too_few_devices():
    # As many pods as there are devices get one each; the others are refused, none waits.
    kit = Kit()
    kit.plugin(*(f"d{n}" for n in range(5)), preference=fakes.first)
    together = threading.Barrier(8)
    answers: list[bool] = []

    def work(number: int) -> None:
        together.wait()
        try:
            kit.manager.admit(pod(f"p{number}", gpu=1))
        except Refused:
            answers.append(False)
        else:
            answers.append(True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 3 + [True] * 5
    assert len(kit.manager.pods()) == 5
    kit.manager.self_check()
