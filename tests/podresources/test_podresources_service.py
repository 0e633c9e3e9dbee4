"""The PodResources service without a socket: methods, errors, rate limit and counters."""

from __future__ import annotations

import pytest

from podresources import (
    Allocatable,
    Container,
    Counters,
    MemorySource,
    Pod,
    TokenBucket,
    decoding,
)
from podresources.profile import Profile
from podresources.service import Rejection, Service
from protos import podresources_v1 as v1
from protos import podresources_v1_grpc as v1_grpc
from protos import podresources_v1alpha1_grpc as v1alpha1_grpc

PREFIX = "kubelet_pod_resources_endpoint"
PODS = (Pod("p", "ns", (Container("c"),)),)


class Harness:
    """A service with a clock that the test sets."""

    def __init__(self, source=None, limiter=None, **settings):
        self.now = 0.0
        self.counters = Counters()
        self.errors = []
        self.service = Service(
            source or MemorySource(PODS, Allocatable(cpu_ids=(1,))),
            limiter=limiter,
            clock=lambda: self.now,
            counters=self.counters,
            on_error=self.errors.append,
            **settings,
        )
        self.methods = {method.path: method for method in self.service.methods()}

    def call(self, path: str, request: bytes = b"") -> bytes:
        return self.service.answer(self.methods[path], request)

    def rejection(self, path: str, request: bytes = b"") -> tuple[str, str]:
        with pytest.raises(Rejection) as caught:
            self.call(path, request)
        return caught.value.code, caught.value.text


def get_request(name: str, namespace: str) -> bytes:
    return v1.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace).SerializeToString()


def test_every_method_of_both_versions_is_served():
    assert set(Harness().methods) == {
        v1_grpc.LIST,
        v1_grpc.GET_ALLOCATABLE_RESOURCES,
        v1_grpc.GET,
        v1alpha1_grpc.LIST,
    }


def test_responses_of_each_method():
    harness = Harness()
    assert decoding.pods_from_bytes(harness.call(v1_grpc.LIST)) == PODS
    assert decoding.pods_from_v1alpha1_bytes(harness.call(v1alpha1_grpc.LIST)) == PODS
    assert decoding.pod_from_bytes(harness.call(v1_grpc.GET, get_request("p", "ns"))) == PODS[0]
    allocatable = harness.call(v1_grpc.GET_ALLOCATABLE_RESOURCES)
    assert decoding.allocatable_from_bytes(allocatable).cpu_ids == (1,)


@pytest.mark.parametrize(("name", "namespace"), [("p", "other"), ("q", "ns"), ("", "")])
def test_unknown_pod_has_kubelets_message(name, namespace):
    assert Harness().rejection(v1_grpc.GET, get_request(name, namespace)) == (
        "UNKNOWN",
        f"pod {name} in namespace {namespace} not found",
    )


def test_get_fails_with_feature_gate_off():
    harness = Harness(profile=Profile(get_enabled=False))
    assert harness.rejection(v1_grpc.GET, get_request("p", "ns")) == (
        "UNKNOWN",
        "PodResources API Get method disabled",
    )
    assert harness.counters.snapshot()[f"{PREFIX}_errors_get", "v1"] == 1


def test_rate_limit_is_shared_by_all_methods():
    harness = Harness(limiter=TokenBucket(100, 3))
    harness.call(v1_grpc.LIST)
    harness.call(v1alpha1_grpc.LIST)
    harness.rejection(v1_grpc.GET, get_request("unknown", "ns"))
    # The failed Get also used a token.
    for path in harness.methods:
        assert harness.rejection(path) == ("RESOURCE_EXHAUSTED", "rejected by rate limit")
    harness.now = 0.01
    harness.call(v1_grpc.GET_ALLOCATABLE_RESOURCES)
    assert harness.rejection(v1_grpc.LIST)[0] == "RESOURCE_EXHAUSTED"


def test_counters_by_method_and_version():
    harness = Harness()
    harness.call(v1_grpc.LIST)
    harness.call(v1_grpc.LIST)
    harness.call(v1_grpc.GET_ALLOCATABLE_RESOURCES)
    harness.rejection(v1_grpc.GET, get_request("unknown", "ns"))
    harness.call(v1alpha1_grpc.LIST)
    assert harness.counters.snapshot() == {
        (f"{PREFIX}_errors_get", "v1"): 1,
        (f"{PREFIX}_requests_get", "v1"): 1,
        (f"{PREFIX}_requests_get_allocatable", "v1"): 1,
        (f"{PREFIX}_requests_list", "v1"): 2,
        (f"{PREFIX}_requests_total", "v1"): 4,
        (f"{PREFIX}_requests_total", "v1alpha1"): 1,
    }


def test_rate_limited_calls_are_not_counted():
    harness = Harness(limiter=TokenBucket(100, 1))
    harness.call(v1_grpc.LIST)
    before = harness.counters.snapshot()
    harness.rejection(v1_grpc.LIST)
    assert harness.counters.snapshot() == before


def test_invalid_request_is_rejected_and_uses_no_token():
    harness = Harness(limiter=TokenBucket(100, 1))
    for path in harness.methods:
        code, text = harness.rejection(path, b"\xff\xff")
        assert code == "INTERNAL"
        assert text.startswith(f"{path}: invalid v1")
    assert harness.counters.snapshot() == {}
    harness.call(v1_grpc.LIST)


def test_fields_of_later_version_in_request_are_ignored():
    unknown_field = b"\xfa\x01\x01x"  # field 31, a string
    assert decoding.pods_from_bytes(Harness().call(v1_grpc.LIST, unknown_field)) == PODS


class Broken(MemorySource):
    def pods(self):
        raise OSError("disk gone")

    def allocatable(self):
        return Allocatable(cpu_ids=(2**63,))  # not an int64


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (v1_grpc.LIST, "list"),
        (v1_grpc.GET, "get"),
        (v1_grpc.GET_ALLOCATABLE_RESOURCES, "get_allocatable"),
        (v1alpha1_grpc.LIST, None),
    ],
)
def test_failing_source_is_reported_and_counted(path, kind):
    harness = Harness(Broken())
    code, text = harness.rejection(path)
    assert code == "INTERNAL"
    (error,) = harness.errors
    assert text == f"{path}: cannot read the node's resources: {error!r}"
    failed = {k: n for k, n in harness.counters.snapshot().items() if "errors" in k[0]}
    assert failed == ({(f"{PREFIX}_errors_{kind}", "v1"): 1} if kind else {})


def test_unknown_method_has_the_text_of_grpc_go():
    harness = Harness(profile=Profile(has_get=False))
    assert harness.rejection(v1_grpc.GET) == (
        "UNIMPLEMENTED",
        "unknown method Get for service v1.PodResourcesLister",
    )
    # The call is not counted and not checked.
    assert harness.rejection(v1_grpc.GET, b"\xff")[0] == "UNIMPLEMENTED"


def test_disabled_get_allocatable_has_the_text_of_the_profile():
    harness = Harness(profile=Profile(get_allocatable_disabled="it is off"))
    assert harness.rejection(v1_grpc.GET_ALLOCATABLE_RESOURCES) == ("UNKNOWN", "it is off")
    assert harness.errors == []
