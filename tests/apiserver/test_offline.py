"""The check of objects in files, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.apiserver.offline import Problem, Report, check_objects, listed
from tests.apiserver.real_answers.objects import (
    allocation,
    changed,
    claim,
    device,
    device_class,
    result,
    slice_,
    template,
)


def checked(*values: Any) -> Report:
    return check_objects(values)


def problems(*values: Any) -> list[str]:
    return [str(each) for each in checked(*values).problems]


# -- lists ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [claim(), {"kind": "ThingList"}, {"kind": "ThingList", "items": 5}]
)
def test_object_is_yielded_as_it_is(value: Any) -> None:
    (found,) = listed(value)
    assert found == value and found is not value


@pytest.mark.parametrize("value", ["text", 5, None, [1]])
def test_value_of_another_type_has_no_kind(value: Any) -> None:
    assert list(listed(value)) == [{"kind": "", "value": value}]


def test_object_with_items_is_not_a_list() -> None:
    value = {"kind": "Thing", "items": [claim()]}
    assert list(listed(value)) == [value]


def test_items_of_a_typed_list_have_its_kind() -> None:
    own = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    items = [{"metadata": {"name": "a"}}, {"kind": "Other"}, "text"]
    assert list(listed({**own, "kind": "ResourceSliceList", "items": items})) == [
        {**own, "metadata": {"name": "a"}},
        {**own, "kind": "Other"},
        {"kind": "", "value": "text"},
    ]
    (found,) = listed({"kind": "ResourceSliceList", "items": [{}]})
    assert found == {"apiVersion": "", "kind": "ResourceSlice"}


def test_items_of_a_list_have_their_own_kind() -> None:
    """A list can contain lists."""
    inner = {"apiVersion": "v1", "kind": "List", "items": [claim("b"), {"metadata": {}}]}
    value = {"apiVersion": "v1", "kind": "List", "items": [claim("a"), inner]}
    assert list(listed(value)) == [claim("a"), claim("b"), {"metadata": {}}]


# -- which objects are checked --------------------------------------------------------------


def test_objects_of_all_kinds_are_counted() -> None:
    found = checked(slice_(), claim(), template(), device_class())
    assert (found.checked, found.problems, found.notes) == (4, [], [])


@pytest.mark.parametrize(
    ("value", "notes"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, ["v1 Pod: not checked, not of resource.k8s.io"]),
        ({"apiVersion": "x/v1", "kind": "X"}, ["x/v1 X: not checked, not of resource.k8s.io"]),
        ({"kind": "X"}, ["X: not checked, not of resource.k8s.io"]),
        ({}, ["a document without a kind: not checked, not of resource.k8s.io"]),
        (
            {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceTaintRule"},
            ["resource.k8s.io/v1alpha3 DeviceTaintRule: not checked, not of resource.k8s.io"],
        ),
        ({"apiVersion": "v1", "kind": "Namespace"}, []),
    ],
)
def test_other_objects_are_notes(value: Any, notes: list[str]) -> None:
    found = checked(value)
    assert (found.checked, found.problems, found.notes) == (0, [], notes)


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"name": "a", "namespace": "n"}, "n/a"),
        ({"name": "a"}, "a"),
        ({"generateName": "a-", "namespace": "n"}, "n/a-"),
        ({"name": "a", "generateName": "b-"}, "a"),
        ({"namespace": "n"}, "n"),
        ({}, ""),
        (None, ""),
        ("text", ""),
        ({"name": 5}, "5"),
    ],
)
def test_unknown_kind_or_version_is_a_problem_with_the_name(metadata: Any, name: str) -> None:
    for api_version, kind in (("resource.k8s.io/v1", "Thing"), ("resource.k8s.io/v9", "Thing")):
        found = checked({"apiVersion": api_version, "kind": kind, "metadata": metadata})
        text = f'no matches for kind "{kind}" in version "{api_version}"'
        assert found.problems == [Problem(kind, name, "", text)]
        assert (found.checked, found.notes) == (1, [])


def test_problem_is_one_line() -> None:
    assert str(Problem("K", "n/a", "", "text")) == 'K "n/a": text'
    assert str(Problem("K", "n/a", "spec.x", "text")) == 'K "n/a": spec.x: text'


# -- problems ---------------------------------------------------------------------------------


def test_object_that_cannot_be_decoded_is_one_problem() -> None:
    found = checked(changed(claim(), {"spec.colour": "red"}), changed(claim(), {"spec": 5}))
    assert found.checked == 2
    assert [(each.kind, each.name, each.field) for each in found.problems] == [
        ("ResourceClaim", "default/c", "")
    ] * 2
    assert found.problems[0].text == 'strict decoding error: unknown field "spec.colour"'


def test_each_broken_rule_is_a_problem() -> None:
    broken = changed(slice_(), {"spec.driver": "Bad_", "spec.pool.name": ""})
    found = checked(broken, claim())
    assert found.checked == 2
    assert [each.field for each in found.problems] == ["spec.driver", "spec.pool.name"]
    assert all((each.kind, each.name) == ("ResourceSlice", "s") for each in found.problems)
    assert str(found.problems[1]) == 'ResourceSlice "s": spec.pool.name: Required value'


def test_objects_are_checked_at_their_own_version() -> None:
    flat = {"name": "gpu", "deviceClassName": "gpu.example.com"}
    old = {**claim(requests=[flat]), "apiVersion": "resource.k8s.io/v1beta1"}
    assert problems(old) == []
    bad = {**claim(requests=[{**flat, "deviceClassName": "Bad_"}]), "apiVersion": old["apiVersion"]}
    (found,) = checked(bad).problems
    # As on a real API server, the path is that of v1.
    assert found.field == "spec.devices.requests[0].exactly.deviceClassName"


@pytest.mark.parametrize("metadata", [{"name": "c"}, {"generateName": "c-"}])
def test_namespace_is_optional_and_a_name_can_be_generated(metadata: Any) -> None:
    assert problems({**claim(), "metadata": metadata}) == []


def test_object_needs_a_name() -> None:
    for metadata in ({}, {"namespace": "default"}):
        (found,) = checked({**claim(), "metadata": metadata}).problems
        assert (found.field, found.text) == (
            "metadata.name",
            "Required value: name or generateName is required",
        )


def test_name_is_checked() -> None:
    (found,) = checked(claim("Bad_")).problems
    assert found.field == "metadata.name"


# -- admin access -----------------------------------------------------------------------------

ADMIN = claim(requests=[{"name": "gpu", "exactly": {"deviceClassName": "d", "adminAccess": True}}])
NEEDS_LABEL = "spec.devices.requests[0].adminAccess"


def namespace(name: str = "default", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


@pytest.mark.parametrize(
    ("others", "is_allowed"),
    [
        ([], True),
        ([namespace("other")], True),
        ([{**namespace(labels={}), "kind": "Pod"}], True),
        ([namespace()], False),
        ([namespace(labels=None)], False),
        ([namespace(labels={"resource.kubernetes.io/admin-access": "false"})], False),
        ([namespace(labels={"resource.kubernetes.io/admin-access": "true"})], True),
        ([{"kind": "Namespace"}, {"kind": "Namespace", "metadata": None}], True),
    ],
)
@pytest.mark.parametrize("in_default", [{}, {"namespace": "default"}])
def test_admin_access_needs_the_label_of_the_namespace(
    others: Any, is_allowed: bool, in_default: dict[str, str]
) -> None:
    """A namespace that is not in the files may have it. The default namespace need not be named.

    The order of the objects does not matter.
    """
    value = {**ADMIN, "metadata": {"name": "c", **in_default}}
    for values in ([*others, value], [value, *others]):
        fields = [each.field for each in checked(*values).problems]
        assert fields == ([] if is_allowed else [NEEDS_LABEL])


def test_admin_access_in_a_status_needs_the_label() -> None:
    used = {"status": {"allocation": allocation(result(adminAccess=True))}}
    assert problems({**ADMIN, **used}) == []
    fields = [each.field for each in checked(namespace(), {**ADMIN, **used}).problems]
    assert fields == [NEEDS_LABEL, "status.allocation.devices.results[0].adminAccess"]


# -- status -----------------------------------------------------------------------------------


def test_status_of_a_claim_is_checked() -> None:
    assert problems({**claim(), "status": {"allocation": allocation()}}) == []
    assert problems({**claim(), "status": {}}) == []
    bad = allocation(result(request="none"))
    (found,) = checked({**claim(), "status": {"allocation": bad}}).problems
    assert (found.kind, found.name) == ("ResourceClaim", "default/c")
    assert found.field == "status.allocation.devices.results[0].request"


# -- consumed capacity ------------------------------------------------------------------------


def allocated(*results: Any, **fields: Any) -> dict[str, Any]:
    return {**claim(**fields), "status": {"allocation": allocation(*results)}}


def consumed(*names: str, **fields: Any) -> Any:
    share = "22222222-2222-4222-8222-222222222222"
    return result(shareID=share, consumedCapacity=dict.fromkeys(names, "1"), **fields)


def test_consumed_capacity_that_the_slice_lacks_is_a_note() -> None:
    shared = slice_(devices=[device(allowMultipleAllocations=True), device("gpu-1", capacity={})])
    found = checked(allocated(consumed("memory", "cores", "a")), shared)
    assert found.problems == []
    place = 'ResourceClaim "default/c": status.allocation.devices.results[0].consumedCapacity'
    assert found.notes == [
        f"{place}[{name}]: device gpu.example.com/node-1/gpu-0 has no such capacity: use the names "
        "of its slice: memory"
        for name in ("a", "cores")
    ]
    found = checked(shared, allocated(result(), consumed("cores", device="gpu-1")))
    assert [each.partition("results")[2] for each in found.notes] == [
        "[1].consumedCapacity[cores]: device gpu.example.com/node-1/gpu-1 has no such capacity: "
        "use the names of its slice: it has none"
    ]


def test_names_of_all_capacities_are_shown_in_order() -> None:
    capacity = {name: {"value": "1"} for name in ("b", "c", "a")}
    found = checked(slice_(devices=[device(capacity=capacity)]), allocated(consumed("x")))
    assert found.notes[0].endswith(": a, b, c")


@pytest.mark.parametrize(
    "other",
    [
        {"driver": "other.example.com"},
        {"pool": "other"},
        {"device": "other"},
    ],
)
def test_capacity_of_a_device_in_no_file_is_not_compared(other: dict[str, str]) -> None:
    assert checked(slice_(), allocated(consumed("cores", **other))).notes == []


def test_claims_without_results_are_not_compared() -> None:
    for status in ({}, {"allocation": {}}, {"allocation": {"devices": {}}}):
        found = checked(slice_(), {**claim(), "status": status})
        assert (found.problems, found.notes) == ([], [])


def test_missing_names_are_empty() -> None:
    """Such objects are invalid, but each problem is still reported."""
    unnamed = {"request": "gpu", "consumedCapacity": {"x": "1"}}
    bare = {**slice_(), "spec": {"devices": [{}]}}
    found = checked(bare, allocated(unnamed))
    assert [each.partition("[x]: ")[2] for each in found.notes] == [
        "device // has no such capacity: use the names of its slice: it has none"
    ]
    assert found.problems
