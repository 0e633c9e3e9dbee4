"""Errors that say whose fault it is.

``PluginError``: the plugin misbehaved. ``RequestError``: what was asked for cannot be
met. Any other exception out of the core is a bug in it; ``InternalError`` is raised
where the core notices one itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.core import texts

if TYPE_CHECKING:
    from devicemanager.core.explain import AdmissionExplanation


class DeviceManagerError(Exception):
    """Root of everything the kubelet's side raises on purpose.

    ``checkpoint``, ``podresources`` and ``devicemanager.plugin`` have roots of their own.
    """


class PluginError(DeviceManagerError):
    """The plugin misbehaved or could not be reached."""


class RequestError(DeviceManagerError):
    """What was asked for cannot be met."""


class InternalError(DeviceManagerError):
    """A bug of ours: an invariant does not hold."""


class RpcError(PluginError):
    """An RPC to a plugin failed. The text is what Go's grpc-go prints for the status.

    ``code`` is the code's name as Go spells it (``Unknown``, ``DeadlineExceeded``).
    """

    def __init__(self, code: str, description: str) -> None:
        self.code = code
        self.description = description
        super().__init__(texts.RPC_ERROR.format(code=code, description=description))


class AllocationError(RequestError):
    """An allocation that the kubelet answers with ``UnexpectedAdmissionError``."""


class Refused(RequestError):
    """A pod is not admitted. ``reason`` and ``message`` are those of its status."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        self.cause: Exception | None = None
        """The failed allocation, in words of its own; None for other refusals."""
        self.explanation: AdmissionExplanation | None = None
        super().__init__(f"{reason}: {message}")


def refused_by_allocation(error: Exception) -> Refused:
    """What the kubelet makes of a failed allocation.

    ``admission.GetPodAdmitResult`` (pkg/kubelet/cm/admission/errors.go, v1.32).
    """
    message = texts.ALLOCATE_FAILED.format(error=error)
    refused = Refused(texts.UNEXPECTED_ADMISSION_ERROR, message)
    refused.cause = error
    return refused


def refused_by_topology() -> Refused:
    """``TopologyAffinityError`` of pkg/kubelet/cm/topologymanager (v1.32)."""
    return Refused(texts.TOPOLOGY_AFFINITY_ERROR, texts.TOPOLOGY_LOCALITY)
