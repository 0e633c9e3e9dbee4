"""Convert the claims of a pod for ``core.dra``, and publish the results as events."""

from __future__ import annotations

import time

import attrs

from devicemanager.core.dra.explanation import Attempt
from devicemanager.core.dra.model import (
    ContainerClaim,
    ContainerClaims,
    ExtendedClaim,
    PodClaim,
    PodClaims,
    RequestMapping,
)
from devicemanager.core.pods import Container, Pod
from devicemanager.events.stream import EventKind, EventStream

__all__ = ["ClaimUser", "pod_claims", "publish_result"]


@attrs.frozen
class ClaimUser:
    """A pod that uses DRA, and the last attempt to prepare or unprepare its claims."""

    pod: Pod
    attempt: Attempt


def pod_claims(pod: Pod) -> PodClaims:
    """Convert the claims of a pod and of its containers to the form that ``core.dra`` uses.

    Init containers come first.
    """
    return PodClaims(
        str(pod.uid),
        pod.name,
        pod.namespace,
        # The template's name is not needed: the claim's name is in the pod's status.
        tuple(
            PodClaim(name, claim, name if claim is None else None)
            for name, claim in pod.resource_claims.items()
        ),
        pod.claim_statuses,
        None
        if pod.extended_claim is None
        else ExtendedClaim(
            pod.extended_claim, tuple(RequestMapping(*each) for each in pod.extended_requests)
        ),
        containers=tuple(_container(pod, each, is_init) for each, is_init in pod.all_containers()),
    )


def _container(pod: Pod, container: Container, is_init: bool) -> ContainerClaims:
    requests = {str(name): amount for name, amount in container.requests.items()}
    for name, resource, _ in pod.extended_requests:
        # The admission has removed requests for resources that a claim provides.
        if name == container.name:
            requests.setdefault(resource, 1)
    return ContainerClaims(
        container.name,
        tuple(ContainerClaim(*each) for each in container.claim_requests),
        requests,
        is_init,
    )


def publish_result(
    events: EventStream, kind: EventKind, pod: PodClaims, text: str, begun: float
) -> None:
    """Publish that the claims of a pod were prepared or unprepared, or that this failed.

    ``begun``: the time at which preparing or unpreparing began (``time.monotonic()``).
    """
    seconds = time.monotonic() - begun
    events.publish(kind, f"pod {pod.label}: {text}", pod=pod.uid, seconds=seconds)
