"""Claims of a store: allocated together or not at all, once, and released."""

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


def devices(found, name):
    status = found.claims[f"default/{name}"].status
    return [f"{each.device_pool_name}/{each.device_name}" for each in status.allocations]


def allocate(found, *names):
    return found.allocate([f"default/{name}" for name in names], NODE)


def two(count):
    return {"deviceClass": "gpu", "requests": {"count": count}}


def test_allocate_serves_claims_in_order():
    found = allocator(pool(), device_class(), claim("x"), claim("y"))
    assert allocate(found, "y", "x") == ("default/y", "default/x")
    assert (devices(found, "y"), devices(found, "x")) == (["p/a"], ["p/b"])


def test_allocate_is_all_or_nothing():
    found = allocator(pool(), device_class(), claim("x"), claim("y", two(2)))
    with pytest.raises(DoesNotFit) as caught:
        allocate(found, "x", "y")
    assert 'DeviceClaim "default/' in str(caught.value)
    assert devices(found, "x") == devices(found, "y") == []
    assert allocate(found, "y") == ("default/y",)


def test_allocate_is_idempotent():
    found = allocator(pool(), device_class(), claim("x"), claim("y"))
    allocate(found, "x")
    assert allocate(found, "x") == ()
    assert allocate(found, "x", "y", "y") == ("default/y",)
    assert (devices(found, "x"), devices(found, "y")) == (["p/a"], ["p/b"])


def test_release_is_idempotent():
    found = allocator(pool(), device_class(), claim("x", two(2)), claim("y"))
    allocate(found, "x")
    assert found.release("default/x", "default/nosuch") == ("default/x",)
    assert found.release("default/x") == ()
    assert found.claims["default/x"].status == ClaimStatus()
    allocate(found, "y")
    assert devices(found, "y") == ["p/a"]


def test_rejection_counts_devices_by_rule():
    found = allocator(
        pool(devices=[device("a", numa=0), device("b", numa=1), device("c", numa=1), "d"]),
        pool("q", ["e"], driver="other.example.com"),
        device_class(),
        claim("x", {"deviceClass": "gpu", "constraints": "device.numa == 0"}),
        claim("y", {"deviceClass": "gpu", "constraints": "device.numa == 0"}),
    )
    allocate(found, "x")
    with pytest.raises(DoesNotFit) as caught:
        allocate(found, "y")
    text = str(caught.value)
    assert text.startswith('DeviceClaim "default/y", claims[0]: needs 1 device, 0 can be used; ')
    for part in (
        "1: the driver is not d.example.com",
        "2: device.numa == 0 is false",
        "1: device.numa == 0 fails: no such key: numa",
        "1: allocated to claim default/x",
    ):
        assert part in text
    assert text.isprintable()


def test_cut_off_search_raises_try_again():
    found = allocator(pool(), device_class(), claim("x"), limits=Limits(first_fit=0, total=0))
    with pytest.raises(
        TryAgain,
        match=r"^the search for devices was cut off after 0 steps without a result; not examined:"
        r" all combinations of devices for default/x, claims\[0\]: try again",
    ):
        allocate(found, "x")
    assert devices(found, "x") == []


def test_claim_for_too_many_devices_is_an_error():
    found = allocator(pool(), device_class(), claim("x", two(33)))
    with pytest.raises(ClaimsError, match=r'^DeviceClaim "default/x": needs 33 devices') as caught:
        allocate(found, "x")
    assert not isinstance(caught.value, DoesNotFit)


def test_unknown_claims_and_classes_are_errors():
    found = allocator(pool(), device_class(), claim("x"), claim("y", {"deviceClass": "nosuch"}))
    with pytest.raises(ClaimsError, match=r'^DeviceClaim "default/nosuch" does not exist'):
        allocate(found, "x", "nosuch")
    with pytest.raises(
        ClaimsError,
        match=r'^DeviceClaim "default/y": spec\.claims\[0\]: DeviceClass "nosuch" does not exist',
    ):
        allocate(found, "x", "y")
    assert devices(found, "x") == []


def test_allocated_claim_cannot_be_changed():
    found = allocator(pool(), device_class(), claim("x"))
    allocate(found, "x")
    with pytest.raises(
        ClaimsError, match=r'^DeviceClaim "default/x": spec: Forbidden: the claim is allocated'
    ):
        put(found, claim("x", two(2)))
    put(found, claim("x"))
    assert devices(found, "x") == ["p/a"]
    found.release("default/x")
    put(found, claim("x", two(2)))
    allocate(found, "x")
    assert devices(found, "x") == ["p/a", "p/b"]


def test_submit_ignores_status():
    found = allocator(pool(), device_class())
    wanted = read(claim("x"))
    entry = {"devicePoolName": "p", "deviceName": "b"}
    found.submit(
        evolve(wanted, status=read({**claim("x"), "status": {"allocations": [entry]}}).status)
    )
    assert devices(found, "x") == []
    with pytest.raises(
        InvalidObject, match=r'^DeviceClaim "default/x": spec\.claims: Required value'
    ):
        found.submit(evolve(wanted, claims=()))
    assert found.claims["default/x"].claims == wanted.claims


REF = {"apiVersion": "d.example.com/v1", "kind": "Settings", "name": "settings"}


def test_allocate_copies_configs():
    instance = {"deviceClass": "gpu", "configs": [REF]}
    found = allocator(
        pool(),
        device_class(configs=[{**REF, "namespace": "system"}]),
        config(namespace="system", spec={"of": "class"}),
        config(namespace="default", spec={"of": "claim"}),
        claim("x", instance, instance),
    )
    allocate(found, "x")
    put(found, config(namespace="default", spec={"of": "later"}))
    found.store.withdraw_class("gpu")
    status = found.claims["default/x"].status
    assert [each.content["spec"]["of"] for each in status.class_configs] == ["class"]
    assert [each.content["spec"]["of"] for each in status.claim_configs] == ["claim"]


def test_only_configs_of_the_chosen_alternative_are_read():
    one_of = [{**two(1), "configs": []}, {**two(1), "configs": [REF]}]
    found = allocator(pool(), device_class(), claim("x", {"oneOf": one_of}))
    allocate(found, "x")
    assert devices(found, "x") == ["p/a"]


def test_missing_config_is_an_error_without_changes():
    found = allocator(pool(), device_class(), claim("x", {"deviceClass": "gpu", "configs": [REF]}))
    with pytest.raises(ClaimsError) as caught:
        allocate(found, "x")
    assert str(caught.value) == (
        'DeviceClaim "default/x": the config Settings "default/settings" (d.example.com/v1) does'
        " not exist: create it first"
    )
    assert devices(found, "x") == [] and not found.is_allocated("default/x")


def test_republished_pool_releases_nothing():
    found = allocator(pool(), device_class(), claim("x"), claim("y"), claim("z"))
    allocate(found, "x")
    put(found, pool(devices=["b", "c"]))
    assert devices(found, "x") == ["p/a"]
    allocate(found, "y", "z")
    assert devices(found, "y") + devices(found, "z") == ["p/b", "p/c"]
    put(found, pool(devices=["a", "b", "c"]))
    put(found, claim("w"))
    with pytest.raises(DoesNotFit):
        allocate(found, "w")
    found.release("default/x")
    allocate(found, "w")
    assert devices(found, "w") == ["p/a"]


def test_amounts_have_the_format_of_the_pool():
    resources = [{"name": "memory", "capacity": "80Gi"}, {"name": "cpu", "capacity": 8,
                 "blockSize": "10m"}]  # fmt: skip
    wanted = {"deviceClass": "gpu", "requests": {"memory": 2**30, "cpu": "1.001"}}
    found = allocator(
        pool(devices=[{"name": "a", "resources": resources}]), device_class(), claim("x", wanted)
    )
    allocate(found, "x")
    (entry,) = found.claims["default/x"].status.allocations
    assert [(each.name, str(each.allocation)) for each in entry.allocations] == [
        ("cpu", "1010m"),
        ("memory", "1Gi"),
    ]


def test_budgets_round_down_and_charges_up_to_whole_blocks():
    units = {"name": "units", "capacity": "3900m", "blockSize": "500m"}
    taken = [{"name": name, "requests": {"units": "1100m"}} for name in "abc"]
    found = allocator(pool(devices=taken, resources=[units]), device_class(), claim("x", two(2)))
    (published,) = found.store.constraints(NODE).inventory.pools
    assert published.budget == {"units": 3500 * 10**6}
    assert [each.charge for each in published.devices] == [{"units": 1500 * 10**6}] * 3
    allocate(found, "x")
    found.submit(read(claim("y")))
    with pytest.raises(DoesNotFit, match="pool p has too little units left"):
        allocate(found, "y")


def test_capacity_rounds_down_to_whole_blocks():
    memory = {"name": "memory", "capacity": "10Gi", "blockSize": "4Gi"}
    wanted = {"deviceClass": "gpu", "requests": {"memory": "9Gi"}}
    found = allocator(
        pool(devices=[{"name": "a", "resources": [memory]}]), device_class(), claim("x", wanted)
    )
    with pytest.raises(
        DoesNotFit,
        match=r'^DeviceClaim "default/x", claims\[0\]: needs 9Gi of memory, can have at most 8Gi',
    ):
        allocate(found, "x")
