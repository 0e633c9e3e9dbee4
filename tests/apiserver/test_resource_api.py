"""The group resource.k8s.io over HTTP: versions, watches, collections, conflicts, discovery."""

import json
import threading

import pytest

from devicemanager.apiserver import FakeApiServer, request_log
from devicemanager.apiserver.conversion import from_stored, to_stored
from devicemanager.apiserver.discovery import document
from devicemanager.apiserver.kinds import KINDS, Kind, Kinds
from devicemanager.apiserver.request_log import LoggedRequest, RequestLog
from devicemanager.claims.cel import dra
from devicemanager.claims.errors import ClaimsUnavailable
from devicemanager.client.errors import ApiError, Conflict, NotFound

GROUP = "/apis/resource.k8s.io"
SLICES = f"{GROUP}/v1/resourceslices"
CLASSES = f"{GROUP}/v1/deviceclasses"
CLAIMS = f"{GROUP}/v1/namespaces/default/resourceclaims"
INITIAL = {
    "watch": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def device_slice(name="s", *, driver="gpu.example.com", node="n", **spec):
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0", "attributes": {"model": {"string": "A100"}}}]
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices, **spec}
    return {"metadata": {"name": name}, "spec": spec}


def claim(name="c", **exactly):
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", **exactly}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


# -- versions --------------------------------------------------------------------------


def test_device_of_v1beta1_has_its_fields_below_basic(api):
    api.request("POST", SLICES, device_slice())
    old = api.request("GET", f"{GROUP}/v1beta1/resourceslices/s")
    assert old["apiVersion"] == "resource.k8s.io/v1beta1"
    (device,) = old["spec"]["devices"]
    assert device == {"name": "gpu-0", "basic": {"attributes": {"model": {"string": "A100"}}}}
    device["basic"]["capacity"] = {"memory": {"value": "1Gi"}}
    api.request("PUT", f"{GROUP}/v1beta1/resourceslices/s", old)
    new = api.request("GET", f"{SLICES}/s")
    assert new["apiVersion"] == "resource.k8s.io/v1"
    assert new["spec"]["devices"][0]["capacity"] == {"memory": {"value": "1Gi"}}


def test_request_of_v1beta1_has_no_exactly(api):
    api.request("POST", CLAIMS, claim(adminAccess=False))
    path = CLAIMS.replace("/v1/", "/v1beta1/")
    (request,) = api.request("GET", f"{path}/c")["spec"]["devices"]["requests"]
    assert request == {
        "name": "gpu",
        "deviceClassName": "gpu.example.com",
        "adminAccess": False,
        "allocationMode": "ExactCount",
        "count": 1,
    }
    given = {"metadata": {"name": "d"}, "spec": {"devices": {"requests": [request]}}}
    api.request("POST", path, given)
    assert api.request("GET", f"{CLAIMS}/d")["spec"] == api.request("GET", f"{CLAIMS}/c")["spec"]
    listed = api.request("GET", path)
    assert listed["apiVersion"] == "resource.k8s.io/v1beta1"
    assert [each["spec"] for each in listed["items"]] == [{"devices": {"requests": [request]}}] * 2


TEMPLATE = {
    "metadata": {"name": "t"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [
                    {"name": "a", "exactly": {"deviceClassName": "x"}},
                    {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "x"}]},
                ]
            }
        }
    },
}
EVENT = {
    "metadata": {"name": "e"},
    "involvedObject": {"kind": "Pod"},
    "message": "text",
    "source": {"component": "c"},
    "count": 2,
}


@pytest.mark.parametrize(
    ("plural", "value", "version"),
    [
        ("resourceslices", device_slice(), "resource.k8s.io/v1beta1"),
        ("resourceslices", device_slice(), "resource.k8s.io/v1beta2"),
        ("resourceslices", device_slice(devices=None), "resource.k8s.io/v1beta1"),
        ("resourceclaims", claim(count=2), "resource.k8s.io/v1beta1"),
        ("resourceclaimtemplates", TEMPLATE, "resource.k8s.io/v1beta1"),
        ("deviceclasses", {"metadata": {"name": "x"}, "spec": {}}, "resource.k8s.io/v1beta1"),
        ("events", EVENT, "events.k8s.io/v1"),
    ],
)
def test_conversion_there_and_back_changes_nothing(plural, value, version):
    kind = KINDS[plural]
    value = {**value, "apiVersion": kind.api_version, "kind": kind.name}
    other = from_stored(kind, version, value)
    assert other["apiVersion"] == version
    assert to_stored(kind, version, other) == value


def test_template_of_v1beta1_has_flat_requests():
    old = from_stored(KINDS["resourceclaimtemplates"], "resource.k8s.io/v1beta1", TEMPLATE)
    first, second = old["spec"]["spec"]["devices"]["requests"]
    assert first == {"name": "a", "deviceClassName": "x"}
    alternatives = TEMPLATE["spec"]["spec"]["devices"]["requests"][1]["firstAvailable"]
    assert second == {"name": "b", "deviceClassName": "", "firstAvailable": alternatives}


def test_events_of_both_groups_are_the_same_objects(api):
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    given = {"metadata": {"name": "e"}, "note": "text", "regarding": {"name": "p"}}
    api.request("POST", path, given)
    event = api.request("GET", "/api/v1/namespaces/default/events/e")
    assert (event["message"], event["involvedObject"]) == ("text", {"name": "p"})
    assert api.request("GET", f"{path}/e")["note"] == "text"


def test_patch_uses_the_version_of_the_request(api):
    api.request("POST", CLAIMS, claim())
    path = CLAIMS.replace("/v1/", "/v1beta1/")
    labels = {"metadata": {"labels": {"a": "b"}}}
    changed = api.request("PATCH", f"{path}/c", labels, patch="merge")
    assert changed["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu.example.com"
    stored = api.request("GET", f"{CLAIMS}/c")
    assert stored["metadata"]["labels"] == {"a": "b"}
    assert "exactly" in stored["spec"]["devices"]["requests"][0]


def test_hidden_version_is_not_served(tmp_path):
    hidden = Kinds(["resource.k8s.io/v1", "resource.k8s.io/v1beta2"])
    assert hidden.target(SLICES) is None
    named = hidden.target(f"{GROUP}/v1beta1/resourceslices")
    assert named.api_version == "resource.k8s.io/v1beta1"
    assert hidden.of("resource.k8s.io/v1", "ResourceSlice") is None
    assert hidden.of("resource.k8s.io/v1beta1", "ResourceSlice")[0].plural == "resourceslices"


def test_wrong_kind_version_or_name_in_a_body_is_an_error(api):
    for given, text in (
        ({"kind": "Pod"}, "cannot be handled as a ResourceSlice"),
        ({"apiVersion": "resource.k8s.io/v1beta1"}, "does not match the expected API version"),
    ):
        with pytest.raises(ApiError, match=text) as caught:
            api.request("POST", SLICES, {**device_slice(), **given})
        assert caught.value.code == 400
    api.request("POST", SLICES, device_slice())
    with pytest.raises(ApiError, match="does not match the name on the URL"):
        api.request("PUT", f"{SLICES}/s", device_slice("other"))


# -- watches ---------------------------------------------------------------------------


def watch(server, query, count, change=lambda: None):
    """Return the first events of a watch; ``change`` runs after the start of the watch."""
    kinds = server._handler.registry.kinds
    text = "&".join(f"{key}={value}" for key, value in query.items())
    request = server._handler.parse("GET", f"{SLICES}?{text}", {}, b"")
    assert kinds.target(SLICES) == request.target
    lines = server._handler.watch(request).lines(60, lambda: False)
    found = [json.loads(next(lines))]
    change()
    return [*found, *(json.loads(next(lines)) for _ in range(count - 1))]


def test_initial_events_end_with_a_bookmark(apiserver):
    apiserver.create("resourceslices", device_slice("a"))
    apiserver.create("resourceslices", device_slice("b", driver="other.example.com"))
    query = {**INITIAL, "fieldSelector": "spec.driver=gpu.example.com,spec.nodeName=n"}
    added, bookmark, later = watch(
        apiserver, query, 3, lambda: apiserver.create("resourceslices", device_slice("c"))
    )
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["object"]["kind"] == "ResourceSlice"
    assert (later["type"], later["object"]["metadata"]["name"]) == ("ADDED", "c")


def test_watch_without_initial_events_starts_with_changes(apiserver):
    apiserver.create("resourceslices", device_slice("a"))
    query = {**INITIAL, "sendInitialEvents": "false", "timeoutSeconds": "5"}
    thread = threading.Timer(0.05, apiserver.create, ["resourceslices", device_slice("b")])
    thread.start()
    (event,) = watch(apiserver, query, 1)
    thread.join()
    assert event["object"]["metadata"]["name"] == "b"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            {"watch": "1", "sendInitialEvents": "true"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            {"watch": "1", "resourceVersionMatch": "NotOlderThan"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (
            {"sendInitialEvents": "true"},
            'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: '
            "sendInitialEvents is forbidden for list",
        ),
        (
            {"resourceVersionMatch": "Exact"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
    ],
)
def test_options_that_contradict_each_other_are_invalid(api, query, text):
    with pytest.raises(ApiError) as caught:
        api.request("GET", SLICES, query=query)
    assert (caught.value.code, caught.value.message) == (422, text)


def test_server_without_watch_lists_refuses_initial_events(tmp_path):
    server = FakeApiServer(watch_list=False)
    with pytest.raises(Exception, match="WatchList feature gate") as caught:
        watch(server, INITIAL, 1)
    assert caught.value.code == 422


# -- selectors and collections ---------------------------------------------------------


def test_slices_are_selected_by_driver_and_node(api):
    for name, driver, node in (("a", "x", "n"), ("b", "x", "m"), ("c", "y", "n")):
        api.request("POST", SLICES, device_slice(name, driver=driver, node=node))
    query = {"fieldSelector": "spec.driver=x,spec.nodeName=n"}
    found = api.request("GET", SLICES, query=query)["items"]
    assert [each["metadata"]["name"] for each in found] == ["a"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            SLICES,
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.pool",
        ),
        (
            CLAIMS,
            '"spec.pool" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
)
def test_unknown_field_of_a_selector_is_an_error(api, path, text):
    with pytest.raises(ApiError) as caught:
        api.request("GET", path, query={"fieldSelector": "spec.pool=x"})
    assert (caught.value.code, caught.value.message) == (400, text)


def test_collection_is_deleted_by_selector(api, apiserver):
    for name, driver in (("a", "x"), ("b", "y"), ("c", "x")):
        api.request("POST", SLICES, device_slice(name, driver=driver))
    query = {"fieldSelector": "spec.driver=x,spec.nodeName=n"}
    deleted = api.request("DELETE", SLICES, query=query)
    assert deleted["kind"] == "ResourceSliceList"
    assert [each["metadata"]["name"] for each in deleted["items"]] == ["a", "c"]
    assert [each["metadata"]["name"] for each in apiserver.all("resourceslices")] == ["b"]
    (logged,) = apiserver.log.find(verb="deletecollection")
    assert logged.selector == "spec.driver=x,spec.nodeName=n"


def test_collection_of_all_namespaces_is_not_deleted(api):
    with pytest.raises(ApiError) as caught:
        api.request("DELETE", f"{GROUP}/v1/resourceclaims")
    assert caught.value.code == 405


# -- changes ---------------------------------------------------------------------------


def test_conflict_has_the_text_of_the_api_server(api):
    made = api.request("POST", SLICES, device_slice())
    made["spec"]["pool"]["generation"] = 2
    api.request("PUT", f"{SLICES}/s", made)
    with pytest.raises(Conflict) as caught:
        api.request("PUT", f"{SLICES}/s", made)
    assert caught.value.message == (
        'Operation cannot be fulfilled on resourceslices.resource.k8s.io "s": the object has been '
        "modified; please apply your changes to the latest version and try again"
    )


def test_preconditions_of_a_deletion(api):
    made = api.request("POST", SLICES, device_slice())["metadata"]
    for wanted, text in (
        ({"uid": "x"}, f"the UID in record \\({made['uid']}\\)"),
        (
            {"resourceVersion": "7"},
            f"the ResourceVersion in record \\({made['resourceVersion']}\\)",
        ),
    ):
        with pytest.raises(Conflict, match=text):
            api.request("DELETE", f"{SLICES}/s", {"preconditions": wanted})
    api.request("DELETE", f"{SLICES}/s", {"preconditions": {"uid": made["uid"]}})
    with pytest.raises(NotFound) as caught:
        api.request("GET", f"{SLICES}/s")
    assert caught.value.message == 'resourceslices.resource.k8s.io "s" not found'


def test_generation_counts_changes_of_the_spec(api):
    made = api.request("POST", SLICES, device_slice())
    assert made["metadata"]["generation"] == 1
    made["metadata"]["labels"] = {"a": "b"}
    made = api.request("PUT", f"{SLICES}/s", made)
    assert made["metadata"]["generation"] == 1
    made["spec"]["pool"]["generation"] = 2
    assert api.request("PUT", f"{SLICES}/s", made)["metadata"]["generation"] == 2


def test_generated_name_has_five_letters(api):
    given = device_slice()
    given["metadata"] = {"generateName": "00000-gpu-n-"}
    name = api.request("POST", SLICES, given)["metadata"]["name"]
    assert name.startswith("00000-gpu-n-")
    assert len(name) == len("00000-gpu-n-") + 5
    assert set(name[-5:]) <= set("bcdfghjklmnpqrstvwxz2456789")
    with pytest.raises(ApiError) as caught:
        api.request("POST", SLICES, {**given, "metadata": {}})
    assert caught.value.message == (
        'ResourceSlice.resource.k8s.io "" is invalid: metadata.name: Required value: '
        "name or generateName is required"
    )


def test_status_of_a_claim_is_a_subresource(api):
    chosen = {"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [chosen]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    made = api.request("POST", CLAIMS, {**claim(), "status": status})
    assert made["status"] == {}
    changed = api.request("PUT", f"{CLAIMS}/c/status", {**made, "status": status, "spec": {}})
    assert changed["status"] == status
    assert changed["spec"] == made["spec"]
    kept = api.request("PUT", f"{CLAIMS}/c", {**changed, "status": {}})
    assert kept["status"] == status


def test_defaults_of_a_claim(api):
    given = claim(tolerations=[{"key": "a"}])
    several = {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "x"}]}
    given["spec"]["devices"]["requests"].append(several)
    made = api.request("POST", CLAIMS, given)
    first, second = made["spec"]["devices"]["requests"]
    assert first["exactly"] == {
        "deviceClassName": "gpu.example.com",
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "a", "operator": "Equal"}],
    }
    assert second["firstAvailable"][0]["count"] == 1
    templates = CLAIMS.replace("resourceclaims", "resourceclaimtemplates")
    made = api.request("POST", templates, {"metadata": {"name": "t"}, "spec": {"spec": {}}})
    assert made["spec"] == {"metadata": {}, "spec": {"devices": {"requests": None}}}


def selecting(expression):
    selectors = [{"cel": {"expression": expression}}]
    return {"metadata": {"name": "x"}, "spec": {"selectors": selectors}}


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("device.driver ==", "Syntax error: mismatched input '<EOF>'"),
        ("device.driver", "must evaluate to bool"),
        ("device.vendor == 'x'", "undefined field 'vendor'"),
    ],
)
def test_invalid_expression_of_a_selector_is_refused(api, expression, text):
    with pytest.raises(ApiError, match=r"spec\.selectors\[0\]\.cel\.expression: Invalid") as raised:
        api.request("POST", CLASSES, selecting(expression))
    assert raised.value.code == 422
    assert text in raised.value.message


def test_expressions_are_not_checked_without_the_extra_claims(api, monkeypatch):
    def fails(_):
        raise ClaimsUnavailable("claims")

    monkeypatch.setattr(dra, "check_new_selector", fails)
    api.request("POST", CLASSES, selecting("device.driver =="))


def test_taints_get_a_time(api):
    taint = {"key": "k", "effect": "NoSchedule"}
    spec = {"devices": [{"name": "d", "taints": [taint]}]}
    made = api.request("POST", SLICES, device_slice(**spec))
    assert made["spec"]["devices"][0]["taints"][0]["timeAdded"].endswith("Z")
    rules = f"{GROUP}/v1/devicetaintrules"
    made = api.request("POST", rules, {"metadata": {"name": "r"}, "spec": {"taint": taint}})
    assert made["spec"]["taint"]["timeAdded"].endswith("Z")
    assert api.request("GET", f"{GROUP}/v1beta2/devicetaintrules/r")["spec"] == made["spec"]


# -- discovery and CRDs ----------------------------------------------------------------

WIDGETS = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["w"]},
        "versions": [
            {"name": "v1alpha1", "served": True, "storage": False},
            {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}},
        ],
    },
}


def test_discovery_lists_groups_versions_and_resources(api):
    assert api.request("GET", "/api")["versions"] == ["v1"]
    groups = {each["name"]: each for each in api.request("GET", "/apis")["groups"]}
    assert groups["resource.k8s.io"]["preferredVersion"]["version"] == "v1"
    assert [each["version"] for each in groups["resource.k8s.io"]["versions"]] == [
        "v1",
        "v1beta2",
        "v1beta1",
    ]
    assert api.request("GET", GROUP) == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        **groups["resource.k8s.io"],
    }
    listed = api.request("GET", f"{GROUP}/v1beta1")
    assert listed["groupVersion"] == "resource.k8s.io/v1beta1"
    rows = {each["name"]: each for each in listed["resources"]}
    assert set(rows) == {
        "resourceslices",
        "resourceclaims",
        "resourceclaims/status",
        "resourceclaimtemplates",
        "deviceclasses",
    }
    assert rows["resourceclaims"]["namespaced"] is True
    assert "deletecollection" in rows["resourceclaims"]["verbs"]
    core = {each["name"]: each for each in api.request("GET", "/api/v1")["resources"]}
    assert core["pods"]["shortNames"] == ["po"]
    assert core["pods"]["categories"] == ["all"]
    assert "categories" not in core["nodes"]
    for path in ("/apis/none.example.com", "/apis/resource.k8s.io/v9", "/api/v9"):
        with pytest.raises(NotFound):
            api.request("GET", path)


def rows(path, kinds=None):
    found = document(path, kinds or Kinds())
    assert (found["kind"], found["apiVersion"]) == ("APIResourceList", "v1")
    return {each["name"]: each for each in found["resources"]}


ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def test_rows_of_discovery_describe_resources():
    core = rows("/api/v1")
    assert list(core) == sorted(core, key=lambda name: name.partition("/")[0])
    pods = {"namespaced": True, "kind": "Pod"}
    assert core["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "verbs": ALL_VERBS,
        "shortNames": ["po"],
        "categories": ["all"],
        **pods,
    }
    below = {name: core.pop(f"pods/{name}") for name in ("binding", "eviction")}
    assert below == {
        name: {"name": f"pods/{name}", "singularName": "", "verbs": ["create"], **pods}
        for name in ("binding", "eviction")
    }
    for name, of in (
        ("pods/status", pods),
        ("pods/resize", pods),
        ("pods/ephemeralcontainers", pods),
        ("nodes/status", {"namespaced": False, "kind": "Node"}),
    ):
        verbs = ["get", "patch", "update"]
        assert core[name] == {"name": name, "singularName": "", "verbs": verbs, **of}
    plain = {"name": "secrets", "singularName": "secret", "namespaced": True, "kind": "Secret"}
    assert core["secrets"] == {**plain, "verbs": ALL_VERBS}
    short = {name: core[name]["shortNames"] for name in core if "shortNames" in core[name]}
    assert short == {
        "configmaps": ["cm"],
        "events": ["ev"],
        "namespaces": ["ns"],
        "nodes": ["no"],
        "pods": ["po"],
        "resourcequotas": ["quota"],
    }


def test_discovery_lists_api_groups():
    assert document("/api", Kinds()) == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    }
    listed = document("/apis/", Kinds())
    assert (listed["kind"], listed["apiVersion"]) == ("APIGroupList", "v1")
    assert {
        each["name"]: [one["groupVersion"] for one in each["versions"]] for each in listed["groups"]
    } == {
        "events.k8s.io": ["events.k8s.io/v1"],
        "coordination.k8s.io": ["coordination.k8s.io/v1"],
        "batch": ["batch/v1"],
        "topology.node.k8s.io": ["topology.node.k8s.io/v1alpha2"],
        "authorization.k8s.io": ["authorization.k8s.io/v1"],
        "resource.k8s.io": [f"resource.k8s.io/{name}" for name in ("v1", "v1beta2", "v1beta1")],
        "apiextensions.k8s.io": ["apiextensions.k8s.io/v1"],
    }
    for each in listed["groups"]:
        assert each["preferredVersion"] == each["versions"][0]
        assert document(f"/apis/{each['name']}", Kinds()) == {
            "kind": "APIGroup",
            "apiVersion": "v1",
            **each,
        }


def test_stable_versions_are_preferred_in_a_group_of_several_kinds():
    kinds = Kinds()
    kinds.add(Kind("x.example.com", "v1alpha1", "as", "A"))
    kinds.add(Kind("x.example.com", "v1beta1", "bs", "B", others=("x.example.com/v1alpha1",)))
    kinds.add(Kind("x.example.com", "v2", "cs", "C"))
    found = document("/apis/x.example.com", kinds)
    names = [each["version"] for each in found["versions"]]
    assert names == ["v2", "v1alpha1", "v1beta1"]
    assert found["preferredVersion"] == {"groupVersion": "x.example.com/v2", "version": "v2"}
    assert set(rows("/apis/x.example.com/v1alpha1", kinds)) == {"as", "bs"}


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/apis/none",
        "/apis/none/v1",
        "/api/v9",
        "/api/v1/pods",
        "/apis/batch/v1/jobs",
        "/x/v1",
        "/openapi/v3/api/v9",
        "/openapi/v2",
    ],
)
def test_other_paths_have_no_document(path):
    assert document(path, Kinds()) is None


def test_openapi_has_a_patch_of_each_kind():
    index = document("/openapi/v3", Kinds())["paths"]
    assert list(index) == sorted(index)
    assert index["api/v1"] == {"serverRelativeURL": "/openapi/v3/api/v1"}
    assert index["apis/batch/v1"] == {"serverRelativeURL": "/openapi/v3/apis/batch/v1"}
    found = document("/openapi/v3/api/v1", Kinds())
    assert found["openapi"] == "3.0.0"
    assert found["info"] == {"title": "devicemanager", "version": "unversioned"}
    assert "/api/v1/namespaces/{namespace}/secrets/{name}" in found["paths"]
    assert found["paths"]["/api/v1/nodes/{name}"] == {
        "patch": {
            "operationId": "patchNode",
            "parameters": [
                {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
            ],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": {"group": "", "version": "v1", "kind": "Node"},
        }
    }


def test_openapi_says_that_unknown_fields_can_be_errors(api):
    """kubectl reads this before it creates or applies an object."""
    api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGETS)
    paths = api.request("GET", "/openapi/v3")["paths"]
    assert "api/v1" in paths
    for group, path, kind in (
        (f"{GROUP}/v1beta1"[1:], f"{GROUP}/v1beta1/resourceslices/{{name}}", "ResourceSlice"),
        (
            "apis/example.com/v1",
            "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}",
            "Widget",
        ),
    ):
        found = api.request("GET", paths[group]["serverRelativeURL"])["paths"][path]["patch"]
        _, name, version = group.split("/")
        assert found["x-kubernetes-group-version-kind"] == {
            "group": name,
            "version": version,
            "kind": kind,
        }
        assert [each["name"] for each in found["parameters"]] == ["fieldValidation"]
    with pytest.raises(NotFound):
        api.request("GET", "/openapi/v3/apis/none.example.com/v1")


@pytest.mark.parametrize(
    ("patch", "shown"),
    [
        (
            "strategic",
            '"map[spec:map[deviceses:[1 <nil> true]]]": strict decoding error: unknown field '
            '"spec.deviceses"',
        ),
        ("merge", '"{\\"apiVersion\\":\\"resource.k8s.io/v1\\",'),
    ],
)
def test_an_unknown_field_in_a_strict_patch_is_an_error(api, patch, shown):
    before = api.request("POST", SLICES, device_slice())
    body = {"spec": {"deviceses": [1, None, True]}}
    with pytest.raises(ApiError) as caught:
        api.request("PATCH", f"{SLICES}/s", body, patch=patch, query={"fieldValidation": "Strict"})
    assert caught.value.code == 422
    assert caught.value.message.startswith(f'"" is invalid: patch: Invalid value: {shown}')
    # Without the parameter, the field is dropped.
    assert api.request("PATCH", f"{SLICES}/s", body, patch=patch)["spec"] == before["spec"]


def test_objects_of_a_crd_are_stored_as_they_are(api, apiserver):
    api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGETS)
    path = "/apis/example.com/v1/namespaces/default/widgets"
    api.request("POST", path, {"metadata": {"name": "w"}, "spec": {"a": [1]}})
    old = api.request("GET", path.replace("/v1/", "/v1alpha1/") + "/w")
    assert (old["apiVersion"], old["spec"]) == ("example.com/v1alpha1", {"a": [1]})
    changed = api.request("PUT", f"{path}/w/status", {"status": {"ready": True}})
    assert changed["status"] == {"ready": True}
    assert apiserver.get("widgets.example.com", "w")["spec"] == {"a": [1]}
    assert len(apiserver.all("widgets")) == 1
    api.request(
        "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    )
    with pytest.raises(NotFound):
        api.request("GET", path)
    with pytest.raises(KeyError):
        apiserver.all("widgets")


def test_definitions_are_given_at_the_start(tmp_path):
    server = FakeApiServer(definitions=[WIDGETS])
    server.create("widgets", {"metadata": {"name": "w"}})
    assert server.get("widgets", "w")["kind"] == "Widget"
    with pytest.raises(ValueError, match=r"spec\.names\.plural"):
        FakeApiServer(definitions=[{"spec": {"group": "example.com"}}])


def test_invalid_definition_is_rejected(api):
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    with pytest.raises(ApiError) as caught:
        api.request("POST", path, {"metadata": {"name": "x"}})
    assert caught.value.code == 422


# -- log -------------------------------------------------------------------------------


def test_log_has_requests_with_responses(api, apiserver):
    api.request("POST", SLICES, device_slice())
    with pytest.raises(NotFound):
        api.request("GET", f"{CLAIMS}/missing")
    (made,) = apiserver.log.find(verb="create", resource="resourceslices", code=201)
    assert made.body["spec"]["driver"] == "gpu.example.com"
    assert made.version == "resource.k8s.io/v1"
    (missing,) = apiserver.log.find(name="missing")
    assert (missing.code, missing.namespace, missing.method) == (404, "default", "GET")
    assert missing.message == 'resourceclaims.resource.k8s.io "missing" not found'
    assert made.message == ""
    apiserver.log.clear()
    assert apiserver.log.find() == []
    with pytest.raises(AttributeError):
        api.request("GET", SLICES)
        apiserver.log.find(colour="red")


def test_log_says_what_a_request_was(api, apiserver):
    api.request("GET", SLICES, query={"fieldSelector": "spec.nodeName=n"})
    (listed,) = apiserver.log.find(verb="list")
    assert listed.selector == "spec.nodeName=n"
    assert listed.path == f"{SLICES}?fieldSelector=spec.nodeName%3Dn"
    assert (listed.subresource, listed.namespace, listed.name) == ("", "", "")
    assert (listed.content, listed.body, listed.size) == ("application/json", None, 0)


def logged(name="a", size=0):
    return LoggedRequest("GET", "/", 200, name=name, size=size)


def test_log_forgets_the_oldest_requests(monkeypatch):
    monkeypatch.setattr(request_log, "_LIMIT", 2)
    monkeypatch.setattr(request_log, "_MOST_BYTES", 10)
    log = RequestLog()
    for name in ("a", "b", "c"):
        log.add(logged(name, 5))
    assert [each.name for each in log.find()] == ["b", "c"]
    log.add(logged("d", 6))
    assert [each.name for each in log.find()] == ["d"]
    log.add(logged("e", 4))
    assert [each.name for each in log.find()] == ["d", "e"]
    log.clear()
    log.add(logged("f", 10))
    assert [each.name for each in log.find()] == ["f"]
    log.add(logged("g", 11))
    assert log.find() == []


def test_each_follower_gets_all_requests_since_its_call():
    log = RequestLog()
    log.add(logged("a"))
    first = log.follow()
    log.add(logged("b"))
    second = log.follow()
    for name in ("c", "d"):
        log.add(logged(name))
    assert [next(first).name for _ in range(3)] == ["b", "c", "d"]
    assert [next(second).name for _ in range(2)] == ["c", "d"]
    log.add(logged("e"))
    assert next(first).name == next(second).name == "e"


def test_requests_are_found_by_all_given_fields():
    log = RequestLog()
    for name, size in (("a", 1), ("a", 2), ("b", 1)):
        log.add(logged(name, size))
    assert log.find(name="a", size=1) == [logged("a", 1)]
    assert len(log.find(size=1)) == 2
    assert log.wait_for(2, name="a", timeout=0) == [logged("a", 1), logged("a", 2)]
    with pytest.raises(TimeoutError) as raised:
        log.wait_for(3, name="a", timeout=0)
    assert str(raised.value) == ("waited 0 s for requests with {'name': 'a'}: expected 3, found 2")


def test_followed_requests_start_at_the_call(api, apiserver):
    followed = apiserver.log.follow()
    api.request("POST", SLICES, device_slice())
    assert next(followed).verb == "create"


def test_log_waits_for_requests(api, apiserver):
    thread = threading.Timer(0.05, api.request, ["POST", SLICES, device_slice()])
    thread.start()
    (found,) = apiserver.log.wait_for(verb="create")
    thread.join()
    assert found.code == 201
    with pytest.raises(TimeoutError, match=r"for requests with .* expected 2, found 1"):
        apiserver.log.wait_for(2, timeout=0.01, verb="create")
