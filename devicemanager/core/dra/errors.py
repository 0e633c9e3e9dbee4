"""Errors of the DRA manager, and those that the caller throws into its generators."""

from __future__ import annotations

from devicemanager.core.errors import DeviceManagerError


class DraError(DeviceManagerError):
    """Error of prepare, unprepare, a container or PodResources; the text is the kubelet's."""


class RegistrationRefused(DraError):
    """Error for a driver that the kubelet does not register.

    ``stage`` is ``validate`` or ``register``. The plugin watcher adds its own prefix for each.
    """

    def __init__(self, text: str, stage: str) -> None:
        super().__init__(text)
        self.stage = stage


class ClaimFetchError(DeviceManagerError):
    """Thrown into a generator if the API server does not return a ResourceClaim; the text is the
    one of the API server, such as ``resourceclaims.resource.k8s.io "c1" not found``."""

    @classmethod
    def not_found(cls, name: str) -> ClaimFetchError:
        """Return the error for a ResourceClaim that does not exist."""
        return cls(f'resourceclaims.resource.k8s.io "{name}" not found')


class StateWriteError(DeviceManagerError):
    """Thrown into a generator if the state file cannot be written; the text is the reason, such as
    ``no space left on device``."""
