"""The operations of one kubelet: complete, documented, and answered as documented."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from types import SimpleNamespace

import jsonschema
import pytest

from devicemanager import MockKubelet
from devicemanager.control import MockKubeletClient
from devicemanager.control.errors import HttpError
from devicemanager.control.nodes.operations import TABLE as NODES
from devicemanager.control.openapi import document
from devicemanager.control.operations import TABLE
from devicemanager.control.request import MAX_BODY, Budget, decode_body, read_body
from devicemanager.control.router import _fits
from devicemanager.kubelet.interface import KubeletInterface
from devicemanager.plugin.simulated import PreferredPolicy
from devicemanager.testing import pod_manifest
from tests.kubelet.dra.objects import claim as dra_claim
from tools.openapi_document import FILES, text

GPU = "vendor.com/gpu"
IN_TABLE = {member for each in TABLE for member in each.members}
NO_OPERATION = {
    "settings": "given when the kubelet is created; for `run`, its flags",
    "manager": "internals of the running kubelet, only for Python",
    "pod_store": "internals of the kubelet, for nodes in a cluster and views",
    "claims": "the claim manager, only for Python; publish, define and claim are here",
    "claim_devices": "for views in this process; pods show it as claim_devices",
    "has_pod": "True if `pod` finds one; over HTTP that is a 404",
    "telemetry": "what /healthz, /metrics and /pods show without a token: see `run --http`",
    "close": "stops the kubelet for good, which is up to the program that created it",
    "health_updates": "a queue in this process; events of kind device-health show the same",
    "pod_status": "GET /pods of the kubelet's own HTTP server shows it",
    "run_in_container": "the command runs where the client is; it uses getContainerOptions",
    "start_pod": "for nodes in a cluster; admit with start, and startContainer, are here",
    "stop_pod": "for nodes in a cluster; finish and deletePodGracefully are here",
    "update_pod": "for nodes in a cluster, whose API server has the changed pod",
    "complete_resize": "for nodes in a cluster with a delay of resizes",
    "check_static": "internal: for the manifest directory of `run`",
    "recreate_sandbox": "for tests in Python that hold the objects of a driver",
    "resource_claim": "for drivers in this process, in place of a request to the API server",
    "dra_state_path": "root has the directory, and the file has the kubelet's name",
    "restore": "for nodes in a cluster that another process takes over",
    "expect": "its steps can be Python functions; use waitForEvent and waitForCall",
    **{
        f"{name}_async": "the same for asyncio; see the member without _async"
        for name in (
            "admit",
            "expect",
            "finish",
            "reboot",
            "restart",
            "start_container",
            "terminate",
            "wait_for",
            "wait_for_event",
            "wait_for_resource",
        )
    },
    "reset": "for Python fixtures that share a kubelet; its parts are here",
    "watch": "a second ListAndWatch stream; getCalls with follow shows the kubelet's lists",
    "wait_for": "calls a Python function; the client implements it with waitForEvent",
}
"""Public members of MockKubelet without an operation, and why."""


def public_members(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def test_every_public_member_has_an_operation_or_a_reason(mock_kubelet):
    members = public_members(mock_kubelet)
    assert members - IN_TABLE - set(NO_OPERATION) == set(), "add an operation, or a reason"
    assert IN_TABLE - members == set()
    assert set(NO_OPERATION) - members == set()
    assert IN_TABLE & set(NO_OPERATION) == set()
    assert all(len(reason) > 20 for reason in NO_OPERATION.values())


def test_client_has_every_member_with_an_operation(client):
    assert IN_TABLE - public_members(client) == set()
    assert public_members(KubeletInterface) - public_members(client) == set()
    wanted = IN_TABLE | {"wait_for", "close"}
    assert wanted - public_members(KubeletInterface) == set(), "KubeletInterface lacks it"


def test_client_documents_every_member():
    for name in public_members(MockKubeletClient):
        member = inspect.getattr_static(MockKubeletClient, name)
        assert inspect.getdoc(member), f"{name} needs a docstring"


def test_client_and_kubelet_take_the_same_arguments():
    for name in IN_TABLE | {"wait_for"}:
        ours = inspect.getattr_static(MockKubelet, name, None)
        if inspect.isfunction(ours):
            theirs = inspect.signature(getattr(MockKubeletClient, name))
            assert inspect.signature(ours).parameters == theirs.parameters, name


@pytest.mark.parametrize("table", [TABLE, NODES], ids=["kubelet", "nodes"])
def test_names_are_unique_and_have_one_form(table):
    operations = list(table)
    assert len({(each.method, each.path) for each in operations}) == len(operations)
    for each in operations:
        assert table[each.name] is each
        assert re.fullmatch(r"[a-z]+[A-Za-z]*", each.name)
        assert re.fullmatch(r"(/[a-z0-9-]+|/\{[a-z]+\})+", each.path)
        assert each.summary.endswith(".")
        assert set(each.parameters) <= set(inspect.signature(each.handler).parameters)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_document_is_checked_in(file):
    assert file.read_text() == text(FILES[file]), "run python -m tools.openapi_document"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_new_document_is_the_one_that_is_checked_in(file):
    # Without the cache, so that the test does not depend on the tests before it.
    made = json.dumps(document.__wrapped__(FILES[file]))
    assert json.loads(made) == json.loads(file.read_text())


@pytest.mark.parametrize("table", [TABLE, NODES], ids=["kubelet", "nodes"])
def test_paths_fit_their_operations(table):
    for each in table:
        path = re.sub(r"{[a-z]+}", "any-Text.1", each.path)
        assert _fits(each, path), each.path
        assert not _fits(each, f"{path}/more")
        assert not _fits(each, path.rpartition("/")[0])
        assert not _fits(each, path.replace("/v1/", "/v2/")) or "/v1/" not in path


def body_of(sizes, most, budget):
    """The body that arrives in parts of these sizes."""

    async def stream():
        for size in sizes:
            yield b"x" * size

    with budget.account() as account:
        request = SimpleNamespace(scope={"account": account}, stream=stream)
        return asyncio.run(read_body(request, most))


@pytest.mark.parametrize("sizes", [[], [10], [4, 6], [1] * 10])
def test_body_can_have_as_many_bytes_as_the_limit(sizes):
    budget = Budget(10)
    assert body_of(sizes, 10, budget) == b"x" * sum(sizes)
    assert budget.used == 0


@pytest.mark.parametrize(
    ("sizes", "budget", "status", "reason"),
    [([11], 20, 413, "too-large"), ([4, 7], 20, 413, "too-large"), ([4, 6], 9, 503, "too-much")],
)
def test_larger_body_is_rejected(sizes, budget, status, reason):
    budget = Budget(budget)
    with pytest.raises(HttpError) as raised:
        body_of(sizes, 10, budget)
    assert (raised.value.status, raised.value.reason) == (status, reason)
    assert budget.used == 0


def test_default_limits_of_bodies():
    assert len(body_of([MAX_BODY], MAX_BODY, Budget())) == 4 * 1024 * 1024
    budget = Budget()
    budget.take(128 * 1024 * 1024)
    with pytest.raises(HttpError):
        budget.take(1)


@pytest.mark.parametrize("table", [TABLE, NODES], ids=["kubelet", "nodes"])
def test_document_has_the_schemas_it_refers_to(table):
    found = re.findall(r'"\$ref": "#/components/schemas/(\w+)"', text(table))
    schemas = document(table)["components"]["schemas"]
    assert set(found) == set(schemas)
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("table", [TABLE, NODES], ids=["kubelet", "nodes"])
def test_document_says_which_bodies_are_required(table):
    for each in table:
        if each.body is None:
            continue
        try:
            decode_body(each, b"")
            required = False
        except HttpError:
            required = True
        row = document(table)["paths"][each.path][each.method.lower()]
        assert row["requestBody"]["required"] is required, each.name


def conforms(table, operation, status, kind, body):
    """Check an answer against the OpenAPI document."""
    responses = document(table)["paths"][operation.path][operation.method.lower()]["responses"]
    answer = responses[str(status)]
    if status == 204:
        assert (body, "content" in answer) == (b"", False)
        return
    schema = answer["content"][kind]["schema"]
    for value in body.splitlines() if operation.is_stream else [body]:
        jsonschema.validate(
            json.loads(value),
            {**schema, "components": document(table)["components"]},
            cls=jsonschema.Draft202012Validator,
        )


POD = pod_manifest("a", {GPU: 1}, uid="a")
POD["spec"]["restartPolicy"] = "Never"
DRIVER_CALL = {"driver": "gpu.example.com", "claims": ["default/gpu"]}
STEPS = {
    # name: (path, query, body), in the order of the requests
    "getNode": (),
    "listResources": (),
    "admitPod": ((), "?start=false", POD),
    "listPods": (),
    "getPod": (("a",),),
    "startContainer": (("a", "main"),),
    "getContainerOptions": (("a", "main"),),
    "restartContainer": (("a", "main"),),
    "getPodDevices": (("a",),),
    "getPodResourcesStatus": (("a",),),
    "listPlugins": (),
    "getDra": (),
    "explainPodClaims": (("a",),),
    "resyncPod": (("a",),),
    "listDevices": ((), "?resource=vendor.com/gpu"),
    "getNodeStatus": (),
    "getCheckpoint": (),
    "getContainerStatuses": (("a",),),
    "exitContainer": (("r", "main"), "", {"exit_code": 1, "reason": "OOMKilled"}),
    "deletePodGracefully": (("r",), "", {"grace_period": 30}),
    "finishPod": (("a",), "", {"exit_codes": {"main": 1}}),
    "deletePod": (("a",),),
    "publishPools": ((), "", "pools"),
    "defineClasses": ((), "", "classes"),
    "createClaims": ((), "", "claims"),
    "getEvents": ((), "?since=1"),
    "getCalls": ((), "?rpc=Allocate&bytes=true"),
    "getPendingCalls": (),
    "callAllocate": ((), "", {"resource": GPU, "ids": ["gpu-mock-0"]}),
    "callGetPreferredAllocation": (
        *((), ""),
        {"resource": GPU, "available": ["gpu-mock-0", "gpu-mock-1"], "size": 1},
    ),
    "callPreStartContainer": ((), "", {"resource": GPU, "ids": ["gpu-mock-0"]}),
    "callGetDevicePluginOptions": ((), "", {"resource": GPU}),
    "applyDraObjects": ((), "", "dra"),
    "listDraObjects": (("ResourceClaim",),),
    "listResourceClaims": (),
    "getResourceClaim": (("default", "gpu"),),
    "listResourceSlices": (),
    "listDrivers": (),
    "callPrepareResources": ((), "", DRIVER_CALL),
    "callUnprepareResources": ((), "", DRIVER_CALL),
    "deleteDraObject": (("ResourceClaim", "gpu"),),
    "setFault": ((), "", {"kind": "reject-register", "options": {"times": 2}}),
    "listFaults": (),
    "clearFault": (("1",),),
    "clearFaults": (),
    "waitForResource": ((), "", {"resource": GPU}),
    "waitForEvent": ((), "", {"after": 0}),
    "waitForCall": ((), "", {"rpc": "Allocate", "since": {"event": 0, "call": 0}}),
    "setSourcesReady": (),
    "checkServers": (),
    "getClock": (),
    "advanceClock": ((), "", {"seconds": 1}),
    "restartKubelet": (),
    "rebootNode": (),
    "stopKubelet": (),
    "startKubelet": (),
}


TOO_MANY = b'{"resource": "a/b", "available": [], "size": 2147483648}'


def request_text(kind):
    from devicemanager.claims import SimulatedHardware, simulated_classes
    from devicemanager.claims.v1alpha1.writing import to_yaml

    claim = {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": "c"},
        "spec": {"claims": [{"deviceClass": "gpu"}]},
    }
    if kind == "dra":
        return json.dumps(dra_claim("gpu", "gpu-0"))
    objects = {"pools": SimulatedHardware(gpu=1).pools("mock"), "classes": simulated_classes()}
    return json.dumps(claim) if kind == "claims" else to_yaml(objects[kind])


def test_operations_answer_as_documented(client, raw, simulated_plugin, simulated_driver):
    simulated_driver()
    simulated_plugin(GPU, 2, preferred_policy=PreferredPolicy.REVERSE, pre_start=True)
    steps = dict(STEPS)
    # "a" is deleted before deletePods, so that needs another pod.
    client.admit(pod_manifest("b", {GPU: 1}, uid="b"))
    client.admit(pod_manifest("r", {}, uid="r"))  # restartPolicy Always
    steps["deletePods"] = ((), "?uid=b")
    assert set(steps) == {each.name for each in TABLE}
    for name, step in steps.items():
        operation = TABLE[name]
        path, query, body = (*step, *((), "", None)[len(step) :])
        target = operation.path
        for parameter, value in zip(operation.parameters, path, strict=True):
            target = target.replace(f"{{{parameter}}}", value)
        data = request_text(body) if isinstance(body, str) else body and json.dumps(body)
        reply = raw.ask(operation.method, target + query, data and data.encode())
        assert reply.status == operation.status, (name, reply.body)
        conforms(TABLE, operation, reply.status, reply.kind, reply.body)


def test_problems_are_as_documented(raw):
    for method, path, body, status, reason, detail in [
        ("GET", "/v1/pods/x", None, 404, "not-found", "no pod has the UID 'x'"),
        ("GET", "/v2", None, 404, "not-found", "unknown path '/v2': /openapi.json lists"),
        (
            "PATCH",
            "/v1/pods",
            None,
            405,
            "method-not-allowed",
            "/v1/pods does not support PATCH: use",
        ),
        (
            "POST",
            "/v1/pods",
            b"",
            400,
            "bad-request",
            "the body is empty: expected a pod's manifest",
        ),
        ("POST", "/v1/pods", b"\xff", 400, "bad-request", "body: not UTF-8 text (byte 0)"),
        ("POST", "/v1/pods", b"kind: Pod", 422, "invalid-manifest", "apiVersion"),
        ("POST", "/v1/pods", b"/etc/hostname", 422, "invalid-manifest", "must be a mapping"),
        ("POST", "/v1/pods?start=5", b"{}", 400, "bad-request", "query: start: Expected `bool`"),
        ("POST", "/v1/pods?star=1", b"{}", 400, "bad-request", "query: unknown parameter 'star'"),
        ("GET", "/v1/node?x=1", None, 400, "bad-request", "query: unknown parameter 'x'"),
        (
            "GET",
            "/v1/events?since=1&since=2",
            None,
            400,
            "bad-request",
            "query: duplicate parameter since",
        ),
        ("GET", "/v1/events?since=-1", None, 400, "bad-request", "query: since: Expected"),
        ("GET", "/v1/events?kind=x", None, 409, "conflict", "unknown event 'x': use one of"),
        ("DELETE", "/v1/pods", None, 400, "bad-request", "query: Object missing required field"),
        ("POST", "/v1/clock/advance", b"{", 400, "bad-request", "body: not JSON: "),
        ("POST", "/v1/clock/advance", b'{"seconds": "x"}', 400, "bad-request", "body: seconds: E"),
        ("POST", "/v1/waits/event", b'{"tim": 1}', 400, "bad-request", "body: Object contains un"),
        (
            "POST",
            "/v1/direct-calls/options",
            b"{}",
            400,
            "bad-request",
            "required field `resource`",
        ),
        ("POST", "/v1/direct-calls/options", b'{"resource": "a/b"}', 409, "conflict", "no plugin"),
        (
            "POST",
            "/v1/direct-calls/preferred",
            TOO_MANY,
            400,
            "bad-request",
            "body: size: Expected",
        ),
        (
            "POST",
            "/v1/node/restart",
            b"{}",
            400,
            "bad-request",
            "unexpected body: send POST /v1/node/restart",
        ),
        ("POST", "/v1/faults", b'{"spec": "x"}', 422, "invalid-fault", "unknown fault 'x': use o"),
        ("POST", "/v1/faults", b"{}", 400, "bad-request", "body: expected either spec, such as"),
        (
            "POST",
            "/v1/faults",
            b'{"spec": "x", "options": {"a": 1}}',
            400,
            "bad-request",
            "options cannot be used with spec",
        ),
        ("DELETE", "/v1/faults/7", None, 404, "not-found", "unknown fault 7: no faults are set"),
        (
            "DELETE",
            "/v1/faults/x",
            None,
            404,
            "not-found",
            "invalid fault ID 'x': expected a number",
        ),
        (
            "DELETE",
            "/v1/faults?kind=x",
            None,
            409,
            "conflict",
            "unknown fault 'x': no faults are set",
        ),
        ("GET", "/v1/checkpoint", None, 404, "not-found", ""),
        ("POST", "/v1/claims", b"kind: x", 422, "invalid-object", ""),
    ]:
        reply = raw.ask(method, path, body)
        problem = json.loads(reply.body)
        assert (reply.status, problem["reason"]) == (status, reason), problem
        assert reply.kind == "application/problem+json"
        assert detail in problem["detail"]
        assert "\n" not in problem["detail"]
        jsonschema.validate(problem, document(TABLE)["components"]["schemas"]["Problem"])


def test_document_is_served(raw):
    reply = raw.ask("GET", "/openapi.json")
    assert json.loads(reply.body) == json.loads(text(TABLE))
