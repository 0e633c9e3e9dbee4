"""Faults of PodResources calls, and the methods of a kubelet version, without a server."""

from __future__ import annotations

import threading

import pytest
from google.protobuf.message import Message

from devicemanager.faults import FaultRegistry
from devicemanager.faults.registry import as_fault
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.pod_resources import FaultyResponses, api_profile, prepare
from devicemanager.kubelet.settings import Settings
from podresources.profile import Profile
from podresources.service import RATE_LIMIT_TEXT, Method, Rejection
from tests.timing import wait_until

LIST = "/v1.PodResourcesLister/List"


class Case:
    """Responses with these faults. Each call of the method itself is noted."""

    def __init__(self, *lines: str) -> None:
        self.clock = ManualClock()
        self.faults = FaultRegistry(self.clock)
        for line in lines:
            self.faults.set(line)
        self.requests: list[bytes] = []
        self.responses = FaultyResponses(self.faults)

    def call(self, path: str = LIST, request: bytes = b"asked") -> bytes:
        def answer(given: bytes) -> bytes:
            self.requests.append(given)
            return b"answered"

        method = Method(path, "v1", "list", Message, answer)
        return self.responses(method, request)


def test_call_without_faults_is_answered() -> None:
    case = Case()
    assert case.call() == b"answered" and case.requests == [b"asked"]


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("fail-pod-resources:code=INTERNAL,text=no", "INTERNAL", "no"),
        ("limit-pod-resources", "RESOURCE_EXHAUSTED", RATE_LIMIT_TEXT),
    ],
)
def test_fault_can_reject_a_call(line: str, code: str, text: str) -> None:
    case = Case(f"{line}{',' if ':' in line else ':'}times=1")
    with pytest.raises(Rejection) as caught:
        case.call()
    assert (caught.value.code, caught.value.text) == (code, text)
    assert case.requests == []
    assert case.call() == b"answered"


def test_empty_response_has_no_bytes() -> None:
    case = Case("empty-pod-resources")
    assert case.call() == b"" and case.requests == []


def test_fault_of_one_method_does_not_affect_others() -> None:
    case = Case("empty-pod-resources:method=Get")
    assert case.call() == b"answered"
    assert case.call("/v1.PodResourcesLister/Get") == b""


def test_first_of_several_faults_replaces_the_response() -> None:
    case = Case("empty-pod-resources", "limit-pod-resources")
    assert case.call() == b""


def test_delayed_call_is_answered_later() -> None:
    case = Case("delay-pod-resources:seconds=5")
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(case.call()))
    thread.start()
    wait_until(lambda: any(each.holding for each in case.faults.list()))
    assert found == [] and case.requests == []
    case.clock.advance(5.0)
    thread.join(10)
    assert found == [b"answered"]


def test_only_stale_responses_need_data() -> None:
    methods = prepare(as_fault("stale-pod-resources", {}), None, Profile())
    assert methods is not None and LIST in methods
    assert all(path == method.path for path, method in methods.items())
    assert methods[LIST].answer(b"") == b""
    for line in ("fail-pod-resources", "limit-pod-resources", "empty-pod-resources", "restart"):
        assert prepare(as_fault(line, {}), None, Profile()) is None


@pytest.mark.parametrize(
    ("version", "gates", "exists", "disabled"),
    [
        ("1.20", {}, False, ""),
        ("1.22", {}, True, "Pod Resources API GetAllocatableResources disabled"),
        ("1.22", {"KubeletPodResourcesGetAllocatable": True}, True, ""),
        ("1.23", {}, True, ""),
        (
            "1.27",
            {"KubeletPodResourcesGetAllocatable": False},
            True,
            "PodResources API GetAllocatableResources disabled",
        ),
        ("1.37", {}, True, ""),
    ],
)
def test_allocatable_resources_are_offered_by_version_and_gate(
    version: str, gates: dict[str, bool], exists: bool, disabled: str
) -> None:
    profile = api_profile(Settings(kubelet_version=version, feature_gates=gates))
    assert profile.has_get_allocatable is exists
    assert profile.get_allocatable_disabled == disabled
