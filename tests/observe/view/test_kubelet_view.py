"""Views of a kubelet: their contents, and the reuse of unchanged parts."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.errors import RequestError, RpcError
from devicemanager.core.pods import Pod
from devicemanager.observe.view import (
    ContainerKind,
    DeviceState,
    Holder,
    KubeletView,
    Stream,
    delta,
)
from devicemanager.observe.view.plugins import LATEST_CALLS
from tests import strategies
from tests.helpers import container, pod
from tests.node import GPU, Node, rows
from tests.observe.view.fake_node import ViewedNode, view_of

FREE, ALLOCATED, ALLOCATING = DeviceState.FREE, DeviceState.ALLOCATED, DeviceState.ALLOCATING
UNHEALTHY, GONE = DeviceState.UNHEALTHY, DeviceState.GONE


def the_states(view: KubeletView) -> dict[str, DeviceState]:
    (resource,) = view.refresh().resources
    return dict(zip(resource.layout.ids, resource.states, strict=True))


def test_device_is_free_allocated_or_unhealthy():
    node = Node()
    node.plugin(rows("0101", d3="Unhealthy"))
    node.admit(pod("p", gpu=1))

    assert the_states(view_of(node)) == {"d0": ALLOCATED, "d1": FREE, "d2": FREE, "d3": UNHEALTHY}


def test_device_has_holders_numa_nodes_and_health():
    node = Node()
    node.plugin(rows("b1", d1="Overheated"))
    node.admit(pod("p", gpu=1))

    (resource,) = view_of(node).refresh().resources

    first, second = resource.device(0), resource.device(1)
    assert first.holders == (Holder("p", "app"),)
    assert (first.numa, first.health) == ((0, 1), "Healthy")
    assert (second.state, second.health, second.holders) == (UNHEALTHY, "Overheated", ())


def test_device_on_several_nodes_is_under_the_lowest():
    node = Node()
    node.plugin(rows("1b-0"))

    (resource,) = view_of(node).refresh().resources

    assert resource.layout.by_node == {0: (1, 3), 1: (0,), None: (2,)}


def test_allocated_device_that_is_no_longer_listed_is_gone():
    node = Node()
    plugin = node.plugin(rows("01"))
    node.admit(pod("p", gpu=2))
    view = view_of(node)
    before = view.refresh()

    plugin.send_list(rows("0"))

    assert the_states(view) == {"d0": ALLOCATED, "d1": GONE}
    assert view.refresh().resources[0].device(1).numa == (1,)
    assert [each.numbers for each in delta(before, view.refresh()).devices] == [(1,)]


def test_devices_of_disconnected_plugin_are_gone_and_still_allocated():
    node = Node()
    plugin = node.plugin(rows("01"))
    node.admit(pod("p", gpu=1))
    view = view_of(node)

    plugin.leave()

    (resource,) = view.refresh().resources
    assert resource.states == (GONE, GONE)
    assert resource.holders == {"d0": (Holder("p", "app"),)}
    assert not resource.connected
    assert view.refresh().plugins[0].stream is Stream.ENDED


def test_device_is_allocating_during_allocate_call():
    node = Node()
    plugin = node.plugin(rows("01"))
    view = view_of(node)
    seen = []
    plugin.before_answer = lambda _: seen.append(view.refresh().resources[0])

    node.admit(pod("p", gpu=1))

    assert [resource.states for resource in seen] == [(ALLOCATING, FREE)]
    assert seen[0].holders == {"d0": (Holder("p"),)}
    assert the_states(view) == {"d0": ALLOCATED, "d1": FREE}


def test_rejected_admission_leaves_no_device_allocating():
    node = Node()
    plugin = node.plugin(rows("01"), allocate_error=RpcError("Unknown", "no"))
    view = view_of(node)
    plugin.before_answer = lambda _: view.refresh()

    node.admit(pod("p", gpu=1))

    assert set(the_states(view).values()) == {FREE}
    assert view.refresh().resources[0].holders == {}


def test_leaked_device_has_no_pod():
    node = Node(quirks={"Q4"})
    node.plugin(rows("00"), responses=())

    node.admit(pod("p", gpu=1))

    (resource,) = view_of(node).refresh().resources
    assert resource.states == (ALLOCATED, FREE)
    assert resource.holders == {"d0": (Holder(""),)}


def test_restored_resource_awaits_its_plugin():
    node = Node()
    node.plugin(rows("01"))
    node.admit(pod("p", gpu=1))
    node.new_process()

    view = view_of(node)

    (plugin,) = view.refresh().plugins
    assert plugin.stream is Stream.AWAITED
    assert the_states(view) == {"d0": GONE}


def test_second_plugin_of_resource_is_on_standby():
    node = Node(kubelet_version="1.37")
    node.plugin(rows("0"), name="old.sock")
    node.plugin(rows("0"), name="new.sock")

    plugins = view_of(node).refresh().plugins

    assert [(each.endpoint, each.stream) for each in plugins] == [
        ("new.sock", Stream.SERVING),
        ("old.sock", Stream.STANDBY),
    ]


def test_plugin_has_latest_calls_and_calls_in_progress():
    node = Node()
    node.plugin(rows("0"))
    kubelet = ViewedNode(node)
    view, recorder = KubeletView(kubelet), kubelet.calls.recorder(GPU, "plugin.sock")
    before = view.refresh()
    for _ in range(LATEST_CALLS + 3):
        recorder.begin("Allocate").answered(b"")
    call = recorder.begin("PreStartContainer")

    (plugin,) = view.refresh().plugins
    assert [call.number for call in plugin.calls] == list(range(4, LATEST_CALLS + 4))
    assert [call.rpc for call in plugin.in_progress] == ["PreStartContainer"]
    assert delta(before, view.refresh()).plugins == (plugin,)

    call.failed("Unavailable", "disconnected")
    (plugin,) = view.refresh().plugins
    assert (plugin.calls[-1].code, plugin.calls[-1].message) == ("Unavailable", "disconnected")


def test_pod_shows_its_containers_in_order_with_devices():
    node = Node()
    node.plugin(rows("0000"))
    init = [container("prepare", gpu=1), container("helper", restartable=True)]
    node.admit(pod("p", container("app", gpu=2), init=init), start=True)

    (shown,) = view_of(node).refresh().pods

    kinds = [(each.name, each.kind, each.state) for each in shown.all_containers]
    assert kinds == [
        ("prepare", ContainerKind.INIT, "terminated"),
        ("helper", ContainerKind.SIDECAR, "running"),
        ("app", ContainerKind.APP, "running"),
    ]
    (app,) = shown.containers
    assert (app.devices, app.wanted_devices) == ({GPU: ("d0", "d1")}, {GPU: 2})
    assert shown.devices == {"app": app.devices, "prepare": {GPU: ("d0",)}}
    assert (shown.title, shown.phase) == ("default/p", "Running")


def test_restarted_container_changes_the_view():
    node = Node()
    node.admit(pod("p"), start=True)
    view = view_of(node)
    before = view.refresh()

    node.workers.life.exited("p", "app", 3, "")

    (shown,) = delta(before, view.refresh()).pods
    assert (shown.containers[0].state, shown.containers[0].restart_count) == ("running", 1)


def test_rejected_pod_shows_the_reason():
    node = Node()
    node.plugin(rows("0"))
    node.admit(pod("p", gpu=2))

    (shown,) = view_of(node).refresh().pods

    assert (shown.phase, shown.reason, shown.admitted) == (
        "Failed",
        "UnexpectedAdmissionError",
        False,
    )
    assert "requested: 2, available: 1" in shown.message.lower()


def test_pod_shows_the_devices_of_its_claims():
    node = Node()
    view = view_of(node)
    given = pod("p", container("app"))
    node.admit(attrs.evolve(given, resource_claims={}))
    node.pods.records()[0].pod = attrs.evolve(given, resource_claims={"claim": "c"})

    (shown,) = view.refresh().pods

    assert shown.containers[0].claim_devices == {"claim": ("pool/a",)}


def test_stopped_kubelet_has_pods_and_no_devices():
    node = Node()
    node.plugin(rows("0"))
    node.admit(pod("p", gpu=1))
    kubelet = ViewedNode(node)
    view = KubeletView(kubelet)
    before = view.refresh()

    kubelet.stopped = True

    after = view.refresh()
    assert (after.serving, after.resources, after.plugins) == (False, (), ())
    assert [each.uid for each in after.pods] == ["p"]
    changes = delta(before, after)
    assert (changes.node, changes.removed_resources, changes.plugins) == (True, (GPU,), ())


def test_numa_nodes_come_from_machine_and_devices():
    node = Node(numa=None)
    node.plugin(rows("1"))
    assert view_of(node).refresh().numa_nodes == (1,)
    assert view_of(Node()).refresh().numa_nodes == (0, 1)


def test_unchanged_node_has_the_same_view():
    node = Node()
    node.plugin(rows("01"))
    node.admit(pod("p", gpu=1))
    view = view_of(node)

    assert view.refresh() is view.refresh()


def test_only_changed_parts_are_new_objects():
    node = Node()
    node.plugin(rows("01"))
    node.plugin(rows("01"), resource="vendor.com/nic", name="nic.sock")
    node.admit(pod("p", gpu=1))
    view = view_of(node)
    before = view.refresh()

    node.admit(pod("q", gpu=1))

    after = view.refresh()
    assert after.revision == before.revision + 1
    assert after.pods[0] is before.pods[0]
    assert after.plugins is before.plugins
    assert after.resources[0].layout is before.resources[0].layout
    assert after.resources[1] is before.resources[1]


def test_delta_contains_changed_devices():
    node = Node()
    plugin = node.plugin(rows("0101"))
    view = view_of(node)
    before = view.refresh()

    node.admit(pod("p", gpu=1))
    plugin.send_list(rows("0101", d3="Unhealthy"))

    changes = delta(before, view.refresh())
    assert [each.numbers for each in changes.devices] == [(0, 3)]
    assert [each.uid for each in changes.pods] == ["p"]
    assert {"admitted", "devices-updated"} <= {event.kind for event in changes.events}
    assert (changes.resources, changes.plugins, changes.node) == ((), None, False)


def test_delta_removes_terminated_pod():
    node = Node()
    node.plugin(rows("0"))
    node.admit(pod("p", gpu=1))
    view = view_of(node)
    before = view.refresh()

    node.terminate("p")

    changes = delta(before, view.refresh())
    assert (changes.removed_pods, changes.devices[0].numbers) == (("p",), (0,))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("list"), st.sampled_from(strategies.RESOURCES), strategies.device_lists),
        st.tuples(st.just("leave"), st.sampled_from(strategies.RESOURCES)),
        st.tuples(st.just("admit"), st.sampled_from("pqrs").flatmap(strategies.light_pods)),
        st.tuples(st.just("terminate"), st.sampled_from("pqrs")),
        st.tuples(st.just("refresh")),
    ),
    max_size=14,
)


@given(steps)
def test_refreshed_view_equals_a_new_view(steps):
    """Reused parts are never out of date."""
    node, plugins = Node(), {}
    kubelet = ViewedNode(node)
    view = KubeletView(kubelet)
    for step in steps:
        before = view.refresh()
        match step:
            case ("list", resource, rows):
                if resource not in plugins:
                    plugins[resource] = node.plugin(resource=resource, name=f"{resource[-3:]}.sock")
                plugins[resource].send_list(rows)
            case ("leave", resource) if resource in plugins:
                plugins.pop(resource).leave()
            case ("admit", Pod() as pod):
                try:
                    node.admit(pod, start=True)
                except RequestError:
                    continue  # already admitted
            case ("terminate", uid) if uid in kubelet.pod_store.uids():
                node.terminate(uid)
        after, fresh = view.refresh(), KubeletView(kubelet).refresh()
        assert contents(after) == contents(fresh)
        assert_delta_leads(before, after)


def contents(view):
    resources = [
        (
            *(r.name, r.connected, r.capacity, r.allocatable, r.states, r.health, r.holders),
            *(r.layout.ids, r.layout.numa, r.layout.by_node),
        )
        for r in view.resources
    ]
    return resources, view.plugins, view.pods, view.events, view.numa_nodes


def assert_delta_leads(before, after):
    """Parts that are not in the delta are equal in both views."""
    changes = delta(before, after)
    for devices in changes.devices:
        old = next(each for each in before.resources if each.name == devices.resource.name)
        for number in range(len(old.states)):
            is_same = old.device(number) == devices.resource.device(number)
            assert is_same or number in devices.numbers
    shown = {each.uid: each for each in before.pods if each.uid not in changes.removed_pods}
    shown |= {each.uid: each for each in changes.pods}
    assert shown == {each.uid: each for each in after.pods}
