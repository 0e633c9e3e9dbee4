"""The answers of PodResources with the faults that are set."""

from __future__ import annotations

from collections.abc import Mapping

import podresources
from devicemanager.faults.injection_point import FaultContext, InjectionPoint
from devicemanager.faults.registry import FaultRegistry, Fired, named
from podresources.counters import Counters
from podresources.profile import Profile
from podresources.service import RATE_LIMIT_TEXT, Method, Rejection, Service

__all__ = ["FaultyAnswers", "past_answers"]


def past_answers(source: podresources.Source | None, profile: Profile) -> Mapping[str, Method]:
    """Methods by their paths that answer for ever what the source tells now; without one,
    that there is nothing."""
    kept = podresources.MemorySource()
    if source is not None:
        kept.replace(pods=source.pods(), allocatable=source.allocatable())
    service = Service(
        kept,
        limiter=None,
        profile=profile,
        counters=Counters(),
        on_error=lambda error: None,
    )
    return {method.path: method for method in service.methods()}


class FaultyAnswers:
    """Answers instead of a server's service. It outlives the kubelet's processes."""

    def __init__(self, faults: FaultRegistry) -> None:
        self._faults = faults

    def __call__(self, method: Method, request: bytes) -> bytes:
        """The answer to a call that was let in. Raises Rejection, and what the source raises."""
        if not self._faults.armed:
            return method.answer(request)
        name = method.path.rpartition("/")[2]
        fired = self._faults.at(InjectionPoint.POD_RESOURCES, FaultContext(rpc=name))
        if (slow := named(fired, "delay-pod-resources")) is not None:
            slow.hold().wait()
        other = named(
            fired,
            "fail-pod-resources",
            "limit-pod-resources",
            "empty-pod-resources",
            "stale-pod-resources",
        )
        return method.answer(request) if other is None else self._other(other, method, request)

    def _other(self, fault: Fired, method: Method, request: bytes) -> bytes:
        match fault.kind.name:
            case "fail-pod-resources":
                raise Rejection(fault["code"], fault["text"])
            case "limit-pod-resources":
                raise Rejection("RESOURCE_EXHAUSTED", RATE_LIMIT_TEXT)
            case "empty-pod-resources":
                return b""  # a message of which every field is at its default
        past: Mapping[str, Method] = fault.prepared
        return past[method.path].answer(request)
