"""The answers of PodResources with the faults that are set."""

from __future__ import annotations

import threading

import podresources
from devicemanager.faults.points import Occasion, Point
from devicemanager.faults.registry import FaultRegistry, Fired, named
from podresources.counters import Counters
from podresources.profile import Profile
from podresources.service import RATE_LIMIT_TEXT, Method, Refusal, Service

__all__ = ["FaultyAnswers"]


class FaultyAnswers:
    """Answers instead of a server's service. It outlives the kubelet's processes."""

    def __init__(self, faults: FaultRegistry, profile: Profile) -> None:
        self._faults = faults
        self._profile = profile
        # Guards what follows: what was so when a fault was set, by its id and the method.
        self._lock = threading.Lock()
        self._stale: dict[int, dict[str, Method]] = {}

    def remember(self, number: int, source: podresources.Source | None) -> None:
        """Keep what the source tells now for the fault of this id; without one, nothing."""
        kept = podresources.MemorySource()
        if source is not None:
            kept.replace(pods=source.pods(), allocatable=source.allocatable())
        service = Service(
            kept,
            limiter=None,
            profile=self._profile,
            counters=Counters(),
            on_error=lambda error: None,
        )
        known = {state.id for state in self._faults.list()}
        with self._lock:
            self._stale = {id_: old for id_, old in self._stale.items() if id_ in known}
            self._stale[number] = {method.path: method for method in service.methods()}

    def __call__(self, method: Method, request: bytes) -> bytes:
        """The answer to a call that was let in. Raises Refusal, and what the source raises."""
        if not self._faults.armed:
            return method.answer(request)
        name = method.path.rpartition("/")[2]
        fired = self._faults.at(Point.POD_RESOURCES, Occasion(rpc=name))
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
                raise Refusal(fault["code"], fault["text"])
            case "limit-pod-resources":
                raise Refusal("RESOURCE_EXHAUSTED", RATE_LIMIT_TEXT)
            case "empty-pod-resources":
                return b""  # a message of which every field is at its default
        with self._lock:
            stale = self._stale[fault.id]
        return stale[method.path].answer(request)
