"""The PodResources API of a kubelet version, and the faults that a test injects into its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import podresources
from devicemanager.faults.injection_point import Effect, FaultContext, InjectionPoint, implements
from devicemanager.faults.registry import FaultRegistry, Fired, first
from podresources.counters import Counters
from podresources.profile import Profile
from podresources.service import RATE_LIMIT_TEXT, Method, Rejection, Service

if TYPE_CHECKING:
    from devicemanager.faults.fault import Fault
    from devicemanager.kubelet.settings import Settings

__all__ = ["FaultyResponses", "api_profile", "prepare"]


def api_profile(settings: Settings) -> Profile:
    """Return the PodResources methods and fields of the kubelet version in ``settings``."""
    behaviour = settings.behaviour
    disabled = behaviour.has_get_allocatable and not behaviour.get_allocatable_enabled
    return Profile(
        has_get_allocatable=behaviour.has_get_allocatable,
        get_allocatable_disabled=behaviour.get_allocatable_disabled if disabled else "",
        has_get=behaviour.has_get,
        get_enabled=behaviour.get_enabled,
        list_inactive=settings.pod_resources_list_inactive,
        get_inactive=behaviour.get_inactive,
        sidecars=behaviour.lists_sidecars,
        memory=behaviour.reports_memory,
        share_id=behaviour.reports_share_id,
        dynamic_resources=behaviour.reports_dynamic_resources,
        counted=behaviour.podresources_metrics,
        counts_allocatable_twice=behaviour.counts_allocatable_twice,
        claim_devices=behaviour.reports_claim_devices,
        repeats_cdi="Q26" in settings.quirks,
        groups_devices=not behaviour.one_entry_per_device,
    )


def prepare(
    fault: Fault, source: podresources.Source | None, profile: Profile
) -> Mapping[str, Method] | None:
    """Return the data that a fault uses when it takes effect; None for a fault without data.

    Called when a test sets the fault. Only the fault ``stale-pod-resources`` has data: it makes
    PodResources calls return the pods and devices at the time when the fault was set. The data is a
    mapping from gRPC paths to PodResources methods. These methods read a copy of ``source``. If
    ``source`` is None, because the kubelet is stopped, they return empty lists.
    """
    if fault.kind.effect is not Effect.STALE_POD_RESOURCES:
        return None
    past = podresources.MemorySource()
    if source is not None:
        past.replace(pods=source.pods(), allocatable=source.allocatable())
    # Without a limiter, and with unused counters: the real service has applied both before the
    # fault fires.
    service = Service(
        past,
        limiter=None,
        profile=profile,
        counters=Counters(),
        on_error=lambda error: None,
    )
    return {method.path: method for method in service.methods()}


class FaultyResponses:
    """Function that responds to PodResources calls, and applies injected faults to them.

    A ``MockKubelet`` has one such object, which survives restarts of the kubelet.
    """

    def __init__(self, faults: FaultRegistry) -> None:
        self._faults = faults

    def __call__(self, method: Method, request: bytes) -> bytes:
        """Return the response to a call of ``method``. The rate limit has already been checked.

        A fault can delay or replace the response. Raises Rejection if a fault makes the call fail.
        If ``method`` fails, raises its error.
        """
        if not self._faults.armed:
            return method.answer(request)  # the usual case, without faults, must be fast
        name = method.path.rpartition("/")[2]
        fired = self._faults.at(InjectionPoint.POD_RESOURCES, FaultContext(rpc=name))
        if (delay := first(fired, Effect.DELAY_POD_RESOURCES)) is not None:
            delay.hold().wait()
        # If several faults would replace the response, the fault that was set first does.
        fault = first(fired, *_RESPONSES)
        if fault is None:
            return method.answer(request)
        return _RESPONSES[fault.effect](fault, method, request)


def _fail(fault: Fired, method: Method, request: bytes) -> bytes:
    raise Rejection(fault["code"], fault["text"])


def _limit(fault: Fired, method: Method, request: bytes) -> bytes:
    raise Rejection("RESOURCE_EXHAUSTED", RATE_LIMIT_TEXT)


def _empty(fault: Fired, method: Method, request: bytes) -> bytes:
    return b""  # a message with every field at its default


def _stale(fault: Fired, method: Method, request: bytes) -> bytes:
    past: Mapping[str, Method] = fault.prepared
    return past[method.path].answer(request)


_RESPONSES: Mapping[Effect, Callable[[Fired, Method, bytes], bytes]] = {
    Effect.FAIL_POD_RESOURCES: _fail,
    Effect.LIMIT_POD_RESOURCES: _limit,
    Effect.EMPTY_POD_RESOURCES: _empty,
    Effect.STALE_POD_RESOURCES: _stale,
}
implements(InjectionPoint.POD_RESOURCES, {Effect.DELAY_POD_RESOURCES, *_RESPONSES})
