"""Protobuf bodies: those that Go's client writes, and the way there and back."""

import base64
import json

import pytest

from devicemanager.apiserver import FakeApiServer, Permission
from devicemanager.apiserver.protobuf import (
    CONTENT_TYPE,
    ProtobufError,
    decode,
    encode,
)
from tests.paths import ROOT

# Written by k8s.io/apimachinery 0.37.2: a body, and the same object as Go's JSON.
ROWS = [
    json.loads(line) for line in (ROOT / "tests/data/k8s_protobuf.jsonl").read_text().splitlines()
]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def row(name):
    (found,) = (each for each in ROWS if each["name"] == name)
    return base64.b64decode(found["body"]), found["json"]


def without_empty(value):
    """Remove empty texts, lists and objects: Go writes some of them, which say nothing."""
    if isinstance(value, dict):
        return {
            key: inner
            for key, each in value.items()
            if (inner := without_empty(each)) not in ("", None, {}, []) or key in ("string", "e")
        }
    return [without_empty(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", [each["name"] for each in ROWS])
def test_body_of_go_has_the_fields_of_gos_json(name):
    body, wanted = row(name)
    assert without_empty(decode(body)) == without_empty(wanted)


@pytest.mark.parametrize("name", [each["name"] for each in ROWS])
def test_encoded_object_is_decoded_to_the_same(name):
    body, wanted = row(name)
    value = decode(body)
    assert decode(encode(value)) == value
    assert without_empty(decode(encode(wanted))) == without_empty(wanted)


def test_values_have_the_types_of_the_api():
    value = decode(row("slice")[0])
    assert value["spec"]["pool"]["generation"] == 0, "written also if zero"
    device = value["spec"]["devices"][0]
    assert device["attributes"]["index"] == {"int": 0}
    assert device["attributes"]["ok"] == {"bool": False}
    assert device["attributes"]["model"] == {"string": ""}
    assert device["capacity"]["none"] == {"value": "0"}
    assert "creationTimestamp" not in value["metadata"]
    assert "generation" not in value["metadata"]
    config = decode(row("claim")[0])["spec"]["devices"]["config"]
    assert config[0]["opaque"]["parameters"] == {"kind": "K", "n": 1.5}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{}", "expected prefix"),
        (b"k8s\x00\xff", "invalid protobuf body"),
        (encode({"apiVersion": "v1", "kind": "DeleteOptions"})[:-1], "invalid protobuf body"),
    ],
)
def test_broken_body_is_an_error(body, text):
    with pytest.raises(ProtobufError, match=text):
        decode(body)


def test_kind_without_a_message_is_an_error():
    with pytest.raises(ProtobufError, match="batch/v1 Job has no protobuf message"):
        encode({"apiVersion": "batch/v1", "kind": "Job"})
    body = encode({"apiVersion": "v1", "kind": "Event"}).replace(b"\x05Event", b"\x05Other")
    with pytest.raises(ProtobufError, match="cannot decode protobuf of v1 Other"):
        decode(body)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (1, "ResourceSlice.spec: expected an object"),
        ({"pool": {"generation": "x"}}, "ResourceSlice.spec.pool.generation: "),
        ({"devices": [{"name": 1}]}, r"ResourceSlice.spec.devices\[0\].name: "),
        (
            {"devices": [{"attributes": {"a": {"int": "1"}}}]},
            r"ResourceSlice.spec.devices\[0\].attributes\[a\].int: ",
        ),
        ({"devices": 1}, "ResourceSlice.spec.devices: "),
    ],
)
def test_wrong_type_names_the_field(spec, text):
    value = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": spec}
    with pytest.raises(ProtobufError, match=text):
        encode(value)


def test_unknown_fields_are_left_out():
    value = {"apiVersion": "v1", "kind": "Event", "reason": "R", "colour": "red"}
    assert decode(encode(value)) == {"apiVersion": "v1", "kind": "Event", "reason": "R"}


# -- over HTTP -------------------------------------------------------------------------


def send(server, method, path, body, accept=f"{CONTENT_TYPE},application/json"):
    headers = {"Content-Type": CONTENT_TYPE, "Accept": accept}
    request = server._handler.parse(method, path, headers, body)
    return server._handler.respond(request)


def test_slice_is_created_and_deleted_with_protobuf(apiserver):
    value = row("slice")[1]
    # The recorded slice has a value in every field, which no API server accepts.
    del value["spec"]["allNodes"]
    value["spec"]["devices"][0]["allowMultipleAllocations"] = True
    code, text = send(apiserver, "POST", SLICES, encode(value))
    made = json.loads(text)
    assert code == 201
    assert made["spec"] == value["spec"]
    name = made["metadata"]["name"]
    assert name.startswith("00000-gpu.example.com-n-")
    uid = made["metadata"]["uid"]
    options = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
    }
    send(apiserver, "DELETE", f"{SLICES}/{name}", encode(options))
    assert apiserver.all("resourceslices") == []


def test_broken_protobuf_is_a_bad_request(apiserver):
    with pytest.raises(Exception, match="expected prefix") as caught:
        send(apiserver, "POST", SLICES, b"{}")
    assert caught.value.code == 400


def test_body_of_another_type_is_not_supported(apiserver):
    with pytest.raises(Exception, match="unknown format") as caught:
        apiserver._handler.parse("POST", SLICES, {"Content-Type": "text/plain"}, b"x")
    assert caught.value.code == 415


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"resourceAttributes": {"verb": "get", "resource": "pods"}}, True),
        ({"resourceAttributes": {"verb": "list", "resource": "pods"}}, False),
        (
            {"resourceAttributes": {"verb": "get", "resource": "pods", "subresource": "status"}},
            False,
        ),
        ({"nonResourceAttributes": {"verb": "get", "path": "/version"}}, True),
        ({}, False),
    ],
)
def test_permissions_are_reviewed(spec, allowed):
    """As for `kubectl auth can-i`."""
    api_version, kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
    server = FakeApiServer(allowed=[Permission("", "pods", "get")])
    body = encode({"apiVersion": api_version, "kind": kind, "spec": spec})
    path = f"/apis/{api_version}/selfsubjectaccessreviews"
    code, text = send(server, "POST", path, body)
    assert code == 201
    answer = json.loads(text)
    assert (answer["apiVersion"], answer["kind"]) == (api_version, kind)
    assert answer["status"] == {"allowed": allowed}
