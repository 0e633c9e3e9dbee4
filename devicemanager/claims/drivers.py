"""The drivers' side of a claim: devices are prepared before a container starts."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.v1alpha1.objects import DeviceClaim


class ClaimDriver(Protocol):
    """What prepares the devices of one driver. May be called from any thread."""

    def prepare(
        self, claim: DeviceClaim, devices: Sequence[DeviceKey]
    ) -> Mapping[DeviceKey, Sequence[str]]:
        """Make the devices usable; gives their qualified CDI names.

        Asked again for a claim that is prepared already, it gives the same answer. Raises any
        exception if that is not possible now; it will be asked again.
        """

    def unprepare(self, claim: DeviceClaim, devices: Sequence[DeviceKey]) -> None:
        """The claim is released. Nothing happens if it was not prepared."""


@attrs.define
class FakeDriver:
    """Names CDI devices as dra-example-driver does, and prepares nothing.

    Each claim's devices have one name in common, and each has one of its own.
    """

    profile: str = "device"
    """The class part of the names: ``k8s.<driver>/<profile>=...``."""
    failures: int = 0
    """So often preparing fails before it succeeds."""

    def prepare(
        self, claim: DeviceClaim, devices: Sequence[DeviceKey]
    ) -> Mapping[DeviceKey, Sequence[str]]:
        if self.failures > 0:
            self.failures -= 1
            raise RuntimeError("the fake driver was told to fail")
        return {key: (self._name(key, "common"), self._own(claim, key)) for key in devices}

    def unprepare(self, claim: DeviceClaim, devices: Sequence[DeviceKey]) -> None:
        """Nothing was prepared."""

    def _own(self, claim: DeviceClaim, key: DeviceKey) -> str:
        return self._name(key, f"{claim_uid(claim)}-{key.name}")

    def _name(self, key: DeviceKey, device: str) -> str:
        return f"k8s.{key.driver}/{self.profile}={device}"


def claim_uid(claim: DeviceClaim) -> str:
    """The claim's UID; one that follows from its name if it was given none."""
    return claim.metadata.uid or str(uuid.uuid5(uuid.NAMESPACE_URL, f"deviceclaim/{claim.id}"))
