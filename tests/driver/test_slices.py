"""Which slices to write: pure decisions, and their invariants."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from devicemanager.driver import Device, DriverResources, Pool, Taint, Version
from devicemanager.driver.slices import (
    Changes,
    comparable,
    lost_fields,
    plan,
    pools_of,
    specs,
    tainted,
    without_taint,
)

DRIVER, NODE = "gpu.vendor.com", "node-1"


def wanted(*names, pool="p"):
    """Return specs with one device each."""
    return [
        {"driver": DRIVER, "nodeName": NODE, "pool": {"name": pool}, "devices": [{"name": name}]}
        for name in names
    ]


def stored(spec, name, generation=1, count=1):
    pool = {**spec["pool"], "generation": generation, "resourceSliceCount": count}
    return {"metadata": {"name": name}, "spec": {**spec, "pool": pool}}


def names_of(slices):
    return [each["metadata"]["name"] for each in slices]


def test_device_in_the_form_of_the_api():
    device = Device(
        "gpu-0",
        attributes={"model": "a100", "ecc": False, "driver": Version("1.2.3")},
        capacity={"memory": "1024Mi", "cores": 8},
        taints=[Taint(key="maintenance")],
        consumes={"cards": {"memory": "1Gi"}},
        fields={"allowMultipleAllocations": True},
    )
    [spec] = specs(DRIVER, NODE, "p", Pool([device]))
    assert spec["devices"] == [
        {
            "name": "gpu-0",
            "attributes": {
                "driver": {"version": "1.2.3"},
                "ecc": {"bool": False},
                "model": {"string": "a100"},
            },
            "capacity": {"cores": {"value": "8"}, "memory": {"value": "1Gi"}},
            "consumesCounters": [{"counterSet": "cards", "counters": {"memory": {"value": "1Gi"}}}],
            "taints": [{"key": "maintenance", "effect": "NoSchedule"}],
            "allowMultipleAllocations": True,
        }
    ]


@pytest.mark.parametrize(
    ("device", "sizes"),
    [
        (lambda name: Device(name), [128, 72]),
        (lambda name: Device(name, taints=[Taint(key="k")]), [64, 64, 64, 8]),
    ],
)
def test_large_pools_have_several_slices(device, sizes):
    made = specs(DRIVER, NODE, "p", Pool([device(f"gpu-{number}") for number in range(200)]))
    assert [len(each["devices"]) for each in made] == sizes


def test_counters_have_slices_of_their_own():
    counters = {f"card-{number}": {"memory": "1Gi"} for number in range(9)}
    made = specs(DRIVER, NODE, "p", Pool(["gpu-0"], counters=counters))
    assert [sorted(each) for each in made] == [
        ["driver", "nodeName", "pool", "sharedCounters"],
        ["driver", "nodeName", "pool", "sharedCounters"],
        ["devices", "driver", "nodeName", "pool"],
    ]
    assert made[0]["sharedCounters"][0] == {
        "name": "card-0",
        "counters": {"memory": {"value": "1Gi"}},
    }


def test_default_pool_has_the_name_of_the_node():
    assert list(pools_of(["gpu-0"], NODE)) == [NODE]
    assert list(pools_of(DriverResources({"left": Pool()}), NODE)) == ["left"]


def test_first_slices():
    changes = plan({"p": wanted("a", "b")}, [])
    assert [each["pool"] for _, each in changes.created] == [
        {"name": "p", "generation": 1, "resourceSliceCount": 2}
    ] * 2


def test_unchanged_slices_are_not_written():
    specs_ = wanted("a", "b")
    existing = [stored(each, name, 4, 2) for each, name in zip(specs_, "xy", strict=True)]
    assert not plan({"p": specs_}, existing)


def test_changes_of_any_kind_are_changes():
    slice_ = stored(*wanted("a"), "x")
    assert not Changes()
    assert Changes(replaced=[slice_])
    assert Changes(created=[(0, slice_["spec"])])
    assert Changes(deleted=[slice_])


def test_time_of_a_taint_is_ignored():
    one, other = wanted("a"), wanted("a")
    one[0]["devices"][0]["taints"] = [{"key": "k"}]
    other[0]["devices"][0]["taints"] = [{"key": "k", "timeAdded": "2026-01-01T00:00:00Z"}]
    assert not plan({"p": one}, [stored(other[0], "x")])


def test_change_writes_all_slices_with_the_next_generation():
    a, b = wanted("a", "b")
    existing = [stored(a, "x", 3, 2), stored(b, "y", 3, 2)]
    changes = plan({"p": wanted("a", "c", "d")}, existing)
    assert names_of(changes.replaced) == ["x", "y"]
    assert len(changes.created) == 1
    numbers = [each["spec"]["pool"] for each in changes.replaced]
    numbers += [each["pool"] for _, each in changes.created]
    assert numbers == [{"name": "p", "generation": 4, "resourceSliceCount": 3}] * 3


def test_smaller_pool_deletes_slices():
    existing = [stored(each, each["devices"][0]["name"], 1, 2) for each in wanted("a", "b")]
    changes = plan({"p": wanted("a")}, existing)
    assert names_of(changes.replaced) == ["a"]
    assert names_of(changes.deleted) == ["b"]


def test_deleted_slice_returns_with_the_same_generation():
    a, b = wanted("a", "b")
    changes = plan({"p": [a, b]}, [stored(a, "x", 5, 2)])
    assert not changes.replaced
    assert [(at, each["pool"]["generation"]) for at, each in changes.created] == [(1, 5)]


def test_old_generations_copies_and_unwanted_pools_are_deleted():
    [a] = wanted("a")
    [other] = wanted("a", pool="other")
    existing = [stored(a, "new", 2), stored(a, "new-copy", 2), stored(a, "old", 1)]
    changes = plan({"p": [a]}, [*existing, stored(other, "gone")])
    assert (changes.replaced, changes.created) == ([], [])
    assert sorted(names_of(changes.deleted)) == ["gone", "new-copy", "old"]


POOLS = st.dictionaries(
    st.sampled_from("pq"), st.lists(st.sampled_from("abcd"), max_size=4, unique=True)
)


NUMBERS = itertools.count()


def applied(changes, existing):
    """Return the slices after all changes. As in an API server, each new name is unique."""
    replaced = {each["metadata"]["name"]: each for each in changes.replaced}
    gone = set(names_of(changes.deleted))
    kept = [
        replaced.get(each["metadata"]["name"], each)
        for each in existing
        if each["metadata"]["name"] not in gone
    ]
    new = [
        {"metadata": {"name": f"new-{next(NUMBERS)}"}, "spec": spec} for _, spec in changes.created
    ]
    return kept + new


@given(
    st.lists(POOLS, min_size=1, max_size=5),
    st.lists(st.integers(0, 3), max_size=3),
)
@example([{"p": ["a", "b"]}, {"p": [], "q": ["a", "b", "c"]}, {"q": ["a", "b", "d"]}], [1])
def test_every_plan_leads_to_the_wanted_slices(steps, lost):
    slices = []
    for step in steps:
        want = {pool: wanted(*names, pool=pool) for pool, names in step.items()}
        slices = applied(plan(want, slices), slices)
        # A slice is lost at times, and the repair is a plan, too.
        slices = [each for number, each in enumerate(slices) if number not in lost]
        slices = applied(plan(want, slices), slices)
        found = sorted(str(comparable(each["spec"])) for each in slices)
        assert found == sorted(str(spec) for each in want.values() for spec in each)
        for pool, each in want.items():
            numbers = {
                (found["generation"], found["resourceSliceCount"])
                for found in (slice_["spec"]["pool"] for slice_ in slices)
                if found["name"] == pool
            }
            assert len(numbers) <= 1 and all(count == len(each) for _, count in numbers)
        assert not plan(want, slices)


def test_lost_fields():
    sent = {"devices": [{"name": "a", "taints": [{"key": "k"}]}], "x": 1}
    assert lost_fields(sent, {"devices": [{"name": "a"}], "x": 1}) == ["spec.devices[0].taints"]
    assert lost_fields(sent, sent) == []
    assert lost_fields(sent, {"devices": [], "x": 1}) == ["spec.devices"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Device("GPU_0"), "invalid device name 'GPU_0': use 1 to 63 lower case letters"),
        (lambda: Device("a", attributes={"x": "y" * 65}), "attribute x has 65 characters: use at "),
        (lambda: Device("a", attributes={"x": 1.5}), "invalid attribute x=1.5: use a string, an "),
        (lambda: Device("a", attributes=dict.fromkeys(map(str, range(33)), 1)), "use at most 32"),
        (lambda: Pool(["a", "a"]), "device a is in the pool twice: use unique names"),
        (lambda: Pool("a"), "devices must be a list, not 'a'"),
        (lambda: Version("1.2"), "invalid version '1.2': use a version such as 2.1.0"),
        (lambda: specs(DRIVER, NODE, "p", Pool([Device("a", capacity={"m": "x"})])), "quantities"),
    ],
)
def test_invalid_values(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_device_with_the_maximum_number_of_taints_gets_no_other():
    full = Device("full", taints=[Taint(key=f"t{number}") for number in range(16)])
    pool = tainted("d.com", "p", Pool([full, "other"]), {("p", "full"), ("p", "other")})
    assert [len(device.taints) for device in pool.devices] == [16, 1]
    assert tainted("d.com", "q", Pool(["other"]), {("p", "other")}) == Pool(["other"])


def test_only_the_taint_of_unhealthy_devices_is_removed():
    own = Taint(key="own")
    pool = tainted("d.com", "p", Pool([Device("a", taints=[own]), "b"]), {("p", "a"), ("p", "b")})
    [spec] = specs("d.com", NODE, "p", pool)
    [plain] = specs("d.com", NODE, "p", Pool([Device("a", taints=[own]), "b"]))
    assert [len(each["taints"]) for each in spec["devices"]] == [2, 1]
    taint = {"key": "d.com/unhealthy", "value": "true", "effect": "NoSchedule"}
    assert [each["taints"][-1] for each in spec["devices"]] == [taint] * 2
    assert without_taint("d.com", spec) == plain
    assert without_taint("other.com", spec) == spec
    counters = {"sharedCounters": []}
    assert without_taint("d.com", counters) == counters


def test_lost_fields_of_other_types():
    assert lost_fields({"a": {"b": 1}}, {"a": 1}) == ["spec.a"]
    assert lost_fields({"a": 1, "b": [1]}, {"b": [1, 2]}) == ["spec.a"]
    assert lost_fields({"b": [1]}, {"b": []}) == ["spec.b"]
    assert lost_fields({"b": []}, {"b": None}) == []
    assert lost_fields({"b": [{"c": 1}, {"c": 2}]}, {"b": [{}, {"c": 2}]}) == ["spec.b[0].c"]
