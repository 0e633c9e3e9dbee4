"""Explanations: the first rule that excludes each device, in words and as data."""

import json

import pytest

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.core.model import Limits
from devicemanager.claims.core.solve import budget_of
from devicemanager.claims.errors import ClaimsError, DoesNotFit, TryAgain
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1 import resolve
from devicemanager.claims.v1alpha1.resolve import Constraints
from tests.claims.documents import claim, device, device_class, pool, read

NODE = "n0"


def node(*objects, **options):
    found = Allocator(ObjectStore(), **options)
    put = {
        "DevicePool": found.store.publish,
        "DeviceClass": found.store.define,
        "DeviceClaim": found.submit,
    }
    for each in objects:
        put[each["kind"]](read(each))
    return found


def explain(found, *names):
    return found.explain([f"default/{name}" for name in names], NODE)


def gpus(count, **spec):
    return {"deviceClass": "gpu", "requests": {"count": count}, **spec}


def test_rejection_is_explained_for_each_device():
    found = node(
        pool(devices=[device("a", numa=0), device("b", numa=1), device("c", numa=1), "d"]),
        pool("q", ["e", "f", "g", "h"], driver="other.example.com"),
        device_class(),
        claim("x", gpus(1)),
        claim("y", gpus(3, matchAttributes=["numa"])),
    )
    found.allocate(["default/x"], NODE)
    explanation = explain(found, "y")
    assert not explanation.fits
    assert explanation.text().splitlines() == [
        'DeviceClaim "default/y" does not fit',
        "  default/y, claims[0]: needs 3 devices, 2 can be used",
        "    usable: p/b, p/c",
        "    4 devices: the driver is not d.example.com (q/e, q/f, q/g, and 1 more)",
        "    1 device: allocated to claim default/x (p/a)",
        "    1 device: has no attribute numa (p/d)",
    ]
    data = json.loads(json.dumps(explanation.as_dict()))
    assert data["requests"][0]["excluded"][0] == {
        "rule": "the driver is not d.example.com",
        "devices": ["q/e", "q/f", "q/g", "q/h"],
    }
    with pytest.raises(
        DoesNotFit,
        match=r'^DeviceClaim "default/y", claims\[0\]: needs 3 devices, 2 '
        r"can be used; 4: the driver is not d",
    ):
        found.allocate(["default/y"], NODE)


def test_three_devices_of_a_rule_are_all_named():
    found = node(
        pool(),
        pool("q", ["c", "d", "e"], driver="other.example.com"),
        device_class(),
        claim("x", gpus(3)),
    )
    assert explain(found, "x").text().splitlines()[2:] == [
        "    usable: p/a, p/b",
        "    3 devices: the driver is not d.example.com (q/c, q/d, q/e)",
    ]


def test_allocated_claim_has_the_explanation_of_a_pending_one():
    found = node(
        pool(devices=[device("a", numa=0), device("b", numa=1), device("c", numa=0)]),
        device_class(),
        claim("x", gpus(1), gpus(1), matchAttributes=["numa"]),
    )
    before = explain(found, "x")
    assert before.text().splitlines() == [
        'DeviceClaim "default/x" fits',
        "  default/x, claims[0]: gets 1 device",
        "    taken: p/a",
        "    1 device: attribute numa differs from the others chosen (p/b)",
        "    1 device: taken by claims[1] (p/c)",
        "  default/x, claims[1]: gets 1 device",
        "    taken: p/c",
        "    1 device: attribute numa differs from the others chosen (p/b)",
        "    1 device: taken by claims[0] (p/a)",
    ]
    assert found.allocate(["default/x"], NODE)
    after = explain(found, "x")
    assert after.requests == before.requests
    assert after.message == 'DeviceClaim "default/x" is allocated'


def test_claims_are_explained_together_without_changes():
    found = node(pool(), device_class(), claim("x", gpus(1)), claim("y", gpus(1)), claim("z"))
    found.allocate(["default/x"], NODE)
    explanation = explain(found, "x", "y")
    assert explanation.message == 'DeviceClaims "default/x", "default/y" fit together'
    assert [each.taken for each in explanation.requests] == [("p/a",), ("p/b",)]
    rejected = explain(found, "y", "z")
    assert rejected.message == 'DeviceClaims "default/y", "default/z" do not fit together'
    assert [each.summary for each in rejected.requests] == [
        f"needs 1 device, which fit alone but not together with default/{other}, claims[0]"
        for other in "zy"
    ]
    assert not found.is_allocated("default/y")


def test_refusal_names_the_requests_that_collide():
    """Two of four requests want the same device; a third one matches an attribute with them."""
    found = node(
        pool(devices=[device("a", numa=0), device("b", numa=1), device("c", numa=1)]),
        device_class(),
        claim(
            "x",
            {"deviceClass": "gpu", "constraints": "device.numa == 1"},
            {"oneOf": [{"deviceClass": "gpu", "constraints": "device.numa == 0"}]},
            {"oneOf": [{"deviceClass": "gpu", "constraints": "device.numa < 1"}]},
        ),
        claim("y", {"deviceClass": "gpu", "constraints": "device.numa == 1"}),
    )
    rejected = explain(found, "x", "y")
    assert [(each.label, each.summary) for each in rejected.requests] == [
        (
            f"claims[{one}].oneOf[0]",
            f"needs 1 device, which fit alone but not together with {other}",
        )
        for one, other in ((1, "claims[2]"), (2, "claims[1]"))
    ]
    with pytest.raises(DoesNotFit, match=r"claims\[1\].oneOf.*together with claims\[2\]"):
        found.allocate(["default/x", "default/y"], NODE)


def test_colliding_requests_of_matched_attributes_are_named():
    found = node(
        pool(devices=[device("a", numa=0), device("b", numa=1)]),
        device_class(),
        claim("x", gpus(1), gpus(1), matchAttributes=["numa"]),
        claim("y"),
    )
    (first, second) = explain(found, "x").requests
    assert first.summary.endswith("together with claims[1]")
    assert second.summary.endswith("together with claims[0]")


def card():
    return {
        "resources": [{"name": "slices", "capacity": 3}],
        "devices": [
            {"name": name, "requests": {"slices": 2}, "resources": [memory]}
            for name in ("a", "b")
            for memory in ({"name": "memory", "capacity": "10Gi", "blockSize": "1Gi"},)
        ],
    }


@pytest.mark.parametrize(
    ("instance", "summary"),
    [
        (
            gpus(2),
            "needs 2 devices: 2 can be used, but the budgets allow fewer than needed: "
            "slices of pool p",
        ),
        (
            {"deviceClass": "gpu", "requests": {"memory": "21Gi"}},
            "needs 21Gi of memory, can have at most 20Gi from pool p",
        ),
        (
            {"deviceClass": "all", "matchAttributes": ["name"]},
            "needs all devices, but their matched attributes differ",
        ),
    ],
)
def test_summary_names_what_is_missing(instance, summary):
    spec = card()
    for each in spec["devices"]:
        each["attributes"] = [{"name": "name", "stringValue": each["name"]}]
    made = pool(**spec)
    found = node(made, device_class(), device_class("all", adminAccess=True), claim("x", instance))
    (request,) = explain(found, "x").requests
    assert request.summary == summary


def test_shared_and_admin_requests_show_their_devices():
    found = node(
        pool(**card()),
        device_class(),
        device_class("all", adminAccess=True),
        claim("x", {"deviceClass": "gpu", "requests": {"memory": "1500Mi"}}),
        claim("y", {"deviceClass": "all"}),
    )
    shared, admin = explain(found, "x", "y").requests
    assert (shared.summary, shared.taken) == ("gets 1 device, in part", ("p/a (2Gi of memory)",))
    assert (admin.summary, admin.taken) == ("gets 2 devices, with admin access", ("p/a", "p/b"))


def test_claim_with_withdrawn_devices_is_explained():
    found = node(pool(devices=[device("a", numa=0), "b"]), device_class(), claim("x", gpus(1)))
    found.allocate(["default/x"], NODE)
    found.store.publish(read(pool(devices=["b"])))
    (request,) = explain(found, "x").requests
    assert (request.taken, request.summary) == (("p/a",), "gets 1 device")
    assert [each.rule for each in request.excluded] == ["not needed"]


def test_impossible_claims_have_a_one_line_explanation():
    many = pool(devices=[f"d{number}" for number in range(40)])
    found = node(many, device_class(), device_class("all", adminAccess=True), claim("x", gpus(33)))
    message = 'DeviceClaim "default/x": needs 33 devices; a claim can have at most 32'
    assert explain(found, "x").text() == message
    few = node(pool(), device_class(), claim("x"), limits=Limits(first_fit=0, total=0))
    assert "cut off after 0 steps" in explain(few, "x").message
    with pytest.raises(ClaimsError, match=r'^DeviceClaim "default/nosuch" does not exist'):
        explain(found, "nosuch")


def cut_off(**limits):
    """An allocator whose constraint must be evaluated for each of 20 devices, and its claim."""
    devices = [device(f"d{number}", serial=number) for number in range(20)]
    gpu = device_class(constraints="device.serial == 19")
    return node(pool(devices=devices), gpu, claim("x"), limits=Limits(**limits))


def test_a_search_without_a_result_neither_fits_nor_does_not_fit():
    found = node(pool(), device_class(), claim("x"), limits=Limits(first_fit=0, total=0))
    explanation = explain(found, "x")
    assert explanation.fits is None
    assert explanation.unexamined == ("all combinations of devices for default/x, claims[0]",)
    assert json.loads(json.dumps(explanation.as_dict()))["fits"] is None


def test_constraints_spend_the_steps_of_the_call():
    explanation = explain(cut_off(total=42), "x")
    assert explanation.fits is None
    assert explanation.unexamined == (
        "the constraints of default/x, claims[0] on 10 of 20 devices",
    )
    assert explanation.message == (
        "the search for devices was cut off after 42 steps without a result; not examined: the"
        " constraints of default/x, claims[0] on 10 of 20 devices, and everything after that: try"
        " again, or simplify the constraints"
    )


def test_evaluated_constraints_need_no_further_steps():
    found = cut_off(total=42)
    for _ in range(2):
        with pytest.raises(TryAgain, match="cut off after 42 steps") as caught:
            found.allocate(["default/x"], NODE)
        assert "on 10 of 20 devices" in str(caught.value) or "search" in str(caught.value)
    assert explain(cut_off(total=200), "x").fits
    found.allocate(["default/x"], NODE)
    assert found.claim("default/x").status.allocations[0].device_name == "d19"


def test_a_costly_constraint_spends_more_steps():
    listed = str(list(range(14)))
    costly = f"{listed}.all(x, {listed}.all(y, {listed}.all(z, x + y + z >= 0)))"
    steps = {}
    for text in ("device.serial == 19", costly):
        budget = budget_of(Limits())
        Constraints(cut_off().store.constraints(NODE).inventory).apply(text, 1, budget)
        steps[text] = budget.spent
    assert steps["device.serial == 19"] < 10
    assert steps[costly] > 200


def test_a_slow_machine_ends_a_search_by_time():
    found = cut_off()
    claims = [found.claim("default/x")]
    snapshot = found.snapshot(claims, NODE)
    explanation = snapshot.explain(lambda: False)
    assert explanation.fits is None
    assert "cut off by its time limit, after 4 steps, without a result" in explanation.message
    with pytest.raises(TryAgain, match="by its time limit"):
        snapshot.search(lambda: False)
    assert snapshot.search(lambda: True).claims[0].id == "default/x"


def test_results_of_constraints_are_limited_in_number(monkeypatch):
    monkeypatch.setattr(resolve, "_MAX_ANSWERS", 30)
    constraints = Constraints(cut_off().store.constraints(NODE).inventory)
    texts = [f"device.serial == {number}" for number in range(4)]
    for text in texts:
        constraints.apply(text, constraints.inventory.everything, budget_of(Limits()))
        assert sum(map(len, constraints._answers.values())) <= 30
    assert list(constraints._answers) == texts[-1:]
