"""The document that the page shows, made from a view of the node."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.podstatus.phase import Phase
from devicemanager.kubelet.pods.pod_info import ContainerInfo, PodInfo
from devicemanager.observe.view.values import (
    DeviceState,
    Holder,
    LastCall,
    Layout,
    NodeView,
    PluginView,
    ResourceView,
    Stream,
)
from devicemanager.observe.web.page.document import Documents
from tests.observe.dra import status

F, H, U, G = DeviceState.FREE, DeviceState.ALLOCATED, DeviceState.UNHEALTHY, DeviceState.GONE


def layout(*numa):
    by_node = {}
    for number, nodes in enumerate(numa):
        by_node.setdefault(min(nodes) if nodes else None, []).append(number)
    ids = tuple(f"d{number}" for number in range(len(numa)))
    return Layout(ids, numa, {node: tuple(numbers) for node, numbers in by_node.items()})


def resource(name, where, states, holders=None, health=None):
    health = health or tuple("Unhealthy" if state is U else "Healthy" for state in states)
    return ResourceView(name, True, len(states), 0, where, tuple(states), health, holders or {})


def pod(uid, **more):
    return PodInfo(uid=uid, name="p", namespace="ns", **more)


def view_of(*resources, **more):
    return NodeView(1, "here", "node", "1.34", resources=resources, **more)


def test_device_row_has_state_area_and_holders():
    where = layout((0,), (1, 0), None, (0,))
    given = resource("r", where, [F, H, G, U], {"d1": (Holder("uid", "main"),)})
    table = Documents().of(view_of(given), ())["devices", "r"]
    assert table == {
        "d0": ["free", 0, []],
        "d1": ["allocated", 0, [("uid", "main")], "Healthy", (1, 0)],
        "d2": ["gone", None, []],
        "d3": ["unhealthy", 0, []],
    }


def test_device_row_shows_unknown_health():
    given = resource("r", layout((0,)), [U], health=("Sick",))
    assert Documents().of(view_of(given), ())["devices", "r"]["d0"][3:] == ["Sick", (0,)]


def test_unchanged_tables_are_the_same_objects():
    documents = Documents()
    a, b = resource("a", layout((0,)), [F]), resource("b", layout((0,)), [F])
    before = documents.of(view_of(a, b, pods=(pod("u"),)), ())
    other = attrs.evolve(b, states=(U,))
    now = documents.of(view_of(a, other, pods=(pod("u"),)), ())
    assert now["devices", "a"] is before["devices", "a"]
    assert now["devices", "b"]["d0"][0] == "unhealthy"
    assert (
        before["devices", "b"]["d0"][0] == "free"
    )  # readers of the earlier document still have it


def test_each_registration_of_resource_has_a_row():
    serving = PluginView("r", "new.sock", Stream.SERVING, 2, True, False)
    standby = PluginView("r", "old.sock", Stream.STANDBY, 1, False, False)
    table = Documents().of(view_of(plugins=(serving, standby)), ())["plugins", ""]
    assert [row["endpoint"] for row in table.values()] == ["new.sock", "old.sock"]


def test_rows_of_pods_and_plugins_have_all_fields():
    container = ContainerInfo(name="main", devices={"r": ("d0",)}, limits={"r": 1})
    train = pod("uid", containers=(container,))
    calls = tuple(LastCall(n, 0.0, "Allocate", "OK", "", 0.1) for n in range(30))
    plugin = PluginView("r", "r.sock", Stream.SERVING, 1, False, True, calls)
    document = Documents().of(view_of(pods=(train,), plugins=(plugin,)), ())
    shown = document["pods", ""]["uid"]
    fields = {each.name for each in attrs.fields(PodInfo)}
    assert shown.keys() == fields - {"schema", "uid"}
    assert shown["containers"][0].keys() == {each.name for each in attrs.fields(ContainerInfo)}
    assert (shown["name"], shown["containers"][0]["devices"]) == ("p", {"r": ("d0",)})
    assert [call["number"] for call in document["plugins", ""]["1 r"]["calls"]] == [*range(20, 30)]


# -- sequences of views ----------------------------------------------------------


@st.composite
def sequences(draw):
    """Views that share unchanged parts, as those of one builder do."""
    names = draw(st.lists(st.sampled_from("abc"), unique=True, min_size=1))
    now = {}
    views = []
    for _ in range(draw(st.integers(1, 6))):
        for name in names:
            match draw(st.sampled_from(["keep", "keep", "states", "layout", "gone"])):
                case "gone":
                    now.pop(name, None)
                case "layout":
                    now[name] = draw(resources(name))
                case "states" if name in now:
                    now[name] = draw(resources(name, now[name].layout))
        tuple_ = tuple(now[name] for name in sorted(now))
        last = views[-1].resources if views else ()
        same = tuple(map(id, last)) == tuple(map(id, tuple_))
        views.append(attrs.evolve(view_of(), resources=last if same else tuple_))
    return views


@st.composite
def resources(draw, name, where=None):
    nodes = st.sampled_from([None, (0,), (1,), (0, 1)])
    where = where or layout(*draw(st.lists(nodes, max_size=5)))
    size = len(where.ids)
    states = draw(st.lists(st.sampled_from([F, H, U]), min_size=size, max_size=size))
    holders = {
        id_: (Holder("u", "c"),) for id_, state in zip(where.ids, states, strict=True) if state is H
    }
    return resource(name, where, states, holders)


@given(sequences())
def test_incremental_document_equals_a_new_one(views):
    documents = Documents()
    for each in views:
        assert documents.of(each, ()) == Documents().of(each, ())


def test_pod_that_changes_back_is_shown_again():
    documents = Documents()
    pending, running = pod("u", phase=Phase.PENDING), pod("u", phase=Phase.RUNNING)
    for each in (pending, running, pending):
        shown = documents.of(view_of(pods=(each,)), ())["pods", ""]["u"]
        assert shown["phase"] == each.phase


@pytest.mark.parametrize("before", [(), (pod("u"),)])
def test_pods_are_added_and_removed(before):
    documents = Documents()
    documents.of(view_of(pods=before), ())
    now = documents.of(view_of(pods=(pod("v"),)), ())
    assert list(now["pods", ""]) == ["v"]


def test_drivers_claims_and_slices_have_rows():
    document = Documents().of(view_of(dra=status()), ())
    (key, driver), *_ = document["drivers", ""].items()
    assert key == f"{driver['driver']} {driver['endpoint']}"
    claim = document["claims", ""]["default/gpu"]
    assert (claim["state"], claim["pods"]) == ("prepared", ("uid-train",))
    assert claim["devices"][0]["cdi_devices"] == ("example.com/gpu=gpu-0",)
    assert document["slices", ""]["slice-1"]["devices"] == ("gpu-0",)
