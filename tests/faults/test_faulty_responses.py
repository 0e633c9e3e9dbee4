"""PodResources responses with faults, without a socket."""

from __future__ import annotations

import podresources
from devicemanager.faults.registry import FaultRegistry
from devicemanager.kubelet.pod_resources import FaultyResponses
from podresources.counters import Counters
from podresources.profile import Profile
from podresources.service import Method, Service

LIST = "/v1.PodResourcesLister/List"


def source_of(pod: podresources.Pod) -> podresources.MemorySource:
    source = podresources.MemorySource()
    source.replace(pods=[pod], allocatable=podresources.Allocatable())
    return source


def methods(source: podresources.Source) -> dict[str, Method]:
    service = Service(
        source, limiter=None, profile=Profile(), counters=Counters(), on_error=lambda error: None
    )
    return {method.path: method for method in service.methods()}


def test_empty_response_has_no_bytes() -> None:
    method = methods(source_of(podresources.Pod("p", "default")))[LIST]
    faults = FaultRegistry()
    respond = FaultyResponses(faults)
    assert respond(method, b"") == method.answer(b"") != b""
    faults.set("empty-pod-resources")
    assert respond(method, b"") == b""
