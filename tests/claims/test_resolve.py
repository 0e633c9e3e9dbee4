"""Claims resolved: classes, constraints, and why devices are excluded."""

import pytest

from devicemanager.claims import cel
from devicemanager.claims.core.model import AccessMode, Limits, Match
from devicemanager.claims.core.solve import budget_of
from devicemanager.claims.errors import ClaimsError
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1.resolve import Resolver
from devicemanager.core.quantity import parse_quantity
from tests.claims.documents import claim, device, device_class, pool, read


def resolver(pools, classes, admin_namespaces=None):
    store = ObjectStore()
    for each in pools:
        store.publish(read(each))
    for each in classes:
        store.define(read(each))
    return Resolver(store.constraints("n0"), store.classes, admin_namespaces, budget_of(Limits()))


def names(found, devices):
    """Return the names of a set of devices."""
    inventory = found.inventory
    return [key.name for key, number in inventory.index.items() if devices >> number & 1]


def only(found, *instances, **spec):
    """Return the only alternative of a claim with one instance."""
    ((choice,),) = found.resolve(read(claim("c", *instances, **spec))).choices
    return choice.alternative


def reasons(found, alternative):
    return {each.rule: names(found, each.devices) for each in alternative.exclusions}


FOUR = pool(devices=[device("a", numa=0), device("b", numa=1), device("c", numa=1), "d"])


def test_devices_must_satisfy_class_and_claim_constraints():
    found = resolver([FOUR], [device_class(constraints="has(device.numa)")])
    got = only(found, {"deviceClass": "gpu", "constraints": "device.numa == 1"})
    assert names(found, got.eligible) == ["b", "c"]
    assert reasons(found, got) == {
        "has(device.numa) is false (DeviceClass gpu)": ["d"],
        "device.numa == 1 is false": ["a"],
    }


def test_runtime_error_is_a_reason():
    found = resolver([FOUR], [device_class()])
    got = only(found, {"deviceClass": "gpu", "constraints": "device.numa == 1"})
    assert reasons(found, got) == {
        "device.numa == 1 is false": ["a"],
        "device.numa == 1 fails: no such key: numa": ["d"],
    }


def test_devices_of_other_drivers_are_excluded():
    other = pool("q", ["x"], driver="other.example.com")
    found = resolver([FOUR, other], [device_class()])
    got = only(found, {"deviceClass": "gpu"})
    assert names(found, got.eligible) == ["a", "b", "c", "d"]
    assert reasons(found, got) == {"the driver is not d.example.com": ["x"]}


def test_device_type_stands_for_its_classes_by_name():
    found = resolver(
        [FOUR],
        [
            device_class("z", constraints="device.numa >= 0"),
            device_class("a", constraints="device.numa == 1"),
            device_class("admin", adminAccess=True),
            device_class("nic", deviceType="nic"),
        ],
    )
    ((choice,),) = found.resolve(read(claim("c", {"deviceType": "gpu"}))).choices
    accepted = {each.device_class.name: names(found, each.devices) for each in choice.accepted}
    assert accepted == {"a": ["b", "c"], "z": ["a"]}
    assert choice.class_of(0).name == "z" and choice.class_of(1).name == "a"
    assert choice.alternative.mode is AccessMode.EXCLUSIVE
    assert set(reasons(found, choice.alternative)) == {
        "device.numa == 1 fails: no such key: numa (DeviceClass a)"
    }


def test_device_type_without_class_does_not_fit():
    found = resolver([FOUR], [device_class("admin", adminAccess=True)])
    got = only(found, {"deviceType": "gpu"})
    assert got.eligible == 0
    assert reasons(found, got) == {"no DeviceClass of type gpu exists": ["a", "b", "c", "d"]}


@pytest.mark.parametrize(
    ("instance", "complaint"),
    [
        ({"deviceClass": "nosuch"},
         'spec.claims[0]: DeviceClass "nosuch" does not exist: create it first'),
        ({"deviceClass": "gpu", "deviceType": "nic"},
         'spec.claims[0]: DeviceClass "gpu" has type "gpu", but the claim requests type "nic":'
         " change the class or the type in the claim"),
        ({"oneOf": [{"deviceClass": "gpu"}, {"deviceClass": "nosuch"}]},
         'spec.claims[0].oneOf[1]: DeviceClass "nosuch" does not exist: create it first'),
        ({"deviceClass": "admin", "requests": {"memory": 1, "count": 1}},
         'spec.claims[0]: DeviceClass "admin" gives admin access: only count can be requested, not'
         " memory"),
    ],
)  # fmt: skip
def test_resolve_rejects_claims_that_no_pool_can_satisfy(instance, complaint):
    found = resolver([FOUR], [device_class(), device_class("admin", adminAccess=True)])
    with pytest.raises(ClaimsError) as caught:
        only(found, instance)
    assert str(caught.value) == f'DeviceClaim "default/c": {complaint}'


def test_admin_access_can_be_limited_to_namespaces():
    classes = [device_class("admin", adminAccess=True)]
    with pytest.raises(ClaimsError, match='namespace "default" must not use'):
        only(resolver([FOUR], classes, frozenset({"ops"})), {"deviceClass": "admin"})
    assert only(resolver([FOUR], classes, frozenset({"default"})), {"deviceClass": "admin"})


def test_requests_become_modes_counts_and_amounts():
    found = resolver([FOUR], [device_class(), device_class("admin", adminAccess=True)])
    plain = only(found, {"deviceClass": "gpu", "requests": {"count": 2}, "limits": {"count": 3}})
    assert (plain.mode, plain.count, plain.limit, plain.amounts) == (AccessMode.EXCLUSIVE, 2, 3, {})
    shared = only(
        found, {"deviceClass": "gpu", "requests": {"memory": "1Gi"}, "matchAttributes": ["numa"]}
    )
    assert (shared.mode, shared.count, shared.limit) == (AccessMode.SHARED, 1, None)
    assert (shared.amounts, shared.match) == ({"memory": parse_quantity("1Gi")}, ("numa",))
    everything = only(found, {"deviceClass": "admin"})
    assert (everything.mode, everything.every) == (AccessMode.ADMIN, True)
    counted = only(found, {"deviceClass": "admin", "requests": {"count": 2}})
    assert (counted.mode, counted.every, counted.count) == (AccessMode.ADMIN, False, 2)


def test_alternatives_have_labels_and_claims_have_matches():
    found = resolver([FOUR], [device_class()])
    wanted = claim("c", {"deviceClass": "gpu"}, {"oneOf": [{"deviceClass": "gpu"}] * 2},
                  matchAttributes=["numa"])  # fmt: skip
    got = found.resolve(read(wanted))
    assert [[each.alternative.label for each in choices] for choices in got.choices] == [
        ["claims[0]"],
        ["claims[1].oneOf[0]", "claims[1].oneOf[1]"],
    ]
    assert (got.claim.id, got.claim.match) == ("default/c", (Match("numa"),))


def test_constraint_is_evaluated_once_per_combination_of_values(monkeypatch):
    seen = []
    matches = cel.Expression.matches

    def counted(self, attributes, spend):
        seen.append((self.text, attributes))
        return matches(self, attributes, spend)

    monkeypatch.setattr(cel.Expression, "matches", counted)
    devices = [device(f"d{n}", numa=n % 2, serial=n) for n in range(100)]
    found = resolver(
        [pool(devices=devices), pool("q", [device("x", numa=7)], driver="other.example.com")],
        [device_class(constraints="device.numa >= 0")],
    )
    instance = {"deviceClass": "gpu", "constraints": "device.numa == 1"}
    for _ in range(3):
        found.resolve(read(claim("c", instance, instance)))
    assert len(seen) == 4
    assert all(set(attributes) == {"numa"} for _, attributes in seen)


def test_constraint_on_the_whole_device_gets_all_attributes():
    found = resolver([FOUR], [device_class(constraints="size(device) == 1")])
    assert names(found, only(found, {"deviceClass": "gpu"}).eligible) == ["a", "b", "c"]
