"""Errors that the DRA manager raises, and errors that its caller throws into the DRA manager's
generators."""

from __future__ import annotations

from devicemanager.core.errors import DeviceManagerError, PermanentError


class DraError(DeviceManagerError):
    """Error about ResourceClaims, with the kubelet's message.

    It is raised when claims are prepared or unprepared, when a container gets its CDI devices, and
    when PodResources lists claims.
    """


class PermanentDraError(DraError, PermanentError):
    """Error for a claim that its driver can never prepare (KEP-5322)."""


class DriverRejected(DraError):
    """Error for a driver that the kubelet does not register.

    ``stage`` is ``validate`` or ``register``. The plugin watcher adds a different prefix for each
    stage.
    """

    def __init__(self, text: str, stage: str) -> None:
        super().__init__(text)
        self.stage = stage


class ClaimFetchError(DeviceManagerError):
    """Error for a ResourceClaim that the API server did not return. The caller throws the error
    into a generator.

    The message is that of the API server, such as
    ``resourceclaims.resource.k8s.io "c1" not found``.
    """

    @classmethod
    def not_found(cls, name: str) -> ClaimFetchError:
        """Return the error for a ResourceClaim that does not exist."""
        return cls(f'resourceclaims.resource.k8s.io "{name}" not found')


class StateWriteError(DeviceManagerError):
    """Error for a state file that could not be written. The caller throws the error into a
    generator.

    The message is the reason, such as ``no space left on device``.
    """
