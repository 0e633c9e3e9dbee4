"""Rules for objects of resource.k8s.io: errors that a real API server gave, without a server."""

from __future__ import annotations

import copy

import pytest

from devicemanager.apiserver.offline import check_objects
from tests.apiserver.real_answers.objects import DROP, changed, slice_
from tests.apiserver.real_answers.running import recorded
from tests.apiserver.real_answers.table import Call, calls

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
"""A namespace in which admin access is not allowed."""
CAUSES = {
    each["name"]: {
        (cause["field"], cause["message"]) for cause in each["body"]["details"]["causes"]
    }
    for each in recorded()
    if each["code"] == 422 and (each["body"].get("details") or {}).get("causes")
}
REJECTED = [
    each
    for each in calls()
    if each.name in CAUSES
    and isinstance(each.body, dict)
    and "resource.k8s.io/v1/" in each.path
    and (
        each.method == "POST"
        or (each.method == "PUT" and each.path.partition("?")[0].endswith("/status"))
    )
    # This rule compares with the stored object, which the check does not have.
    and each.name != "status of another allocation"
]


@pytest.mark.parametrize("call", REJECTED, ids=lambda call: call.name)
def test_broken_rules_are_those_of_a_real_server(call: Call) -> None:
    problems = check_objects([NAMESPACE, copy.deepcopy(call.body)]).problems
    assert {(each.field, each.text) for each in problems} == CAUSES[call.name]


@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_slice_can_select_a_node_by_name(operator: str) -> None:
    field = {"key": "metadata.name", "operator": operator, "values": ["node-1"]}
    nodes = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    value = changed(slice_(nodeSelector=nodes), {"spec.nodeName": DROP})
    assert check_objects([value]).problems == []
