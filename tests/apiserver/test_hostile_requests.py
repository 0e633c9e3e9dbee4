"""Requests of hostile clients: each gets a response in one line, and others are served."""

import contextlib
import errno
import json
import resource
import socket
import struct
import threading

import pytest

from devicemanager.apiserver import request_log, server
from devicemanager.apiserver.bodies import typed
from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.kinds import target
from devicemanager.client.errors import Unavailable
from tests.timing import wait_until

PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@pytest.fixture
def send(apiserver):
    """Send bytes, and return the code and the status of the response."""

    def send(data):
        address = apiserver.url.removeprefix("http://").rsplit(":", 1)
        with socket.create_connection((address[0], int(address[1])), timeout=30) as peer:
            with contextlib.suppress(BrokenPipeError):
                peer.sendall(data)
            head, _, body = _until_body(peer)
        return int(head.split()[1]), json.loads(body)

    return send


def _until_body(peer):
    answer = b""
    while part := peer.recv(65536):
        answer += part
        with contextlib.suppress(ValueError):
            json.loads(answer.partition(b"\r\n\r\n")[2])
            break
    return answer.partition(b"\r\n\r\n")


def request(method, path, body, content="application/json"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nContent-Type: {content}\r\nContent-Length: {len(data)}"
    return f"{head}\r\n\r\n".encode() + data


YAML = "application/yaml"
BOMB = "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(30))


@pytest.mark.parametrize(
    ("content", "body", "text"),
    [
        ("application/json", b"[" * 20_000, "the object is nested too deeply: exceeded max depth"),
        (YAML, b"[" * 20_000, "yaml: nested more than 100 levels deep"),
        (YAML, f"a0: &a0 x\n{BOMB}".encode(), "yaml: more than 200000 values after aliases are"),
        (YAML, b"a: &a [*a]", "yaml: the alias *a is inside the value of its own anchor"),
        (YAML, b"a: \xff", "yaml: 'utf-8' codec can't decode byte 0xff"),
    ],
    ids=["deep JSON", "deep YAML", "references", "circle", "not UTF-8"],
)
def test_hostile_object_is_refused(send, content, body, text):
    code, status = send(request("POST", PODS, body, content))
    assert code == 400
    assert text in status["message"] and "\n" not in status["message"]


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        "x",
        {"name": 5},
        {"name": ["x"]},
        {"name": "a", "labels": [1]},
        {"name": "a", "labels": {"a": 1}},
        {"name": "a", "finalizers": 5},
        {"name": "a", "ownerReferences": ["x"]},
    ],
)
def test_metadata_of_a_wrong_type_is_refused_and_lists_go_on(send, api, metadata):
    code, status = send(request("POST", PODS, {"metadata": metadata}))
    assert code == 400
    assert 'Pod in version "v1" cannot be handled as a Pod: json: cannot' in status["message"]
    assert api.request("GET", PODS)["items"] == []


@pytest.mark.parametrize(
    ("content", "patch"),
    [
        (STRATEGIC, {"spec": {"containers": [1]}}),
        (STRATEGIC, {"metadata": 5}),
        (STRATEGIC, {"metadata": {"finalizers": [{}]}}),
        (JSON_PATCH, [{"op": "add", "path": 5, "value": 1}]),
        (JSON_PATCH, [{"op": "replace", "path": "", "value": 5}]),
        (JSON_PATCH, [{"op": "remove", "path": ""}]),
    ],
)
def test_hostile_patch_gets_a_response_and_changes_nothing(send, apiserver, content, patch):
    made = apiserver.create("pods", {"metadata": {"name": "a"}, "spec": {"containers": []}})
    code, status = send(request("PATCH", f"{PODS}/a", patch, content))
    assert code >= 400
    assert "\n" not in status["message"]
    assert apiserver.get("pods", "a") == made


@pytest.mark.parametrize("length", ["x", "-1", "1_0", "\u0661", "9" * 5000])
def test_invalid_length_is_refused(send, length):
    data = f"POST {PODS} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode()
    code, status = send(data)
    assert code == 400
    assert "invalid Content-Length" in status["message"]


def test_large_body_is_refused_as_a_whole(send, apiserver):
    # Its last part would be a request, if the server read only the first 3 MiB.
    inner = request("POST", PODS, {"metadata": {"name": "inner"}})
    code, status = send(request("POST", PODS, b" " * (3 << 20) + inner))
    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")
    assert status["message"] == "Request entity too large: limit is 3145728"
    assert apiserver.all("pods") == []


def test_error_of_the_server_is_a_response(apiserver, api, monkeypatch):
    def fail(*_):
        raise LookupError("two\nlines")

    monkeypatch.setattr(apiserver._handler, "respond", fail)
    text = r"500 InternalError: this request caused the API server to panic: LookupError\('two\\nl"
    with pytest.raises(Unavailable, match=text):
        api.attempt("GET", PODS)


POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"spec": 5}, "number into Go struct field Pod.spec of type v1.PodSpec"),
        ({"spec": []}, "array into Go struct field Pod.spec of type v1.PodSpec"),
        (
            {"spec": {"containers": {"a": {}}}},
            "object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"spec": {"containers": ["x"]}},
            "string into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        ({"spec": {"nodeName": 1}}, "number into Go struct field PodSpec.spec.nodeName of type"),
        ({"status": "x"}, "string into Go struct field Pod.status of type v1.PodStatus"),
        (
            {"spec": {"containers": [{"resources": []}]}},
            "array into Go struct field Container.spec.containers.resources of type "
            "v1.ResourceRequirements",
        ),
        (
            {"spec": {"initContainers": [{"resources": {"limits": ["1"]}}]}},
            "array into Go struct field ResourceRequirements.spec.initContainers.resources.limits "
            "of type v1.ResourceList",
        ),
    ],
)
def test_fields_of_a_wrong_type_are_refused(send, api, fields, text):
    code, status = send(request("POST", PODS, {**POD, **fields}))
    assert (code, status["message"]) == (
        400,
        f'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal {text}'
        + ("" if "of type v" in text or "of type [" in text else " string"),
    )
    assert api.request("GET", PODS)["items"] == []


CHECKED = {
    "Pod": {
        "metadata": "Pod.metadata of type v1.ObjectMeta",
        **{
            f"metadata.{name}": f"ObjectMeta.metadata.{name} of type {type_}"
            for name, type_ in (
                ("name", "string"),
                ("generateName", "string"),
                ("namespace", "string"),
                ("uid", "string"),
                ("resourceVersion", "string"),
                ("labels", "map[string]string"),
                ("annotations", "map[string]string"),
                ("finalizers", "[]string"),
                ("ownerReferences", "[]v1.OwnerReference"),
            )
        },
        "spec": "Pod.spec of type v1.PodSpec",
        "spec.nodeName": "PodSpec.spec.nodeName of type string",
        "spec.terminationGracePeriodSeconds": (
            "PodSpec.spec.terminationGracePeriodSeconds of type int64"
        ),
        "spec.priority": "PodSpec.spec.priority of type int32",
        "spec.containers": "PodSpec.spec.containers of type []v1.Container",
        "spec.initContainers": "PodSpec.spec.initContainers of type []v1.Container",
        "spec.tolerations": "PodSpec.spec.tolerations of type []v1.Toleration",
        "spec.resourceClaims": "PodSpec.spec.resourceClaims of type []v1.PodResourceClaim",
        "status": "Pod.status of type v1.PodStatus",
        "status.phase": "PodStatus.status.phase of type string",
        "status.conditions": "PodStatus.status.conditions of type []v1.PodCondition",
        "status.containerStatuses": (
            "PodStatus.status.containerStatuses of type []v1.ContainerStatus"
        ),
        "status.initContainerStatuses": (
            "PodStatus.status.initContainerStatuses of type []v1.ContainerStatus"
        ),
    },
    "Node": {
        "metadata.uid": "ObjectMeta.metadata.uid of type string",
        "spec": "Node.spec of type v1.NodeSpec",
        "spec.taints": "NodeSpec.spec.taints of type []v1.Taint",
        "status": "Node.status of type v1.NodeStatus",
        "status.capacity": "NodeStatus.status.capacity of type v1.ResourceList",
        "status.allocatable": "NodeStatus.status.allocatable of type v1.ResourceList",
        "status.conditions": "NodeStatus.status.conditions of type []v1.NodeCondition",
        "status.addresses": "NodeStatus.status.addresses of type []v1.NodeAddress",
    },
    "Lease": {"spec": "Lease.spec of type v1.LeaseSpec"},
}
COLLECTIONS = {
    "Pod": PODS,
    "Node": "/api/v1/nodes",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/default/leases",
}


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind, paths in CHECKED.items() for path in paths]
)
@pytest.mark.parametrize(("value", "word"), [(True, "bool"), (1.5, "number 1.5")])
def test_each_field_that_the_project_reads_has_its_type(kind, path, value, word):
    """The texts are those of Go's decoder."""
    *parents, name = path.split(".")
    body = {name: value}
    for each in reversed(parents):
        body = {each: body}
    with pytest.raises(StatusError) as raised:
        typed(target(COLLECTIONS[kind]), body, strict=False)
    assert raised.value.code == 400
    assert raised.value.message == (
        f'{kind} in version "v1" cannot be handled as a {kind}: json: cannot unmarshal {word} into '
        f"Go struct field {CHECKED[kind][path]}"
    )


def test_fields_without_a_value_are_accepted():
    for kind, paths in CHECKED.items():
        for path in paths:
            *parents, name = path.split(".")
            body = {name: None}
            for each in reversed(parents):
                body = {each: body}
            found = typed(target(COLLECTIONS[kind]), body, strict=False)
            assert found == {"metadata": {}, **({} if body == {"metadata": None} else body)}


@pytest.mark.parametrize("value", ["much", [], {}])
def test_invalid_quantities_are_refused(send, value):
    """The scheduler reads them."""
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": value}}}]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": value}}}
    for path, kind, body in ((PODS, "Pod", pod), ("/api/v1/nodes", "Node", node)):
        code, status = send(request("POST", path, body))
        text = f'{kind} in version "v1" cannot be handled as a {kind}: quantities must match'
        assert code == 400 and status["message"].startswith(text)


def test_node_without_a_spec_object_is_refused(send):
    body = {"metadata": {"name": "n"}, "spec": {"taints": {"key": "k"}}}
    code, status = send(request("POST", "/api/v1/nodes", body))
    assert code == 400
    assert "object into Go struct field NodeSpec.spec.taints of type []v1.Taint" in str(status)


@pytest.mark.parametrize(
    ("content", "patch"),
    [
        (STRATEGIC, {"spec": {"containers": {"a": 1}}}),
        ("application/merge-patch+json", {"spec": {"containers": {"a": 1}}}),
        (JSON_PATCH, [{"op": "replace", "path": "/spec/containers", "value": {"a": 1}}]),
    ],
)
def test_patch_cannot_store_containers_as_a_mapping(send, api, content, patch):
    assert send(request("POST", PODS, POD))[0] == 201
    code, status = send(request("PATCH", f"{PODS}/p", patch, content))
    assert (code, status["message"].rpartition(": ")[2]) == (
        422,
        "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type "
        "[]v1.Container".removeprefix("json: "),
    )
    stored = api.request("GET", f"{PODS}/p")
    assert [each["name"] for each in stored["spec"]["containers"]] == ["c"]


def test_negative_limit_has_no_effect_and_an_unknown_token_is_refused(send, api):
    for name in ("a", "b"):
        assert send(request("POST", PODS, {**POD, "metadata": {"name": name}}))[0] == 201
    listed = api.request("GET", PODS, query={"limit": "-5"})
    assert ([each["metadata"]["name"] for each in listed["items"]]) == ["a", "b"]
    assert "continue" not in listed["metadata"]
    for token in ("-1", "x"):
        code, status = send(request("GET", f"{PODS}?limit=1&continue={token}", b""))
        assert (code, status["message"]) == (400, f"continue key is not valid: {token!r}")


@pytest.fixture
def opened(apiserver):
    """Open a connection to the server; all are closed after the test."""
    host, port = apiserver.url.removeprefix("http://").rsplit(":", 1)
    with contextlib.ExitStack() as stack:

        def opened(data=b""):
            peer = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            peer.sendall(data)
            return peer

        yield opened


def asked(peer):
    peer.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
    return peer.recv(65536).split()[1]


def begun_watch(opened):
    peer = opened(f"GET {PODS}?watch=1 HTTP/1.1\r\n\r\n".encode())
    assert b"200" in peer.recv(65536).split()
    return peer


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /readyz HTTP/1.1\r\n", b"POST /api HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"],
    ids=["silent", "half a head", "half a body"],
)
def test_clients_that_send_no_request_do_not_lock_out_others(opened, monkeypatch, begun):
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 3)
    hostile = [opened(begun) for _ in range(3)]
    asking = opened()
    assert asked(asking) == b"200"
    assert hostile[0].recv(65536) == b""  # the server has closed the oldest connection
    # A client that has sent requests is idle for a shorter time than the others.
    opened(begun)
    assert hostile[1].recv(65536) == b""
    assert asked(asking) == b"200"


def is_accepted(apiserver, opened, path):
    """Make watches write, so that the server notices closed ones; return True if a new request is
    accepted."""
    apiserver.create("pods", {**POD, "metadata": {"generateName": "p-"}})
    return b"200" in opened(f"GET {path} HTTP/1.1\r\n\r\n".encode()).recv(99).split()


def test_connections_with_requests_in_progress_are_limited(apiserver, opened, monkeypatch):
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 2)
    first, _ = begun_watch(opened), begun_watch(opened)
    assert opened().recv(65536).startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    first.close()
    wait_until(lambda: is_accepted(apiserver, opened, "/readyz"))


def test_watches_leave_room_for_other_requests(apiserver, api, opened, monkeypatch):
    monkeypatch.setattr(apiserver, "_watches", threading.Semaphore(2))
    first, _ = begun_watch(opened), begun_watch(opened)
    answer = opened(f"GET {PODS}?watch=1 HTTP/1.1\r\n\r\n".encode()).recv(65536)
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert api.request("GET", PODS)["items"] == []
    first.close()
    wait_until(lambda: is_accepted(apiserver, opened, f"{PODS}?watch=1"))


def test_client_that_does_not_read_its_watch_is_disconnected(apiserver, api, opened, monkeypatch):
    monkeypatch.setattr(server, "_SEND_TIMEOUT", struct.pack("@ll", 0, 50_000))
    watches = apiserver._watches._value
    begun_watch(opened)
    monkeypatch.setattr(server, "_SEND_TIMEOUT", struct.pack("@ll", 30, 0))
    large = {"generateName": "p-", "annotations": {"a": "x" * 200_000}}

    def is_disconnected():
        apiserver.create("pods", {**POD, "metadata": large})
        return apiserver._watches._value == watches

    wait_until(is_disconnected)


def test_large_bodies_do_not_fill_the_log_of_requests(apiserver, api, monkeypatch):
    monkeypatch.setattr(request_log, "_MOST_BYTES", 5000)
    for number in range(10):
        large = {"name": f"p{number}", "annotations": {"a": "x" * 2000}}
        api.request("POST", PODS, {**POD, "metadata": large})
    assert [each.body["metadata"]["name"] for each in apiserver.log.find(verb="create")] == [
        "p8",
        "p9",
    ]


def test_connections_leave_descriptors_to_a_kubelet_in_the_same_process(monkeypatch):
    limit = 1024
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert server.max_connections() == 256
    limit = 24
    assert server.max_connections() == 16
    limit = resource.RLIM_INFINITY
    assert server.max_connections() == 2048


def test_server_accepts_after_a_failure_to_accept(apiserver, opened, monkeypatch):
    failures = [OSError(errno.EMFILE, "no descriptor is free")]
    accept = server._Server.get_request

    def failing(self):
        if failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(server._Server, "get_request", failing)
    assert asked(opened()) == b"200" and not failures


@pytest.mark.parametrize("length", [1, 1000, 100_000])
def test_json_patch_cannot_copy_without_limit(send, apiserver, length):
    labels = {"a": "x" * length}
    apiserver.create("pods", {**POD, "metadata": {"name": "p", "annotations": labels}})
    # Each step doubles the object: 40 of them would need more than a terabyte.
    where = "/metadata/annotations"
    steps = [{"op": "copy", "from": where, "path": f"{where}/{each}"} for each in range(40)]
    code, _ = send(request("PATCH", f"{PODS}/p", steps, JSON_PATCH))
    assert code == 422
    assert apiserver.get("pods", "p")["metadata"]["annotations"] == labels


def test_number_of_steps_of_a_json_patch_is_limited(send, apiserver):
    apiserver.create("pods", POD)
    steps = [{"op": "add", "path": "/metadata/labels", "value": {}}] * 10_001
    code, status = send(request("PATCH", f"{PODS}/p", steps, JSON_PATCH))
    text = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got "
    assert (code, status["message"]) == (413, f"{text}10001")


def test_patches_cannot_make_an_object_larger_than_any_request(send, apiserver, api):
    apiserver.create("pods", POD)
    watched = apiserver.version

    def patched(number):
        grown = {"spec": {"nodeSelector": {f"n{number}": "x" * 1_000_000}}}
        return send(request("PATCH", f"{PODS}/p", grown, "application/merge-patch+json"))

    assert patched(1)[0] == 200
    code, status = patched(2)
    assert (code, status["message"]) == (500, "etcdserver: request is too large")
    assert apiserver.version == watched + 1
    assert api.request("GET", f"{PODS}/p")["metadata"]["resourceVersion"] == str(watched + 1)
