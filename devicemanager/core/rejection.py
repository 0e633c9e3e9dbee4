"""The rejection of a pod, with the reason and message for its status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.core import messages
from devicemanager.core.errors import AllocationError, RequestError

if TYPE_CHECKING:
    # Only at type checking: the module is needed at the first rejection, and importing it
    # would make a start 5 % slower.
    from devicemanager.core.explanation.model import AdmissionExplanation


class Rejected(RequestError):
    """Rejection of a pod; ``reason`` and ``message`` are those of the pod's status."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        self.cause: Exception | None = None
        """The error of a failed allocation; None for other rejections."""
        self.behaviour = ""
        """Name of the field of ``devicemanager.core.versions.behaviour.Behaviour`` that decides
        whether a kubelet version rejects the pod. Empty if all versions reject it."""
        self.explanation: AdmissionExplanation | None = None
        self.undecided = False
        """True if the search for devices for the pod's claims stopped at a limit, so it is unknown
        whether suitable devices exist. The claims are of the API ``devmgmtproto.k8s.io``, not of
        DRA."""
        super().__init__(f"{reason}: {message}")


def rejected_by_allocation(error: Exception) -> Rejected:
    """Return the rejection of a pod whose allocation failed with ``error``
    (``GetPodAdmitResult``, pkg/kubelet/cm/admission/errors.go, v1.32)."""
    message = messages.ALLOCATE_FAILED.format(error=error)
    rejected = Rejected(messages.UNEXPECTED_ADMISSION_ERROR, message)
    rejected.cause = error
    if isinstance(error, AllocationError):
        rejected.behaviour = error.behaviour
    return rejected


def rejected_by_topology(
    message: str = messages.TOPOLOGY_LOCALITY, behaviour: str = ""
) -> Rejected:
    """Return the rejection of a pod that the topology manager does not admit
    (``TopologyAffinityError``, pkg/kubelet/cm/topologymanager, v1.32)."""
    rejected = Rejected(messages.TOPOLOGY_AFFINITY_ERROR, message)
    rejected.behaviour = behaviour
    return rejected
