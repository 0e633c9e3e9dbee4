"""Registered endpoints: which one serves, which list counts, and the grace period."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.endpoints import EndpointInfo, Endpoints, PluginOptions
from devicemanager.core.ids import EndpointId
from tests.helpers import device_list, devices
from tests.strategies import GPU, NIC

GRACE = 300.0
OPTIONS = PluginOptions()


def connect(endpoints: Endpoints, name: str = "a.sock", resource=GPU) -> EndpointId:
    endpoint, _ = endpoints.connect(resource, name, OPTIONS)
    return endpoint.id


def counts(endpoints: Endpoints, resource=GPU) -> tuple[int, int] | None:
    found = endpoints.devices(resource)
    return None if found is None else (found.capacity, found.allocatable)


def test_endpoint_info_is_immutable():
    endpoint = EndpointInfo(EndpointId(1), GPU, "a.sock")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        endpoint.name = "b.sock"


def test_registered_resource_without_a_list():
    endpoints = Endpoints()
    id_ = connect(endpoints)
    # Admissions do not know the resource before the first list (isDevicePluginResource).
    assert counts(endpoints) is None
    assert GPU not in endpoints
    endpoints.update(id_, device_list([]))
    assert counts(endpoints) == (0, 0)
    assert GPU in endpoints and NIC not in endpoints
    assert endpoints.serving(GPU).id == id_
    assert endpoints.is_connected(id_)


def test_unknown_resource():
    endpoints = Endpoints()
    assert endpoints.devices(GPU) is None
    assert endpoints.serving(GPU) is None
    assert list(endpoints.resources()) == []


def test_list_replaces_the_one_before():
    endpoints = Endpoints()
    id_ = connect(endpoints)
    assert endpoints.update(id_, device_list(devices("a", "b")))
    assert endpoints.update(id_, device_list(devices("c")))
    assert counts(endpoints) == (1, 1)


@pytest.mark.parametrize("lists_of_all", [False, True])
def test_list_of_replaced_endpoint_counts_only_with_quirk(lists_of_all):
    endpoints = Endpoints(several=False, lists_of_all=lists_of_all)
    old, new = connect(endpoints), connect(endpoints, "b.sock")
    assert endpoints.update(new, device_list(devices("a")))
    late = device_list(devices("x", "y"))
    assert endpoints.update(old, late) is lists_of_all
    assert counts(endpoints) == ((2, 2) if lists_of_all else (1, 1))
    # The resource was removed, and the other endpoint never existed.
    endpoints.disconnect(new, now=0.0)
    assert endpoints.expire(GRACE + 1, GRACE) == (GPU,)
    assert not endpoints.update(old, late)
    assert not endpoints.update(EndpointId(99), late)


def test_end_of_stream_makes_devices_unallocatable():
    endpoints = Endpoints()
    id_ = connect(endpoints)
    endpoints.update(id_, device_list(devices("a", "b")))
    departure = endpoints.disconnect(id_, now=1.0)
    assert counts(endpoints) == (2, 0)
    assert departure.promoted is None
    assert (departure.before.allocatable, departure.after.allocatable) == (2, 0)
    assert endpoints.serving(GPU) is not None
    assert not endpoints.is_connected(endpoints.serving(GPU).id)
    assert not endpoints.is_connected(id_)


def test_end_of_stream_before_the_first_list():
    endpoints = Endpoints()
    endpoints.disconnect(connect(endpoints), now=1.0)
    assert counts(endpoints) == (0, 0)
    # Also for the next plugin, before it sends a list (seen in 1.36.3).
    connect(endpoints)
    assert counts(endpoints) == (0, 0)


def test_second_end_of_a_stream_has_no_effect():
    endpoints = Endpoints()
    id_ = connect(endpoints)
    assert endpoints.disconnect(id_, now=1.0) is not None
    assert endpoints.disconnect(id_, now=2.0) is None
    assert not endpoints.update(id_, device_list(devices("a")))
    # The second end does not restart the grace period.
    assert endpoints.expire(301.5, GRACE) == (GPU,)


def test_newest_endpoint_serves_and_counts_do_not_drop():
    endpoints = Endpoints()
    old, new = connect(endpoints, "old.sock"), None
    endpoints.update(old, device_list(devices("a", "b")))
    new = connect(endpoints, "new.sock")
    assert counts(endpoints) == (2, 2)
    assert endpoints.serving(GPU).id == new
    assert endpoints.update(new, device_list(devices("a", "b", "c")))
    assert not endpoints.update(old, device_list(devices("a")))
    assert counts(endpoints) == (3, 3)


def test_promoted_endpoint_keeps_its_last_list():
    endpoints = Endpoints()
    old = connect(endpoints, "old.sock")
    endpoints.update(old, device_list(devices("a", "b")))
    new = connect(endpoints, "new.sock")
    endpoints.update(new, device_list(devices("c")))
    endpoints.update(old, device_list(devices("a", "b", "d")))
    departure = endpoints.disconnect(new, now=1.0)
    assert departure.promoted.id == old
    assert counts(endpoints) == (3, 3)
    assert endpoints.expire(1000.0, GRACE) == ()


def test_end_of_older_endpoint_changes_nothing():
    endpoints = Endpoints()
    old, new = connect(endpoints, "old.sock"), connect(endpoints, "new.sock")
    endpoints.update(new, device_list(devices("c")))
    departure = endpoints.disconnect(old, now=1.0)
    assert departure.before is departure.after and departure.promoted is None
    assert departure.before is departure.after
    assert endpoints.serving(GPU).id == new
    assert counts(endpoints) == (1, 1)
    assert endpoints.expire(1000.0, GRACE) == ()


def test_same_socket_replaces_the_older_endpoint():
    # Q2
    endpoints = Endpoints()
    old = connect(endpoints, "a.sock")
    endpoints.update(old, device_list(devices("a")))
    endpoint, replaced = endpoints.connect(GPU, "a.sock", OPTIONS)
    assert [gone.id for gone in replaced] == [old] and not endpoints.is_connected(old)
    assert endpoints.connected() == (endpoint,)
    assert counts(endpoints) == (1, 1)


def test_same_socket_for_another_resource_replaces_nothing():
    endpoints = Endpoints()
    one, two = connect(endpoints, "a.sock", GPU), connect(endpoints, "a.sock", NIC)
    assert [endpoint.id for endpoint in endpoints.connected()] == [one, two]


def test_late_events_of_replaced_endpoint_are_ignored():
    # Q1: neither the late end nor a late list of the old one touches the new one.
    endpoints = Endpoints()
    old = connect(endpoints)
    new = connect(endpoints)
    endpoints.update(new, device_list(devices("a", "b")))
    assert endpoints.disconnect(old, now=1.0) is None
    assert not endpoints.update(old, device_list([]))
    assert counts(endpoints) == (2, 2)


@pytest.mark.parametrize(("after", "gone"), [(0.0, False), (GRACE, False), (GRACE + 0.001, True)])
def test_resource_is_removed_after_the_grace_period(after, gone):
    endpoints = Endpoints()
    id_ = connect(endpoints)
    endpoints.update(id_, device_list(devices("a")))
    endpoints.disconnect(id_, now=1000.0)
    assert endpoints.expire(1000.0 + after, GRACE) == ((GPU,) if gone else ())
    assert (GPU in endpoints) is not gone
    # The last list is still known: hints of a removed resource are empty.
    assert endpoints.last_list(GPU).capacity == 1
    # It is returned only once.
    assert endpoints.expire(1000.0 + after, GRACE) == ()


def test_plugin_without_a_list_leaves_the_last_list_as_it_is():
    endpoints = Endpoints()
    first = connect(endpoints)
    endpoints.update(first, device_list(devices("a")))
    endpoints.disconnect(first, now=0.0)
    endpoints.expire(301.0, GRACE)
    endpoints.disconnect(connect(endpoints), now=302.0)
    assert endpoints.last_list(GPU).capacity == 1
    assert counts(endpoints) == (0, 0)
    endpoints.expire(603.0, GRACE)
    assert endpoints.last_list(GPU).capacity == 1


def test_registration_ends_the_grace_period():
    endpoints = Endpoints()
    endpoints.disconnect(connect(endpoints), now=0.0)
    id_ = connect(endpoints)
    assert endpoints.expire(1000.0, GRACE) == ()
    endpoints.disconnect(id_, now=1000.0)
    assert endpoints.expire(1300.0, GRACE) == ()
    assert endpoints.expire(1300.5, GRACE) == (GPU,)


def test_restored_resource_has_no_devices_and_a_grace_period():
    endpoints = Endpoints()
    endpoints.restore(GPU, now=10.0)
    assert counts(endpoints) == (0, 0)
    assert endpoints.serving(GPU) is not None
    assert not endpoints.is_connected(endpoints.serving(GPU).id)
    assert endpoints.expire(310.0, GRACE) == ()
    assert endpoints.expire(310.5, GRACE) == (GPU,)


def test_restore_does_not_replace_a_connected_plugin():
    endpoints = Endpoints()
    endpoints.update(connect(endpoints), device_list(devices("a")))
    endpoints.restore(GPU, now=0.0)
    assert counts(endpoints) == (1, 1)
    assert endpoints.expire(1000.0, GRACE) == ()


def test_resources_are_sorted():
    endpoints = Endpoints()
    for resource in (NIC, GPU):
        connect(endpoints, resource=resource)
        endpoints.disconnect(EndpointId(1), now=0.0)
        endpoints.disconnect(EndpointId(2), now=0.0)
    assert [name for name, _ in endpoints.resources()] == [GPU, NIC]
    assert endpoints.expire(1000.0, GRACE) == (GPU, NIC)


@given(st.lists(st.tuples(st.sampled_from("cld"), st.integers(0, 3)), max_size=30))
def test_random_events_only_connected_endpoints_count(actions):
    # The newest connected endpoint serves, and its last list counts. Without a connected one
    # nothing is allocatable. IDs are never reused.
    endpoints = Endpoints()
    connected: list[tuple[EndpointId, str]] = []
    lists: dict[EndpointId, int] = {}
    ever: list[EndpointId] = []
    for now, (action, number) in enumerate(actions):
        if action == "c":
            name = f"{number}.sock"
            id_ = connect(endpoints, name)
            assert id_ not in ever
            connected = [one for one in connected if one[1] != name] + [(id_, name)]
            ever.append(id_)
        elif ever:
            id_ = ever[number % len(ever)]
            if action == "d":
                endpoints.disconnect(id_, float(now))
                connected = [one for one in connected if one[0] != id_]
            else:
                endpoints.update(id_, device_list(devices(*"abcd"[:number])))
                if id_ in [one[0] for one in connected]:
                    lists[id_] = number
        assert [endpoint.id for endpoint in endpoints.connected()] == [one[0] for one in connected]
        if connected:
            serving = connected[-1][0]
            assert endpoints.serving(GPU).id == serving
            if serving in lists:
                assert counts(endpoints) == (lists[serving], lists[serving])
        elif ever:
            assert counts(endpoints)[1] == 0
        else:
            assert counts(endpoints) is None


def test_replaced_endpoint_is_known_once():
    endpoints = Endpoints()
    old = connect(endpoints)
    assert endpoints.pop_replaced(old) is None
    connect(endpoints)
    assert endpoints.pop_replaced(old) == GPU
    assert endpoints.pop_replaced(old) is None


def test_lists_of_removed_resources_are_forgotten_oldest_first(monkeypatch):
    """A list counts as its devices and one more."""
    monkeypatch.setattr("devicemanager.core.endpoints._MOST_REMOVED", 8)
    endpoints = Endpoints()
    names = [f"vendor.com/r{number}" for number in range(5)]
    for number, name in enumerate(names):
        id_ = connect(endpoints, f"{number}.sock", name)
        endpoints.update(id_, device_list(devices("a", "b")))
        endpoints.disconnect(id_, float(number))
    endpoints.expire(1000.0, GRACE)

    def known() -> list[int]:
        return [number for number, name in enumerate(names) if endpoints.last_list(name)]

    assert known() == [0, 1, 2, 3, 4]
    in_use = {names[1]}
    endpoints.forget_lists(in_use.__contains__)
    assert known() == [1, 4]
    endpoints.forget_lists(in_use.__contains__)
    assert known() == [1, 4]
