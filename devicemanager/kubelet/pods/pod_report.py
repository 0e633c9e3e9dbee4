"""A pod as the API server would store it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from devicemanager.core.errors import RequestError
from devicemanager.core.ids import ContainerName
from devicemanager.core.pods import Pod
from devicemanager.core.podstatus.status import PodStatus
from devicemanager.core.responses import NO_RESPONSES, Responses
from devicemanager.core.status import ResourceStatus
from devicemanager.kubelet.pods.records import PodRecord, PodStore, api_status

if TYPE_CHECKING:
    from devicemanager.core.podstatus.status import Resources

__all__ = ["PodReport", "pod_report"]


@attrs.frozen
class PodReport:
    """A pod with its status as the API server would store it."""

    pod: Pod
    status: PodStatus
    deletion_grace: float | None
    """Seconds in which the containers must exit; None if the pod is not being deleted."""
    deletion_time: float | None
    """Time by which the containers must exit, in seconds since the epoch; None if the pod is not
    being deleted."""
    responses: Responses = NO_RESPONSES
    """What the containers respond to ``kubectl logs``, ``exec`` and ``port-forward``."""


def pod_report(
    record: PodRecord,
    resources: Callable[[str], Mapping[Any, tuple[ResourceStatus, ...]]],
    store: PodStore,
) -> PodReport:
    """Return a pod with its status as the API server would store it.

    ``resources`` takes a pod UID and returns the pod's ``allocatedResourcesStatus`` by container.
    """
    held: Resources = {}
    if not record.rejected:
        with contextlib.suppress(RequestError):  # the kubelet is stopped, or the pod is gone
            found = resources(record.pod.uid)
            held = {ContainerName(name): each for name, each in found.items()}
    with store.lock:
        status = api_status(record, held)
        return PodReport(
            record.pod,
            status,
            record.deletion_grace,
            record.deletion_time,
            record.responses or NO_RESPONSES,
        )
