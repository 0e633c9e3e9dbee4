"""Rules of the fake API server for objects, patches, selectors, watches and permissions."""

import json

import attrs
import pytest

from devicemanager.apiserver import errors, list_options, store
from devicemanager.apiserver.authorization import (
    Permission,
    Permissions,
    forbidden,
    node_may,
    node_of,
    permission_for,
    permissions_of,
)
from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.faults import Faults
from devicemanager.apiserver.faults import Request as FaultRequest
from devicemanager.apiserver.handling import RequestHandler
from devicemanager.apiserver.kinds import KINDS, Kind, target
from devicemanager.apiserver.patches import PatchError, json_patch, merge, strategic_merge
from devicemanager.apiserver.registry import Registry
from devicemanager.apiserver.selectors import check_fields, selector
from devicemanager.apiserver.store import Store
from devicemanager.apiserver.watch import Watch
from devicemanager.objects.dra import FieldError
from devicemanager.objects.status import times

PODS = "/api/v1/namespaces/default/pods"


def at(name="a", below=""):
    return target(f"{PODS}/{name}/{below}".rstrip("/"))


@pytest.fixture
def registry():
    registry = Registry(Store())
    registry.create_namespaces()
    return registry


def pod(name="a", **spec):
    return {"metadata": {"name": name}, "spec": {"nodeName": "n", **spec}}


# -- paths -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api/v1/nodes", ("nodes", "", "", "")),
        ("/api/v1/nodes/a/status", ("nodes", "", "a", "status")),
        ("/api/v1/namespaces/a", ("namespaces", "", "a", "")),
        ("/api/v1/pods", ("pods", "", "", "")),
        (f"{PODS}/a/status", ("pods", "default", "a", "status")),
        ("/apis/coordination.k8s.io/v1/namespaces/n/leases/a", ("leases", "n", "a", "")),
    ],
)
def test_path_names_a_target(path, found):
    named = target(path)
    assert (named.kind.plural, named.namespace, named.name, named.subresource) == found


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/api/v2/nodes", "/apis/batch/v1", "/api/v1/x", "/x/y/z"]
)
def test_unknown_path_has_no_target(path):
    assert target(path) is None


# -- merge patches ---------------------------------------------------------------------


def test_merge_patch_replaces_lists_and_removes_null():
    old = {"a": {"b": 1, "c": [1]}, "d": 1}
    assert merge(old, {"a": {"b": None, "c": [2]}, "e": {"f": None}}) == {
        "a": {"c": [2]},
        "d": 1,
        "e": {},
    }
    assert old == {"a": {"b": 1, "c": [1]}, "d": 1}


def test_strategic_merge_merges_conditions_by_type():
    old = {"conditions": [{"type": "A", "status": "x", "extra": 1}, {"type": "B"}]}
    new = {"conditions": [{"type": "C"}, {"type": "A", "status": "y"}]}
    assert strategic_merge(old, new)["conditions"] == [
        {"type": "A", "status": "y", "extra": 1},
        {"type": "B"},
        {"type": "C"},
    ]


def test_strategic_merge_deletes_and_replaces():
    old = {"conditions": [{"type": "A"}, {"type": "B"}], "addresses": [{"type": "X"}]}
    new = {
        "conditions": [{"$patch": "delete", "type": "A"}],
        "$setElementOrder/conditions": [{"type": "B"}],
        "addresses": [{"type": "Y"}, {"$patch": "replace"}],
    }
    assert strategic_merge(old, new) == {
        "conditions": [{"type": "B"}],
        "addresses": [{"type": "Y"}],
    }


def test_strategic_merge_replaces_container_statuses_and_taints():
    old = {"containerStatuses": [{"name": "a"}], "taints": [{"key": "a"}], "x": {"y": 1}}
    new = {"containerStatuses": [{"name": "b"}], "taints": [], "x": {"$patch": "replace", "z": 1}}
    assert strategic_merge(old, new) == {
        "containerStatuses": [{"name": "b"}],
        "taints": [],
        "x": {"z": 1},
    }


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("conditions", "type"),
        ("addresses", "type"),
        ("hostIPs", "ip"),
        ("podIPs", "ip"),
        ("ownerReferences", "uid"),
        ("containers", "name"),
        ("initContainers", "name"),
        ("ephemeralContainers", "name"),
        ("volumes", "name"),
        ("env", "name"),
    ],
)
def test_strategic_merge_merges_lists_by_their_key(field, key):
    """The keys are those of ``patchMergeKey`` in k8s.io/api."""
    old = {field: [{key: "a", "x": 1}, {key: "b"}]}
    found = strategic_merge(old, {field: [{key: "c"}, {key: "a", "y": 2}]})
    assert found == {field: [{key: "a", "x": 1, "y": 2}, {key: "b"}, {key: "c"}]}
    assert strategic_merge({}, {field: [{key: "c"}]}) == {field: [{key: "c"}]}
    assert old == {field: [{key: "a", "x": 1}, {key: "b"}]}


def test_strategic_merge_leaves_out_directives_and_null():
    old = {"a": 1, "b": {"c": 1, "d": 2}, "e": 5}
    new = {"$retainKeys": ["a"], "a": None, "b": {"c": None}, "x": None, "e": {"f": 1}}
    assert strategic_merge(old, new) == {"b": {"d": 2}, "e": {"f": 1}}
    assert strategic_merge({}, {"$deleteFromPrimitiveList/finalizers": ["a"]}) == {"finalizers": []}
    assert strategic_merge({}, {"finalizers": ["a", "a"]}) == {"finalizers": ["a"]}


@pytest.mark.parametrize(
    ("step", "found"),
    [
        ({"op": "add", "path": "/a", "value": 5}, {"a": 5, "l": [1, 2]}),
        ({"op": "add", "path": "/l/0", "value": 5}, {"a": {"b": 1}, "l": [5, 1, 2]}),
        ({"op": "add", "path": "/l/2", "value": 5}, {"a": {"b": 1}, "l": [1, 2, 5]}),
        ({"op": "add", "path": "/l/-", "value": 5}, {"a": {"b": 1}, "l": [1, 2, 5]}),
        ({"op": "add", "path": "/a/x~1y~0z", "value": 5}, {"a": {"b": 1, "x/y~z": 5}, "l": [1, 2]}),
        ({"op": "add", "path": "", "value": 5}, 5),
        ({"op": "remove", "path": "/l/0"}, {"a": {"b": 1}, "l": [2]}),
        ({"op": "replace", "path": "/l/1", "value": 5}, {"a": {"b": 1}, "l": [1, 5]}),
        ({"op": "move", "from": "/a/b", "path": "/c"}, {"a": {}, "l": [1, 2], "c": 1}),
        ({"op": "copy", "from": "/a", "path": "/c"}, {"a": {"b": 1}, "l": [1, 2], "c": {"b": 1}}),
        ({"op": "test", "path": "/l", "value": [1, 2]}, {"a": {"b": 1}, "l": [1, 2]}),
    ],
)
def test_step_of_a_json_patch(step, found):
    old = {"a": {"b": 1}, "l": [1, 2]}
    assert json_patch(old, [step]) == found
    assert old == {"a": {"b": 1}, "l": [1, 2]}


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"op": "test", "path": "/l", "value": [2]}, "testing value /l failed"),
        ({"op": "other", "path": "/l"}, "unknown operation 'other'"),
        ({"op": "remove", "path": "/x"}, "'x'"),
        ({"op": "replace", "path": "/l/2", "value": 5}, "pop index out of range"),
        ({"op": "add", "path": "/l/3", "value": 5}, "index 3 is out of range"),
        ({"op": "add", "path": "/l/x", "value": 5}, "invalid literal for int()"),
        ({"op": "add", "path": "/l"}, "'value'"),
        ({"path": "/l"}, "'op'"),
        ({"op": "remove", "path": 1}, "path 1 is not a string"),
        ({"op": "add", "path": None, "value": 5}, "path None is not a string"),
        ({"op": "copy", "from": ["a"], "path": "/c"}, "path ['a'] is not a string"),
        ({"op": "move", "from": {}, "path": "/c"}, "path {} is not a string"),
        ({"op": "add", "path": "/a/b/c", "value": 5}, "'int' object"),
    ],
)
def test_step_of_a_json_patch_that_cannot_be_applied(step, text):
    with pytest.raises(PatchError) as raised:
        json_patch({"a": {"b": 1}, "l": [1, 2]}, [step])
    assert str(raised.value).startswith(f"invalid JSON patch: {text}")


def test_strategic_merge_treats_finalizers_as_a_set():
    assert strategic_merge({"finalizers": ["a"]}, {"finalizers": ["a", "b"]})["finalizers"] == [
        "a",
        "b",
    ]
    rest = strategic_merge(
        {"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}
    )
    assert rest["finalizers"] == ["b"]


# -- selectors -------------------------------------------------------------------------

THING = {"metadata": {"name": "a", "labels": {"k": "v"}}, "spec": {"nodeName": "n"}}


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ({}, True),
        ({"fieldSelector": "spec.nodeName=n"}, True),
        ({"fieldSelector": "spec.nodeName!="}, True),
        ({"fieldSelector": "spec.nodeName!=,metadata.name==b"}, False),
        ({"fieldSelector": "status.phase="}, True),
        ({"labelSelector": "k=v"}, True),
        ({"labelSelector": "k!=v"}, False),
        ({"labelSelector": "k"}, True),
        ({"labelSelector": "!k"}, False),
        ({"labelSelector": "k in (a, v),k notin (b)"}, True),
        ({"labelSelector": "x in (a)"}, False),
        ({"labelSelector": "k in ( v )"}, True),
        ({"labelSelector": "k notin (v)"}, False),
        ({"labelSelector": "x notin (v)"}, True),
        ({"labelSelector": "k==v"}, True),
        ({"labelSelector": "x!=v"}, True),
        ({"labelSelector": "x"}, False),
        ({"labelSelector": "!x"}, True),
        ({"labelSelector": "!x,k"}, True),
        ({"labelSelector": ""}, True),
        ({"labelSelector": "k=v, x"}, False),
        ({"fieldSelector": "spec.nodeName=n", "labelSelector": "x"}, False),
        ({"fieldSelector": "metadata.name.deeper="}, True),
        ({"fieldSelector": "metadata.name=a=b"}, False),
    ],
)
def test_selector_matches(query, chosen):
    assert selector(query)(THING) is chosen


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            {"labelSelector": "k=a=b"},
            "unable to parse requirement: found '=', expected: identifier",
        ),
        (
            {"labelSelector": "k,,x"},
            "invalid selector: a term is empty: use KEY, KEY=VALUE or KEY in (A, B)",
        ),
    ],
)
def test_invalid_selector_is_an_error(query, text):
    with pytest.raises(ValueError) as raised:
        selector(query)
    assert str(raised.value) == text


SLICES = target("/apis/resource.k8s.io/v1/resourceslices")
CLASSES = target("/apis/resource.k8s.io/v1beta1/deviceclasses")


@pytest.mark.parametrize(
    ("where", "text", "error"),
    [
        (SLICES, "metadata.name=a,spec.nodeName!=b,spec.driver==c,spec.pool.name=", None),
        (SLICES, None, None),
        (
            SLICES,
            "metadata.namespace=a",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: "
            "metadata.namespace",
        ),
        (SLICES, "a", "invalid selector: 'a'; can't understand 'a'"),
        (CLASSES, "metadata.name=a,metadata.namespace=b", None),
        (
            CLASSES,
            "spec.driver=a",
            '"spec.driver" is not a known field selector: only "metadata.name", '
            '"metadata.namespace"',
        ),
        (target(PODS), "anything", None),
    ],
)
def test_fields_of_selectors_are_those_of_the_kind(where, text, error):
    if error is None:
        check_fields(text, where)
        return
    with pytest.raises(ValueError) as raised:
        check_fields(text, where)
    assert str(raised.value) == error


# -- options of lists ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "name", "text", "found"),
    [
        (list_options.version, "resourceVersion", "007", 7),
        (list_options.version, "resourceVersion", "", 0),
        (list_options.start, "continue", "5", 5),
        (list_options.start, "continue", "", 0),
        (lambda query: list_options.number(query, "limit"), "limit", "-5", -5),
        (lambda query: list_options.number(query, "limit"), "limit", "", 0),
    ],
)
def test_number_of_a_query(read, name, text, found):
    assert read({name: text}) == found
    assert read({}) == 0


@pytest.mark.parametrize(
    ("read", "query", "code", "reason", "text"),
    [
        (
            list_options.version,
            {"resourceVersion": "x" * 50},
            500,
            "",
            f'resourceVersion: Invalid value: "{"x" * 40}... (10 more characters)": '
            f'strconv.ParseUint: parsing "{"x" * 40}... (10 more characters)": invalid syntax',
        ),
        (
            list_options.version,
            {"resourceVersion": "-1"},
            500,
            "",
            'resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": invalid syntax',
        ),
        (
            list_options.version,
            {"resourceVersion": "²"},
            500,
            "",
            'resourceVersion: Invalid value: "²": strconv.ParseUint: parsing "²": invalid syntax',
        ),
        (
            list_options.start,
            {"continue": "²"},
            400,
            "BadRequest",
            "continue key is not valid: '²'",
        ),
        (
            lambda query: list_options.number(query, "limit"),
            {"limit": "x"},
            400,
            "BadRequest",
            'strconv.ParseInt: parsing "x": invalid syntax',
        ),
        (
            lambda query: list_options.check_version(query, 6),
            {"resourceVersion": "7"},
            504,
            "Timeout",
            "Timeout: Too large resource version: 7, current: 6",
        ),
    ],
)
def test_invalid_number_of_a_query(read, query, code, reason, text):
    with pytest.raises(StatusError) as raised:
        read(query)
    error = raised.value
    assert (error.code, error.reason, error.message) == (code, reason, text)
    if code == 504:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        assert error.details == {"causes": [cause], "retryAfterSeconds": 1}


def test_current_version_can_be_requested():
    list_options.check_version({"resourceVersion": "7"}, 7)
    for match in ("", "Exact", "NotOlderThan"):
        list_options.check_list({"resourceVersionMatch": match, "resourceVersion": "7"}, 7)


MATCH, INITIAL = "resourceVersionMatch", "sendInitialEvents"


@pytest.mark.parametrize(
    ("query", "watch_list", "found"),
    [
        ({}, True, None),
        ({MATCH: ""}, False, None),
        ({INITIAL: "true", MATCH: "NotOlderThan"}, True, True),
        ({INITIAL: "1", MATCH: "NotOlderThan"}, True, True),
        ({INITIAL: "false", MATCH: "NotOlderThan"}, True, False),
    ],
)
def test_initial_events_are_an_option(query, watch_list, found):
    assert list_options.wants_initial_events(query, watch_list=watch_list) is found


@pytest.mark.parametrize(
    ("query", "watch_list", "causes"),
    [
        (
            {MATCH: "Exact"},
            True,
            [(MATCH, f"Forbidden: {MATCH} is forbidden for watch unless {INITIAL} is provided")],
        ),
        (
            {INITIAL: "true"},
            True,
            [(MATCH, f"Forbidden: {INITIAL} requires setting {MATCH} to NotOlderThan")],
        ),
        (
            {INITIAL: "", MATCH: "Exact"},
            False,
            [
                (MATCH, f"Forbidden: {INITIAL} requires setting {MATCH} to NotOlderThan"),
                (MATCH, 'Unsupported value: "Exact": supported values: "NotOlderThan"'),
                (
                    INITIAL,
                    f"Forbidden: {INITIAL} is forbidden for watch unless the WatchList feature "
                    "gate is enabled",
                ),
            ],
        ),
    ],
)
def test_contradicting_options_of_a_watch(query, watch_list, causes):
    with pytest.raises(StatusError) as raised:
        list_options.wants_initial_events(query, watch_list=watch_list)
    assert raised.value.code == 422
    found = raised.value.details["causes"]
    assert [(each["field"], each["message"]) for each in found] == causes


@pytest.mark.parametrize(
    ("query", "field", "text"),
    [
        ({INITIAL: "false"}, INITIAL, f"Forbidden: {INITIAL} is forbidden for list"),
        (
            {MATCH: "Exact"},
            MATCH,
            f"Forbidden: {MATCH} is forbidden unless resourceVersion is provided",
        ),
        (
            {MATCH: "Other", "resourceVersion": "1"},
            MATCH,
            'Unsupported value: "Other": supported values: "Exact", "NotOlderThan", ""',
        ),
    ],
)
def test_contradicting_options_of_a_list(query, field, text):
    with pytest.raises(StatusError) as raised:
        list_options.check_list(query, 7)
    (cause,) = raised.value.details["causes"]
    assert (raised.value.code, cause["field"], cause["message"]) == (422, field, text)


# -- errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (400, "BadRequest"),
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (404, "NotFound"),
        (405, "MethodNotAllowed"),
        (406, "NotAcceptable"),
        (409, "Conflict"),
        (410, "Expired"),
        (413, "RequestEntityTooLarge"),
        (415, "UnsupportedMediaType"),
        (418, "Unknown"),
        (422, "Invalid"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
        (504, "Timeout"),
    ],
)
def test_error_has_the_reason_of_its_code(code, reason):
    """The reasons are ``metav1.StatusReason``."""
    assert StatusError(code, "text").body() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "text",
        "reason": reason,
        "code": code,
    }
    assert "reason" not in StatusError(code, "text", "").body()
    assert StatusError(code, "text", "Other", {}).body()["details"] == {}


CLAIM = target("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c")
CLAIM_DETAILS = {"name": "c", "group": "resource.k8s.io", "kind": "resourceclaims"}


@pytest.mark.parametrize(
    ("error", "code", "reason", "text", "details"),
    [
        (
            errors.not_allowed(),
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
            {},
        ),
        (
            errors.patch_rejected(ValueError()),
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
            {},
        ),
        (
            errors.too_large("why"),
            413,
            "RequestEntityTooLarge",
            "Request entity too large: why",
            None,
        ),
        (
            errors.not_found(CLAIM),
            404,
            "NotFound",
            'resourceclaims.resource.k8s.io "c" not found',
            CLAIM_DETAILS,
        ),
        (
            errors.already_exists(CLAIM, "d"),
            409,
            "AlreadyExists",
            'resourceclaims.resource.k8s.io "d" already exists',
            {**CLAIM_DETAILS, "name": "d"},
        ),
        (
            errors.conflict(CLAIM, "why"),
            409,
            "Conflict",
            'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "c": why',
            CLAIM_DETAILS,
        ),
        (
            errors.not_admitted(at(), "why"),
            403,
            "Forbidden",
            'pods "a" is forbidden: why',
            {"name": "a", "kind": "pods"},
        ),
        (
            errors.precondition_failed(at(), "x", "y"),
            409,
            "Conflict",
            'Operation cannot be fulfilled on pods "a": StorageError: invalid object, Code: 4, '
            "Key: /registry/pods/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition "
            "failed: UID in precondition: x, UID in object meta: y",
            {"name": "a", "kind": "pods"},
        ),
        (
            errors.deletion_rejected(CLAIM, "UID", "x", "y"),
            409,
            "Conflict",
            'Operation cannot be fulfilled on ResourceClaim.resource.k8s.io "c": the UID in the '
            "precondition (x) does not match the UID in record (y). The object might have been "
            "deleted and then recreated",
            {**CLAIM_DETAILS, "kind": "ResourceClaim"},
        ),
        (
            errors.deletion_rejected(at(), "ResourceVersion", "1", "2"),
            409,
            "Conflict",
            'Operation cannot be fulfilled on Pod "a": the ResourceVersion in the precondition (1) '
            "does not match the ResourceVersion in record (2). The object might have been modified",
            {"name": "a", "kind": "Pod"},
        ),
        (
            errors.update_rejected(at(), FieldError("FieldValueInvalid", "f", 1, "why")),
            422,
            "Invalid",
            'pods "a" is invalid: f: Invalid value: 1: why',
            {
                "name": "a",
                "kind": "pods",
                "causes": [
                    {
                        "reason": "FieldValueInvalid",
                        "message": "Invalid value: 1: why",
                        "field": "f",
                    }
                ],
            },
        ),
        *(
            (
                errors.undecodable(at(), "why", body),
                400,
                "BadRequest",
                f"the object provided is unrecognized (must be of type Pod): why ({shown})",
                None,
            )
            for body, shown in (
                (b"", "<empty>"),
                (b"{" + b"x" * 29, "{" + "x" * 29),
                (b"{" + b"x" * 30, "{" + "x" * 29 + " ..."),
                (b"ab", "6162"),
                (b"[" * 31, "5b" * 30 + " ..."),
            )
        ),
    ],
)
def test_errors_have_the_texts_of_the_api_server(error, code, reason, text, details):
    assert (error.code, error.reason, error.message) == (code, reason, text)
    assert error.details == details


def test_deletion_names_what_was_deleted():
    assert errors.deleted(CLAIM, "u") == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**CLAIM_DETAILS, "uid": "u"},
    }


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (StatusError(418, "text"), 418, "text"),
        (RecursionError(), 400, "the object is nested too deeply: exceeded max depth"),
        (
            KeyError("a\n"),
            500,
            "this request caused the API server to panic: KeyError('a\\n')",
        ),
    ],
)
def test_each_failure_is_a_status(raised, code, text):
    with pytest.raises(StatusError) as found, errors.as_status():
        raise raised
    assert (found.value.code, found.value.message) == (code, text)


# -- who may send a request --------------------------------------------------------------


def handled(method, path, headers=None, *, allowed=None, token=None, body=b""):
    handler = RequestHandler(Registry(Store()), Faults(), Permissions(allowed), token)
    request = handler.parse(method, path, headers or {}, body)
    handler.authorize(request)
    return handler, request


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("Bearer t", True),
        ("bearer t", True),
        ("Bearer other", False),
        ("Basic t", False),
        ("t", False),
        ("", False),
        (None, False),
    ],
)
def test_token_is_required(header, accepted):
    headers = {} if header is None else {"Authorization": header}
    if accepted:
        handled("GET", PODS, headers, token="t")
    else:
        with pytest.raises(StatusError) as raised:
            handled("GET", PODS, headers, token="t")
        assert (raised.value.code, raised.value.message) == (401, "Unauthorized")


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [
        ("GET", PODS, "list"),
        ("GET", f"{PODS}?watch=1", "watch"),
        ("GET", f"{PODS}?watch=true", "watch"),
        ("GET", f"{PODS}?watch=0", "list"),
        ("GET", f"{PODS}/a", "get"),
        ("POST", PODS, "create"),
        ("PUT", f"{PODS}/a", "update"),
        ("PATCH", f"{PODS}/a", "patch"),
        ("DELETE", f"{PODS}/a", "delete"),
        ("DELETE", PODS, "deletecollection"),
    ],
)
def test_request_needs_the_permission_for_its_verb(method, path, verb):
    body = b"{}"
    _, request = handled(method, path, allowed=[Permission("", "pods", verb)], body=body)
    assert request.verb == verb
    with pytest.raises(StatusError) as raised:
        handled(method, path, allowed=[], body=body)
    assert raised.value.code == 403
    assert f' cannot {verb} resource "pods" ' in raised.value.message


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def test_impersonation_needs_both_permissions():
    headers = {"Impersonate-User": "u", "Impersonate-Group": "g"}
    both = [Permission("", what, "impersonate") for what in ("users", "groups")]
    pods = Permission("", "pods", "list")
    handler, _ = handled("GET", PODS, headers, allowed=[*both, pods])
    assert handler.permissions.used == {*both, pods}
    for index, (what, name) in enumerate((("users", "u"), ("groups", "g"))):
        others = [each for each in both if each is not both[index]]
        with pytest.raises(StatusError) as raised:
            handled("GET", PODS, headers, allowed=[*others, pods])
        assert raised.value.code == 403
        text = raised.value.message
        assert text.startswith(f'{what} "{name}" is forbidden: User "')
        assert text.endswith(
            f'" cannot impersonate resource "{what}" in API group "" at the cluster scope'
        )
    with pytest.raises(StatusError) as raised:
        handled("GET", PODS, headers, allowed=both)
    assert raised.value.message.startswith('pods is forbidden: User "u" cannot list')


def test_review_needs_no_permission():
    handler, _ = handled("POST", REVIEWS, allowed=[], body=b"{}")
    assert handler.permissions.used == set()


def test_node_changes_only_its_own_pods(registry):
    handler = RequestHandler(registry, Faults(), Permissions(), None)
    registry.create(COLLECTION, pod("a"))
    for node, verb in (("n", None), ("m", "delete")):
        headers = {"Impersonate-User": f"system:node:{node}"}
        for name in ("a", "missing"):
            request = handler.parse("DELETE", f"{PODS}/{name}", headers, b"")
            if verb is None or name == "missing":
                handler.authorize(request)
                continue
            with pytest.raises(StatusError) as raised:
                handler.authorize(request)
            assert (raised.value.code, raised.value.message) == (
                403,
                'pods "a" is forbidden: node "m" can only delete pods with spec.nodeName set to '
                "itself",
            )
        status = handler.parse("PATCH", f"{PODS}/a/status", headers, b"{}")
        if verb is None:
            handler.authorize(status)
        else:
            with pytest.raises(StatusError, match=r'node "m" can only update pod status for pods'):
                handler.authorize(status)


def test_fault_fires_for_its_requests_and_times():
    faults, pods = Faults(), FaultRequest("get", "pods")
    assert faults.code(pods) is None
    faults.fail(500, lambda request: request.resource == "pods", times=2)
    faults.fail(503)
    assert faults.code(FaultRequest("get", "nodes")) == 503
    assert [faults.code(pods) for _ in range(4)] == [500, 500, 503, 503]
    faults.slow, faults.silent, faults.second_writer = 1.0, True, lambda request: True
    faults.clear()
    assert faults.code(pods) is None
    assert (faults.slow, faults.silent, faults.second_writer(pods)) == (0.0, False, False)
    faults.fail(500, times=0)
    faults.fail(501, probability=0.0)
    assert faults.code(pods) is None
    faults.fail(502, probability=0.5)
    found = [faults.code(pods) for _ in range(200)]
    assert set(found) == {502, None} and 60 < found.count(502) < 140


def test_fault_has_its_code():
    handler, request = handled("GET", f"{PODS}/a/status")
    handler.faults.fail(418, lambda found: found == request.for_faults)
    with pytest.raises(StatusError) as raised:
        handler.authorize(request)
    assert (raised.value.code, raised.value.message) == (418, "injected fault")
    assert request.for_faults == FaultRequest("get", "pods", "default", "a", "status")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/none", 404),
        ("GET", "/apis/resource.k8s.io/v1/none", 404),
        ("POST", "/api/v1/pods", 405),
        ("POST", f"{PODS}/a", 405),
        ("POST", f"{PODS}/a/status", 405),
        ("POST", f"{PODS}/a/binding", None),
        ("POST", f"{PODS}/a/eviction", None),
        ("POST", "/api/v1/nodes", None),
    ],
)
def test_objects_are_created_in_collections_only(method, path, code):
    if code is None:
        handled(method, path, body=b"{}")
        return
    with pytest.raises(StatusError) as raised:
        handled(method, path, body=b"{}")
    assert raised.value.code == code
    assert raised.value.details == {}
    if code == 404:
        assert raised.value.message == "the server could not find the requested resource"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/api/v9/pods",
        "/apis/none/v1/pods",
        "/apis/v1/pods",
        "/x/v1/pods",
        "/x/batch/v1/jobs",
    ],
)
def test_page_of_an_unknown_group_is_not_found(path):
    with pytest.raises(errors.PageNotFound) as raised:
        handled("GET", path)
    assert (raised.value.code, raised.value.message) == (404, "404 page not found")


@pytest.mark.parametrize(
    ("method", "path", "body", "is_dry"),
    [
        ("POST", f"{PODS}?dryRun=All", b"{}", True),
        ("POST", f"{PODS}?dryRun=Other", b"{}", False),
        ("POST", PODS, b'{"dryRun": ["All"]}', False),
        ("DELETE", f"{PODS}/a", b'{"dryRun": ["All"]}', True),
        ("DELETE", f"{PODS}/a", b'{"dryRun": []}', False),
        ("DELETE", f"{PODS}/a", b"", False),
        ("DELETE", f"{PODS}/a?dryRun=All", b"", True),
    ],
)
def test_dry_run_is_an_option(method, path, body, is_dry):
    assert handled(method, path, body=body)[1].is_dry is is_dry


# -- objects ---------------------------------------------------------------------------


COLLECTION = target(PODS)
NODES = target("/api/v1/nodes")


def get(registry, name="a"):
    stored = registry.store.get(KINDS["pods"], "default", name)
    return None if stored is None else stored.value


def fails(code, call, *args):
    with pytest.raises(StatusError) as caught:
        call(*args)
    assert caught.value.code == code
    return caught.value


def test_create_sets_uid_and_version(registry):
    value = registry.create(COLLECTION, pod()).value
    assert value["metadata"]["namespace"] == "default"
    assert value["metadata"]["uid"]
    assert value["metadata"]["resourceVersion"]
    assert value["status"]["phase"] == "Pending"
    assert fails(409, registry.create, COLLECTION, pod()).reason == "AlreadyExists"
    generated = registry.create(COLLECTION, {"metadata": {"generateName": "g-"}}).value
    assert generated["metadata"]["name"].startswith("g-")
    fails(422, registry.create, COLLECTION, {})


def test_generated_name_in_use_is_generated_again(registry, monkeypatch):
    letters = iter("b" * 10 + "c" * 45)
    monkeypatch.setattr("secrets.choice", lambda _: next(letters))
    given = {"metadata": {"generateName": "g-"}}
    made = [registry.create(COLLECTION, given).value["metadata"]["name"] for _ in range(2)]
    assert made == ["g-bbbbb", "g-ccccc"]
    with pytest.raises(StatusError) as caught:
        registry.create(COLLECTION, given)
    assert caught.value.code == 409 and next(letters, None) is None


def test_node_is_created_with_the_not_ready_taint(registry):
    node = registry.create(NODES, {"metadata": {"name": "n"}}).value
    assert node["spec"]["taints"] == [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    ]


def test_status_subresource_changes_only_the_status(registry):
    registry.create(COLLECTION, pod())
    registry.change(
        at(below="status"), lambda old: {**old, "spec": {}, "status": {"phase": "Running"}}
    )
    assert get(registry)["spec"]["nodeName"] == "n"
    assert get(registry)["status"] == {"phase": "Running"}
    registry.change(at(), lambda old: {**old, "status": {}})
    assert get(registry)["status"] == {"phase": "Running"}


def test_change_without_effect_creates_no_version(registry):
    before = registry.create(COLLECTION, pod()).version
    assert registry.change(at(below="status"), lambda old: old).version == before


def test_other_uid_or_version_is_a_conflict(registry):
    registry.create(COLLECTION, pod())

    def other(key):
        return lambda old: {**old, "metadata": {**old["metadata"], key: "1"}}

    fails(422, registry.change, at(below="status"), other("uid"))
    fails(409, registry.replace, at(), {"metadata": {"uid": "1"}})
    fails(409, registry.change, at(below="status"), other("resourceVersion"))
    fails(404, registry.change, at("b"), lambda old: old)


def test_resource_health_is_stored_only_with_the_gate():
    registry = Registry(Store(), stores_resource_health=False)
    registry.create_namespaces()
    registry.create(COLLECTION, pod())
    status = {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": []}]}
    registry.change(at(below="status"), lambda old: {**old, "status": status})
    assert get(registry)["status"] == {"containerStatuses": [{"name": "c"}]}


def test_bound_pod_is_deleted_in_two_steps(registry):
    registry.create(COLLECTION, pod(terminationGracePeriodSeconds=5))
    registry.delete(at(), {})
    assert get(registry)["metadata"]["deletionGracePeriodSeconds"] == 5
    version = registry.store.version
    registry.delete(at(), {})
    assert registry.store.version == version, "no change"
    uid = get(registry)["metadata"]["uid"]
    fails(409, registry.delete, at(), {"gracePeriodSeconds": 0, "preconditions": {"uid": "x"}})
    registry.delete(at(), {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
    assert get(registry) is None
    fails(404, registry.delete, at(), {})


@pytest.mark.parametrize(("phase", "node"), [("Succeeded", "n"), ("Failed", "n"), ("Pending", "")])
def test_pod_that_does_not_run_is_deleted_at_once(registry, phase, node):
    registry.create(COLLECTION, {**pod(nodeName=node), "status": {"phase": phase}})
    registry.delete(at(), {})
    assert get(registry) is None


def test_finalizer_keeps_a_pod_until_it_is_removed(registry):
    value = pod()
    value["metadata"]["finalizers"] = ["f"]
    registry.create(COLLECTION, value)
    registry.delete(at(), {"gracePeriodSeconds": 0})
    assert get(registry)["metadata"]["deletionGracePeriodSeconds"] == 0

    def released(old):
        return {**old, "metadata": {**old["metadata"], "finalizers": []}}

    registry.change(at(), released)
    assert get(registry) is None


def test_second_deletion_of_an_object_with_finalizers_changes_nothing(registry):
    value = {"metadata": {"name": "a", "finalizers": ["f"]}}
    registry.create(NODES, value)
    node = attrs.evolve(NODES, name="a")
    deleted = registry.delete(node, {})
    assert deleted.value["metadata"]["deletionGracePeriodSeconds"] == 0
    assert registry.delete(node, {}) is deleted
    assert registry.store.version == deleted.version


def test_shorter_grace_period_keeps_the_generation(registry):
    value = pod(terminationGracePeriodSeconds=5)
    value["metadata"]["finalizers"] = ["f"]
    registry.create(COLLECTION, value)
    registry.delete(at(), {})
    generation = get(registry)["metadata"]["generation"]
    registry.delete(at(), {"gracePeriodSeconds": 0})
    assert get(registry)["metadata"]["deletionGracePeriodSeconds"] == 0
    assert get(registry)["metadata"]["generation"] == generation


@pytest.mark.parametrize(
    ("requested", "due", "grace"),
    [(40, 1040, 40), (20, 1020, 20), (10, 1020, 1), (-5, 1020, 1), (0, 1020, 0), (90, 1090, 90)],
)
def test_shorter_grace_period_counts_from_the_first_deletion(
    registry, monkeypatch, requested, due, grace
):
    value = pod(terminationGracePeriodSeconds=100)
    value["metadata"]["finalizers"] = ["f"]
    registry.create(COLLECTION, value)
    monkeypatch.setattr("time.time", lambda: 1000.0)
    registry.delete(at(), {})
    monkeypatch.setattr("time.time", lambda: 1020.0)
    registry.delete(at(), {"gracePeriodSeconds": requested})
    assert get(registry)["metadata"]["deletionTimestamp"] == times.timestamp(due)
    assert get(registry)["metadata"]["deletionGracePeriodSeconds"] == grace


def test_negative_grace_period_is_one_second(registry):
    registry.create(COLLECTION, pod())
    registry.delete(at(), {"gracePeriodSeconds": -5})
    assert get(registry)["metadata"]["deletionGracePeriodSeconds"] == 1


def test_created_object_is_not_being_deleted(registry):
    value = pod()
    value["metadata"] |= {"deletionTimestamp": "x", "deletionGracePeriodSeconds": 5}
    created = registry.create(COLLECTION, value).value["metadata"]
    assert not {"deletionTimestamp", "deletionGracePeriodSeconds"} & created.keys()


def test_second_deletion_without_a_grace_period_changes_nothing(registry):
    registry.create(COLLECTION, pod(terminationGracePeriodSeconds=5))
    registry.delete(at(), {"gracePeriodSeconds": 60})
    succeeded = {"status": {"phase": "Succeeded"}}
    registry.change(at(below="status"), lambda old: {**old, **succeeded})
    version = registry.store.version
    registry.delete(at(), {})
    assert registry.store.version == version


def test_failed_removal_keeps_the_object(registry, monkeypatch):
    registry.create(COLLECTION, pod())
    version = registry.store.version
    monkeypatch.setattr(store, "MAX_OBJECT", 10)
    fails(500, registry.delete, at(), {"gracePeriodSeconds": 0})
    assert get(registry) is not None
    assert registry.store.version == version


def test_pod_is_bound_once(registry):
    registry.create(COLLECTION, pod(nodeName=""))
    binding = {"target": {"name": "n"}}
    registry.bind(at(below="binding"), binding)
    assert get(registry)["spec"]["nodeName"] == "n"
    assert get(registry)["status"]["conditions"][0]["type"] == "PodScheduled"
    fails(409, registry.bind, at(below="binding"), binding)


# -- watch -----------------------------------------------------------------------------


def events(registry, since, query, *, seconds=0.05, bookmarks=60.0):
    watch = Watch(registry.store, COLLECTION, selector(query), since, seconds)
    return [json.loads(line) for line in watch.lines(bookmarks, lambda: False)]


def kinds(found):
    return [event["type"] for event in found]


def test_watch_yields_events_in_order(registry):
    since = registry.store.version
    registry.create(COLLECTION, pod())
    registry.create(NODES, {"metadata": {"name": "n"}})
    registry.change(at(below="status"), lambda old: {**old, "status": {}})
    registry.delete(at(), {"gracePeriodSeconds": 0})
    found = events(registry, since, {})
    assert kinds(found) == ["ADDED", "MODIFIED", "DELETED"]
    assert found[-1]["object"]["metadata"]["resourceVersion"] == str(registry.store.version)


def test_a_pod_that_is_bound_is_new_to_who_watches_bound_ones(registry):
    registry.create(COLLECTION, pod(nodeName=""))
    since = registry.store.version
    registry.bind(at(below="binding"), {"target": {"name": "n"}})
    assert kinds(events(registry, since, {"fieldSelector": "spec.nodeName!="})) == ["ADDED"]
    assert kinds(events(registry, since, {"fieldSelector": "spec.nodeName="})) == ["DELETED"]


def test_watch_without_a_version_starts_with_all_objects(registry):
    registry.create(COLLECTION, pod())
    assert kinds(events(registry, 0, {})) == ["ADDED"]


def test_watch_yields_bookmarks(registry):
    found = events(registry, registry.store.version, {}, bookmarks=0.01)
    assert kinds(found)[0] == "BOOKMARK"
    assert found[0]["object"]["metadata"]["resourceVersion"] == str(registry.store.version)


def test_watch_from_a_forgotten_version_expires(registry):
    since = registry.store.version
    registry.create(COLLECTION, pod())
    registry.store.forget()
    (error,) = events(registry, since, {})
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)


# -- permissions ----------------------------------------------------------------------------


def test_permissions_are_recorded_and_enforced():
    permissions = Permissions(
        permissions_of(
            [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get"]}]
        )
    )
    assert permissions.use(permission_for("get", at(below="status")))
    assert not permissions.use(permission_for("delete", at()))
    assert permissions.used == {
        Permission("", "pods/status", "get"),
        Permission("", "pods", "delete"),
    }
    assert permissions.review({"resourceAttributes": {"resource": "pods", "verb": "get"}})
    assert not permissions.review({"resourceAttributes": {"resource": "nodes", "verb": "get"}})
    permissions.forget()
    assert not permissions.used
    error = forbidden("u", "delete", at())
    assert (error.code, error.message) == (
        403,
        'pods is forbidden: User "u" cannot delete resource "pods" in API group "" '
        'in the namespace "default"',
    )


def test_permissions_are_those_of_all_rules():
    assert permissions_of(
        [
            {"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        ]
    ) == {
        Permission("", "pods", "get"),
        Permission("", "pods", "list"),
        Permission("apps", "pods", "get"),
        Permission("apps", "pods", "list"),
        Permission("", "nodes", "get"),
    }


def test_permission_has_the_group_and_the_subresource():
    claim = target("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c/status")
    assert permission_for("patch", claim) == Permission(
        "resource.k8s.io", "resourceclaims/status", "patch"
    )
    error = forbidden("u", "get", target("/apis/resource.k8s.io/v1/deviceclasses/d"))
    assert error.message == (
        'deviceclasses is forbidden: User "u" cannot get resource "deviceclasses" '
        'in API group "resource.k8s.io" at the cluster scope'
    )


def test_review_names_group_subresource_and_verb():
    permissions = Permissions([Permission("g", "pods/status", "get"), Permission("", "pods", "")])
    of = {"group": "g", "resource": "pods", "subresource": "status", "verb": "get"}
    assert permissions.review({"resourceAttributes": of})
    for name in of:
        assert not permissions.review({"resourceAttributes": {**of, name: ""}}), name
    assert permissions.review({"resourceAttributes": {"resource": "pods"}})
    assert permissions.review({"nonResourceAttributes": {}})
    assert not permissions.review({})
    assert permissions.used == set(), "a review needs no permission"
    assert Permissions().allows(Permission("g", "any", "any"))
    assert not Permissions([]).use(Permission("g", "any", "any"))


def test_user_of_a_node_has_a_prefix():
    assert node_of("system:node:a") == "a"
    assert node_of("system:node:") == ""
    assert node_of("a") is None and node_of(None) is None


VERBS = ("create", "get", "list", "watch", "update", "patch", "delete", "deletecollection")
NODE_RULES = {
    "/api/v1/nodes": "create get list watch update patch",
    "/api/v1/nodes/n/status": "update patch",
    PODS: "create get list watch delete",
    f"{PODS}/p/status": "update patch",
    f"{PODS}/p/eviction": "create",
    f"{PODS}/p/binding": "",
    f"{PODS}/p/resize": "",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims": "get",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c/status": "",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates": "",
    "/apis/resource.k8s.io/v1/resourceslices": " ".join(VERBS),
    "/apis/resource.k8s.io/v1/deviceclasses": "",
    "/api/v1/namespaces/default/events": "create update patch",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases": (
        "create get update patch delete"
    ),
    "/apis/batch/v1/namespaces/default/jobs": "",
}


@pytest.mark.parametrize("path", NODE_RULES)
def test_node_may_use_the_verbs_of_its_role(path):
    """Those of the role ``system:node`` and of the Node authorizer (v1.32)."""
    query = {"fieldSelector": "metadata.name=n,spec.nodeName=n"}
    allowed = [verb for verb in VERBS if node_may("n", verb, target(path), query)]
    assert sorted(allowed) == sorted(NODE_RULES[path].split())


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v1/nodes", "metadata.name"),
        (PODS, "spec.nodeName"),
        ("/apis/resource.k8s.io/v1/resourceslices", "spec.nodeName"),
    ],
)
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_node_must_select_its_own_objects(path, field, verb):
    def may(query):
        return node_may("n", verb, target(path), query)

    assert may({"fieldSelector": f"{field}=n"})
    assert may({"fieldSelector": f"a=b,{field}=n"})
    others = {"metadata.name": "spec.nodeName", "spec.nodeName": "metadata.name"}
    for selector_ in ("", None, f"{field}=m", f"{field}=nn", f"{others[field]}=n"):
        assert not may({"fieldSelector": selector_})
    assert not may({"labelSelector": f"{field}=n"})


def test_node_deletes_only_its_own_collection():
    slices = target("/apis/resource.k8s.io/v1/resourceslices")
    assert not node_may("n", "deletecollection", slices, {})
    assert node_may("n", "deletecollection", slices, {"fieldSelector": "spec.nodeName=n"})


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/v1/nodes/n", True),
        ("/api/v1/nodes/m", False),
        ("/api/v1/nodes", True),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n", True),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/m", False),
        (f"{PODS}/m", True),
    ],
)
def test_node_has_its_own_node_and_lease_only(path, allowed):
    assert node_may("n", "get", target(path), {}) is allowed


def test_kinds_have_api_versions():
    assert KINDS["jobs"].api_version == "batch/v1"
    assert KINDS["nodes"].api_version == "v1"
    assert all(isinstance(kind, Kind) for kind in KINDS.values())
