"""Claims of a pod: their names, templates, reservations and conditions."""

import pytest

from devicemanager.claims.dra.nodes import Node
from devicemanager.claims.dra.pods import (
    allows_node,
    claim_from_template,
    claim_names,
    entry_of,
    has_binding_failed,
    has_room,
    is_allocated,
    is_bindable,
    is_reserved_for,
    missing_templates,
    owning_pod,
    released,
    reserved,
    reserved_pods,
    with_allocation,
)

POD = {
    "metadata": {"name": "train", "namespace": "ml", "uid": "u-train"},
    "spec": {
        "resourceClaims": [
            {"name": "named", "resourceClaimName": "shared"},
            {"name": "new", "resourceClaimTemplateName": "half"},
            {"name": "made", "resourceClaimTemplateName": "half"},
            {"name": "skipped", "resourceClaimTemplateName": "half"},
        ]
    },
    "status": {
        "resourceClaimStatuses": [
            {"name": "made", "resourceClaimName": "train-made-x7k2p"},
            {"name": "skipped"},
        ]
    },
}
TRAIN = {"resource": "pods", "name": "train", "uid": "u-train"}


def test_claims_of_a_pod_are_named_created_or_not_needed():
    names = {"named": "shared", "new": None, "made": "train-made-x7k2p"}
    assert claim_names(POD) == names
    assert list(missing_templates(POD)) == [("new", "half")]
    assert claim_names({"spec": {}}) == {}
    assert list(missing_templates({"spec": {}})) == []


def test_claim_from_a_template_has_its_spec_and_metadata():
    devices = {"devices": {"requests": [{"name": "gpu"}]}}
    metadata = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    made = claim_from_template(POD, "new", {"spec": {"metadata": metadata, "spec": devices}})
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "train",
        "uid": "u-train",
        "controller": True,
    }
    assert made == {
        "metadata": {
            "generateName": "train-new-",
            "namespace": "ml",
            "annotations": {"c": "d", "resource.kubernetes.io/pod-claim-name": "new"},
            "ownerReferences": [owner],
            "labels": {"a": "b"},
        },
        "spec": devices,
    }
    assert (entry_of(made), owning_pod(made)) == ("new", "u-train")
    bare = claim_from_template(POD, "new", {})
    assert bare["spec"] == {} and "labels" not in bare["metadata"]


@pytest.mark.parametrize(
    ("pod", "entry", "name"),
    [
        ("p" * 50, "e" * 5, f"{'p' * 50}-{'e' * 5}-"),
        ("p" * 50, "e" * 6, f"{'p' * 49}-{'e' * 5}"),
        ("p" * 100, "e" * 14, f"{'p' * 49}-{'e' * 6}"),
    ],
)
def test_long_names_are_shortened_in_proportion(pod, entry, name):
    long = {"metadata": {**POD["metadata"], "name": pod}, "spec": {}}
    assert claim_from_template(long, entry, {})["metadata"]["generateName"] == name


def test_claim_of_a_user_has_no_entry_and_no_pod():
    others = [
        {"kind": "Pod", "uid": "a"},
        {"kind": "Pod", "uid": "b", "controller": False},
        {"kind": "Job", "uid": "c", "controller": True},
    ]
    claim = {"metadata": {"ownerReferences": others}}
    assert (entry_of(claim), owning_pod(claim)) == (None, None)
    assert owning_pod({"metadata": {}}) is None


def test_reservations_are_added_and_removed():
    other = {"resource": "pods", "name": "b", "uid": "u-b"}
    claim = {"metadata": {}, "status": {"allocation": {}, "devices": [], "reservedFor": [other]}}
    both = reserved(claim, POD)
    assert both["status"] == {**claim["status"], "reservedFor": [other, TRAIN]}
    assert claim["status"]["reservedFor"] == [other]
    assert (is_reserved_for(both, POD), is_reserved_for(claim, POD)) == (True, False)
    assert released(both, ["u-train"]) == claim
    # Without reservations, the claim is deallocated.
    assert released(both, ["u-train", "u-b"]) == {"metadata": {}, "status": {}}
    assert reserved({"metadata": {}}, POD)["status"] == {"reservedFor": [TRAIN]}
    job = {"resource": "jobs", "uid": "j"}
    assert reserved_pods({"status": {"reservedFor": [job, TRAIN]}}) == [TRAIN]
    assert reserved_pods({}) == []


@pytest.mark.parametrize(("users", "room"), [(0, True), (255, True), (256, False)])
def test_claim_has_room_for_256_pods(users, room):
    claim = {"status": {"reservedFor": [{"uid": str(number)} for number in range(users)]}}
    assert has_room(claim) is room


def test_allocation_is_in_the_status_with_its_time():
    result = {"devices": {"results": []}}
    now = "2026-01-31T12:00:00Z"
    claim = {"metadata": {}, "status": {"conditions": []}}
    made = with_allocation(claim, result, now)
    allocation = {**result, "allocationTimestamp": now}
    assert made == {"metadata": {}, "status": {"conditions": [], "allocation": allocation}}
    assert [is_allocated(each) for each in (made, claim, {})] == [True, False, False]


def test_selector_of_an_allocation_decides_on_which_nodes_it_is():
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    here = {"status": {"allocation": {"nodeSelector": selector}}}
    anywhere = {"status": {"allocation": {}}}
    assert [allows_node(here, Node(name)) for name in ("a", "b")] == [True, False]
    assert allows_node(anywhere, Node("b")) is True


@pytest.mark.parametrize(
    ("conditions", "bindable", "failed"),
    [
        ({}, False, False),
        ({"Ready": "True"}, False, False),
        ({"Ready": "True", "Linked": "False"}, False, False),
        ({"Ready": "True", "Linked": "True"}, True, False),
        ({"Ready": "True", "Linked": "True", "Broken": "True"}, True, True),
        ({"Broken": "False"}, False, False),
        ({"Broken": "True"}, False, True),
    ],
)
def test_conditions_of_a_device_decide_about_binding(conditions, bindable, failed):
    key = {"driver": "d", "pool": "p", "device": "x"}
    result = {
        **key,
        "bindingConditions": ["Ready", "Linked"],
        "bindingFailureConditions": ["Broken"],
    }
    plain = {**key, "device": "y"}
    status = {
        "allocation": {"devices": {"results": [plain, result]}},
        "devices": [
            # Conditions of another device do not count.
            {**key, "device": "z", "conditions": [{"type": "Broken", "status": "True"}]},
            {
                **key,
                "conditions": [{"type": name, "status": each} for name, each in conditions.items()],
            },
        ],
    }
    claim = {"status": status}
    assert (is_bindable(claim), has_binding_failed(claim)) == (bindable, failed)
