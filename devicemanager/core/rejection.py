"""The rejection of a pod, with the reason and message of its status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.core import messages
from devicemanager.core.errors import AllocationError, RequestError

if TYPE_CHECKING:
    # Needed with the first rejection, and a twentieth of what a start imports.
    from devicemanager.core.explanation.model import AdmissionExplanation

__all__ = ["Rejected", "rejected_by_allocation", "rejected_by_topology"]


class Rejected(RequestError):
    """A pod is not admitted. ``reason`` and ``message`` are those of its status."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        self.cause: Exception | None = None
        """The failed allocation, in words of its own; None for other rejections."""
        self.behaviour = ""
        """What kubelets of other versions do differently: a field of
        ``devicemanager.core.versions.behaviour.Behaviour``; empty if they do not."""
        self.explanation: AdmissionExplanation | None = None
        super().__init__(f"{reason}: {message}")


def rejected_by_allocation(error: Exception) -> Rejected:
    """What the kubelet makes of a failed allocation.

    ``admission.GetPodAdmitResult`` (pkg/kubelet/cm/admission/errors.go, v1.32).
    """
    message = messages.ALLOCATE_FAILED.format(error=error)
    rejected = Rejected(messages.UNEXPECTED_ADMISSION_ERROR, message)
    rejected.cause = error
    if isinstance(error, AllocationError):
        rejected.behaviour = error.behaviour
    return rejected


def rejected_by_topology(
    message: str = messages.TOPOLOGY_LOCALITY, behaviour: str = ""
) -> Rejected:
    """``TopologyAffinityError`` of pkg/kubelet/cm/topologymanager (v1.32)."""
    rejected = Rejected(messages.TOPOLOGY_AFFINITY_ERROR, message)
    rejected.behaviour = behaviour
    return rejected
