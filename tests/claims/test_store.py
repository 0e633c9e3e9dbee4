"""Objects: which ones replace others, and which ones a node can use."""

import pytest

from devicemanager.claims.errors import ClaimsError, InvalidObject
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1.objects import ConfigReference
from tests.claims.documents import config, device_class, pool, read


@pytest.fixture
def store():
    return ObjectStore()


def keys(store, node):
    return [(key.pool, key.name) for key in store.constraints(node).inventory.index]


def test_node_can_use_its_pools_and_pools_without_node(store):
    store.publish(read(pool("z", driver="b.example.com")))
    store.publish(read(pool("y", ["one"], nodeName="n1")))
    store.publish(read(pool("net", ["x"], nodeName=None, driver="c.example.com")))
    assert keys(store, "n0") == [("z", "a"), ("z", "b"), ("net", "x")]
    assert keys(store, "n1") == [("net", "x"), ("y", "one")]
    assert keys(store, "elsewhere") == [("net", "x")]


def test_republished_pool_replaces_the_old_one(store):
    store.publish(read(pool("p", ["a"])))
    assert keys(store, "n0") == [("p", "a")]
    store.publish(read(pool("p", ["b", "c"])))
    assert keys(store, "n0") == [("p", "b"), ("p", "c")]
    assert store.withdraw_pool("p") and not store.withdraw_pool("p")
    assert keys(store, "n0") == []


def test_inventory_is_cached_until_a_pool_changes(store):
    store.publish(read(pool("p", ["a"])))
    before = store.constraints("n0")
    again = pool("p", ["a"])
    again["status"] = {"availableDevices": 7}
    store.publish(read(again))
    assert store.constraints("n0") is before
    assert store.pools["p"].available_devices == 7
    store.publish(read(pool("p", ["a", "b"])))
    assert store.constraints("n0") is not before


def test_only_its_driver_can_replace_a_pool(store):
    store.publish(read(pool("p", ["a"])))
    with pytest.raises(ClaimsError) as caught:
        store.publish(read(pool("p", ["b"], driver="evil.example.com")))
    assert str(caught.value) == (
        'DevicePool "p": spec.driver: only "d.example.com", which published the pool, can replace'
        ' it, not "evil.example.com"'
    )
    assert keys(store, "n0") == [("p", "a")]


def test_rejected_object_leaves_the_old_one(store):
    from attrs import evolve

    good = read(device_class())
    store.define(good)
    with pytest.raises(InvalidObject, match="does not compile"):
        store.define(evolve(good, constraints="device.a =="))
    assert store.classes == {"gpu": good}
    published = read(pool())
    store.publish(published)
    with pytest.raises(
        InvalidObject, match=r'^DevicePool "p": spec\.devices\[2\]\.name: Duplicate value'
    ):
        store.publish(evolve(published, devices=published.devices * 2))
    assert store.pools == {"p": published}
    assert store.withdraw_class("gpu") and not store.withdraw_class("gpu")


def test_config_is_found_by_its_full_reference(store):
    found = read(config("a", "n"))
    store.configure(found)
    reference = ConfigReference("d.example.com/v1", "Settings", "a", "n")
    assert store.config(reference) is found
    wrong = ConfigReference("d.example.com/v1", "Settings", "a", "m")
    with pytest.raises(ClaimsError, match=r'^the config Settings "m/a" .* does not exist'):
        store.config(wrong)
    assert store.withdraw_config(reference) and not store.withdraw_config(reference)
