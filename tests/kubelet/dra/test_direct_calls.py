"""Direct calls to a driver, and requests for claims, without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager import RequestError
from devicemanager.client.errors import ApiError, ClientClosing, NotFound, Unavailable
from devicemanager.core.dra.effects import Operation
from devicemanager.core.dra.errors import ClaimFetchError, DraError
from devicemanager.core.dra.model import PreparedDevice, PrepareResult, UnprepareResult
from devicemanager.kubelet.dra.allocation import template_names
from devicemanager.kubelet.dra.api_claims import ApiClaims
from devicemanager.kubelet.dra.direct import call_driver
from tests.kubelet.dra.objects import claim

DRIVER = "gpu.example.com"


class Manager:
    """A manager whose driver has this answer or error."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[Any] = []

    def call(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_results_are_sorted_by_claim() -> None:
    device = PreparedDevice("p", "d", None, ("r",), ("k/c=d",))
    manager = Manager({"u2": PrepareResult(error="no"), "u1": PrepareResult((device,))})
    found = call_driver(manager, Operation.PREPARE, DRIVER, ["a", "ml/b"], "/s")  # type: ignore[arg-type]
    assert manager.calls == [(Operation.PREPARE, DRIVER, [("default", "a"), ("ml", "b")], "/s")]
    assert [*found] == ["u1", "u2"]
    assert (found["u2"].error, found["u2"].devices) == ("no", ())
    (prepared,) = found["u1"].devices
    assert (found["u1"].error, prepared.driver, prepared.pool, prepared.device) == (
        "",
        DRIVER,
        "p",
        "d",
    )


def test_unprepared_claims_have_no_devices() -> None:
    manager = Manager({"u": UnprepareResult("busy")})
    found = call_driver(manager, Operation.UNPREPARE, DRIVER, ["a"], None)  # type: ignore[arg-type]
    assert (found["u"].error, found["u"].devices) == ("busy", ())


def test_kubelet_calls_its_driver(node: Any) -> None:
    kubelet = node.kubelet
    with pytest.raises(RequestError, match=r"^DRA driver gpu.example.com is not registered$"):
        kubelet.prepare_claims(DRIVER, ["gpu"])
    driver = node.driver()
    kubelet.resource_claims.load(claim("gpu", "gpu-0"))
    found = kubelet.prepare_claims(DRIVER, ["gpu"])
    assert [each.device for each in found["uid-gpu"].devices] == ["gpu-0"]
    assert driver.prepared == {"uid-gpu": ("gpu-0",)}
    assert kubelet.unprepare_claims(DRIVER, ["gpu"])["uid-gpu"].error == ""
    assert driver.prepared == {}


@pytest.mark.parametrize("name", ["", "/", "ml/", "/a"])
def test_malformed_name_of_a_claim_is_rejected(name: str) -> None:
    manager = Manager({})
    with pytest.raises(RequestError) as caught:
        call_driver(manager, Operation.PREPARE, DRIVER, [name], None)  # type: ignore[arg-type]
    assert str(caught.value) == f"invalid claim {name!r}: expected NAME or NAMESPACE/NAME"
    assert manager.calls == []


@pytest.mark.parametrize("error", [ClaimFetchError("not found"), DraError("not registered")])
def test_error_before_the_call_is_a_request_error(error: Exception) -> None:
    with pytest.raises(RequestError) as caught:
        call_driver(Manager(error), Operation.PREPARE, DRIVER, ["a"], None)  # type: ignore[arg-type]
    assert str(caught.value) == str(error) and caught.value.__cause__ is error


# -- claims of an API server ----------------------------------------------------------------


class Client:
    """A client of a server with these API versions; ``error`` is raised for objects."""

    is_closing = False

    def __init__(self, *versions: str, error: Exception | None = None) -> None:
        self.versions = versions
        self.error = error
        self.paths: list[str] = []

    def attempt(self, method: str, path: str, *, query: Any = None) -> dict[str, str]:
        self.paths.append(f"{method} {path}")
        version = path.split("/")[3]
        if version not in self.versions:
            reason, text = "NotFound", "the server could not find the requested resource"
            raise NotFound(404, reason, text, method, path)
        if self.error is not None:
            raise self.error
        return {"version": version}


def claims_of(client: Client) -> ApiClaims:
    return ApiClaims(client, "node-1", lambda text: None)  # type: ignore[arg-type]


PATH = "namespaces/ml/resourceclaims/train"


def get(version: str) -> str:
    return f"GET /apis/resource.k8s.io/{version}/{PATH}"


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_version_that_worked_is_tried_first(version: str) -> None:
    client = Client(version)
    claims = claims_of(client)
    assert claims.fetch("ml", "train") == {"version": version}
    order = ("v1", "v1beta2", "v1beta1")
    assert client.paths == [get(each) for each in order[: order.index(version) + 1]]
    client.paths.clear()
    assert claims.fetch("ml", "train") == {"version": version}
    assert client.paths == [get(version)]
    # After an upgrade of the server, the other versions are tried in their order.
    client.versions = ("none",)
    client.paths.clear()
    with pytest.raises(
        ClaimFetchError, match=r"^the server could not find the requested resource$"
    ):
        claims.fetch("ml", "train")
    assert client.paths == [get(version), *(get(each) for each in order if each != version)]


def test_missing_claim_is_not_looked_for_in_other_versions() -> None:
    text = 'resourceclaims.resource.k8s.io "train" not found'
    client = Client("v1", error=NotFound(404, "NotFound", text, "GET", PATH))
    with pytest.raises(ClaimFetchError) as caught:
        claims_of(client).fetch("ml", "train")
    assert str(caught.value) == text and client.paths == [get("v1")]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ApiError(400, "BadRequest", "bad", "GET", "/x"), "bad"),
        (ApiError(400, "BadRequest", "", "GET", "/x"), "GET /x: 400 BadRequest: "),
        (Unavailable("no response"), "no response"),
        (ClientClosing(), "the kubelet is stopping"),
    ],
)
def test_error_of_the_server_is_the_error_of_the_fetch(error: Exception, text: str) -> None:
    client = Client("v1", error=error)
    with pytest.raises(ClaimFetchError) as caught:
        claims_of(client).fetch("ml", "train")
    assert str(caught.value) == text and len(client.paths) == 1


@pytest.mark.parametrize(
    "error", [None, NotFound(404, "NotFound", "no", "DELETE", "/"), ClientClosing()]
)
def test_wipe_ignores_missing_slices_and_the_end(error: Exception | None) -> None:
    client = Client("v1", error=error)
    claims_of(client).wipe("spec.driver=d")
    assert client.paths == ["DELETE /apis/resource.k8s.io/v1/resourceslices"]


# -- templates -----------------------------------------------------------------------------

ENTRIES = [
    {"name": "own", "resourceClaimName": "c"},
    {"name": "made", "resourceClaimTemplateName": "t"},
    {"name": "empty", "resourceClaimTemplateName": ""},
]
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
WITH_CLAIMS = {**POD, "spec": {"resourceClaims": ENTRIES}}


def test_templates_of_a_pod_in_each_form(tmp_path: Any) -> None:
    import json

    from kubernetes import client

    text = json.dumps(WITH_CLAIMS)
    path = tmp_path / "pod.yaml"
    path.write_text(f"kind: ConfigMap\n---\n- a list\n---\n{text}\n---\n{json.dumps(POD)}\n")
    claims = [
        client.V1PodResourceClaim(name="made", resource_claim_template_name="t"),
        client.V1PodResourceClaim(name="own", resource_claim_name="c"),
    ]
    made = client.V1Pod(spec=client.V1PodSpec(containers=[], resource_claims=claims))
    for source in (WITH_CLAIMS, text, path, path.read_text(), made):
        assert template_names(source) == {"made": "t"}
    for nothing in (POD, {**POD, "spec": None}, "kind: ConfigMap\n", 5):
        assert template_names(nothing) == {}
