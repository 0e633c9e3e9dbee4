"""Answers of PodResources with faults, without a socket."""

from __future__ import annotations

import podresources
from devicemanager.faults.registry import FaultRegistry
from devicemanager.kubelet.faultyanswers import FaultyAnswers
from podresources.counters import Counters
from podresources.profile import Profile
from podresources.service import Service


def test_an_empty_answer_has_no_byte() -> None:
    source = podresources.MemorySource()
    source.replace(pods=[podresources.Pod("p", "default")], allocatable=podresources.Allocatable())
    service = Service(
        source, limiter=None, profile=Profile(), counters=Counters(), on_error=lambda error: None
    )
    (method,) = (
        each for each in service.methods() if each.path.endswith("v1.PodResourcesLister/List")
    )
    faults = FaultRegistry()
    answers = FaultyAnswers(faults, Profile())
    assert answers(method, b"") == method.answer(b"") != b""
    faults.set("empty-pod-resources")
    assert answers(method, b"") == b""
