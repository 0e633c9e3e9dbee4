"""Claims over the objects of a store: together or not at all, once, and free again."""

import pytest
from attrs import evolve

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.core.model import Limits
from devicemanager.claims.errors import ClaimsError, DoesNotFit, InvalidObject, TryAgain
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1.objects import ClaimStatus
from tests.claims.documents import claim, config, device, device_class, pool, read

NODE = "n0"


def allocator(*objects, **options):
    found = Allocator(ObjectStore(), **options)
    for each in objects:
        put(found, each)
    return found


def put(found, each):
    made = read(each)
    match each["kind"]:
        case "DevicePool":
            found.store.publish(made)
        case "DeviceClass":
            found.store.define(made)
        case "DeviceClaim":
            found.submit(made)
        case _:
            found.store.configure(made)
    return made


def held(found, name):
    status = found.claims[f"default/{name}"].status
    return [f"{each.device_pool_name}/{each.device_name}" for each in status.allocations]


def ask(found, *names):
    return found.allocate([f"default/{name}" for name in names], NODE)


def two(count):
    return {"deviceClass": "gpu", "requests": {"count": count}}


def test_claims_are_allocated_together_in_their_order():
    found = allocator(pool(), device_class(), claim("x"), claim("y"))
    assert ask(found, "y", "x") == ("default/y", "default/x")
    assert (held(found, "y"), held(found, "x")) == (["p/a"], ["p/b"])


def test_all_or_nothing():
    found = allocator(pool(), device_class(), claim("x"), claim("y", two(2)))
    with pytest.raises(DoesNotFit) as caught:
        ask(found, "x", "y")
    assert 'DeviceClaim "default/' in str(caught.value)
    assert held(found, "x") == held(found, "y") == []
    assert ask(found, "y") == ("default/y",)


def test_an_allocated_claim_keeps_what_it_has():
    found = allocator(pool(), device_class(), claim("x"), claim("y"))
    ask(found, "x")
    assert ask(found, "x") == ()
    assert ask(found, "x", "y", "y") == ("default/y",)
    assert (held(found, "x"), held(found, "y")) == (["p/a"], ["p/b"])


def test_release_frees_and_may_be_repeated():
    found = allocator(pool(), device_class(), claim("x", two(2)), claim("y"))
    ask(found, "x")
    assert found.release("default/x", "default/nosuch") == ("default/x",)
    assert found.release("default/x") == ()
    assert found.claims["default/x"].status == ClaimStatus()
    ask(found, "y")
    assert held(found, "y") == ["p/a"]


def test_the_rejection_says_which_rule_left_out_how_many_devices():
    found = allocator(
        pool(devices=[device("a", numa=0), device("b", numa=1), device("c", numa=1), "d"]),
        pool("q", ["e"], driver="other.example.com"),
        device_class(),
        claim("x", {"deviceClass": "gpu", "constraints": "device.numa == 0"}),
        claim("y", {"deviceClass": "gpu", "constraints": "device.numa == 0"}),
    )
    ask(found, "x")
    with pytest.raises(DoesNotFit) as caught:
        ask(found, "y")
    text = str(caught.value)
    assert text.startswith('DeviceClaim "default/y", claims[0]: needs 1 device, 0 can be used; ')
    for part in (
        "1: the driver is not d.example.com",
        "2: device.numa == 0 is false",
        '1: device.numa == 0 fails: Key not found in map : "numa"',
        "1: allocated to claim default/x",
    ):
        assert part in text
    assert text.isprintable()


def test_an_undecided_search_is_no_rejection():
    found = allocator(pool(), device_class(), claim("x"), limits=Limits(first_fit=0, total=0))
    with pytest.raises(TryAgain, match="try again"):
        ask(found, "x")
    assert held(found, "x") == []


def test_too_many_devices_for_one_claim():
    found = allocator(pool(), device_class(), claim("x", two(33)))
    with pytest.raises(ClaimsError, match='DeviceClaim "default/x": needs 33 devices') as caught:
        ask(found, "x")
    assert not isinstance(caught.value, DoesNotFit)


def test_what_is_not_known():
    found = allocator(pool(), device_class(), claim("x"), claim("y", {"deviceClass": "nosuch"}))
    with pytest.raises(ClaimsError, match='DeviceClaim "default/nosuch" does not exist'):
        ask(found, "x", "nosuch")
    with pytest.raises(ClaimsError, match='DeviceClass "nosuch" does not exist'):
        ask(found, "x", "y")
    assert held(found, "x") == []


def test_an_allocated_claim_cannot_be_changed():
    found = allocator(pool(), device_class(), claim("x"))
    ask(found, "x")
    with pytest.raises(ClaimsError, match='"default/x": spec: Forbidden: the claim is allocated'):
        put(found, claim("x", two(2)))
    put(found, claim("x"))
    assert held(found, "x") == ["p/a"]
    found.release("default/x")
    put(found, claim("x", two(2)))
    ask(found, "x")
    assert held(found, "x") == ["p/a", "p/b"]


def test_a_claim_brings_no_status_of_its_own():
    found = allocator(pool(), device_class())
    asked = read(claim("x"))
    entry = {"devicePoolName": "p", "deviceName": "b"}
    found.submit(
        evolve(asked, status=read({**claim("x"), "status": {"allocations": [entry]}}).status)
    )
    assert held(found, "x") == []
    with pytest.raises(InvalidObject, match="Required value"):
        found.submit(evolve(asked, claims=()))
    assert found.claims["default/x"].claims == asked.claims


REF = {"apiVersion": "d.example.com/v1", "kind": "Settings", "name": "settings"}


def test_configs_are_copied_when_the_claim_is_allocated():
    instance = {"deviceClass": "gpu", "configs": [REF]}
    found = allocator(
        pool(),
        device_class(configs=[{**REF, "namespace": "system"}]),
        config(namespace="system", spec={"of": "class"}),
        config(namespace="default", spec={"of": "claim"}),
        claim("x", instance, instance),
    )
    ask(found, "x")
    put(found, config(namespace="default", spec={"of": "later"}))
    found.store.withdraw_class("gpu")
    status = found.claims["default/x"].status
    assert [each.content["spec"]["of"] for each in status.class_configs] == ["class"]
    assert [each.content["spec"]["of"] for each in status.claim_configs] == ["claim"]


def test_only_the_chosen_alternatives_configs_count():
    one_of = [{**two(1), "configs": []}, {**two(1), "configs": [REF]}]
    found = allocator(pool(), device_class(), claim("x", {"oneOf": one_of}))
    ask(found, "x")
    assert held(found, "x") == ["p/a"]


def test_a_config_that_does_not_exist_changes_nothing():
    found = allocator(pool(), device_class(), claim("x", {"deviceClass": "gpu", "configs": [REF]}))
    with pytest.raises(ClaimsError) as caught:
        ask(found, "x")
    assert str(caught.value) == (
        'DeviceClaim "default/x": the config Settings "default/settings" (d.example.com/v1) does'
        " not exist"
    )
    assert held(found, "x") == [] and not found.is_allocated("default/x")


def test_a_pool_published_again_frees_nothing():
    found = allocator(pool(), device_class(), claim("x"), claim("y"), claim("z"))
    ask(found, "x")
    put(found, pool(devices=["b", "c"]))
    assert held(found, "x") == ["p/a"]
    ask(found, "y", "z")
    assert held(found, "y") + held(found, "z") == ["p/b", "p/c"]
    put(found, pool(devices=["a", "b", "c"]))
    put(found, claim("w"))
    with pytest.raises(DoesNotFit):
        ask(found, "w")
    found.release("default/x")
    ask(found, "w")
    assert held(found, "w") == ["p/a"]


def test_shares_are_written_the_way_the_pool_writes_them():
    resources = [{"name": "memory", "capacity": "80Gi"}, {"name": "cpu", "capacity": 8,
                 "blockSize": "10m"}]  # fmt: skip
    asked = {"deviceClass": "gpu", "requests": {"memory": 2**30, "cpu": "1.001"}}
    found = allocator(
        pool(devices=[{"name": "a", "resources": resources}]), device_class(), claim("x", asked)
    )
    ask(found, "x")
    (entry,) = found.claims["default/x"].status.allocations
    assert [(each.name, str(each.allocation)) for each in entry.allocations] == [
        ("cpu", "1010m"),
        ("memory", "1Gi"),
    ]
