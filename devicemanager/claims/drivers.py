"""Claim drivers, which prepare allocated devices before a container starts."""

# A claim driver is a Python object with the role of a DRA driver's kubelet plugin. Set one with
# ``MockKubelet.claims.set_driver``.

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.v1alpha1.objects import DeviceClaim


class ClaimDriver(Protocol):
    """Driver that prepares allocated devices before a container starts.

    Its methods are called from several threads, without locks held.
    """

    def prepare(
        self, claim: DeviceClaim, devices: Sequence[DeviceKey]
    ) -> Mapping[DeviceKey, Sequence[str]]:
        """Make the devices usable. Return their qualified CDI names by device.

        Must be idempotent: a second call for a prepared claim returns the same names. If the method
        raises an error, the container does not start, and the call is repeated later.
        """

    def unprepare(self, claim: DeviceClaim, devices: Sequence[DeviceKey]) -> None:
        """Undo ``prepare`` after the claim was released. Must ignore unprepared devices."""


@attrs.define
class FakeDriver:
    """Driver that prepares nothing and names CDI devices as dra-example-driver does.

    Each device gets two names: one that all devices of its driver share, and one with the UID of
    its claim.
    """

    profile: str = "device"
    """Class in the CDI names ``k8s.<driver>/<profile>=<device>``."""
    failures: int = 0
    """The number of ``prepare`` calls that fail before the first one that succeeds."""

    def prepare(
        self, claim: DeviceClaim, devices: Sequence[DeviceKey]
    ) -> Mapping[DeviceKey, Sequence[str]]:
        if self.failures > 0:
            self.failures -= 1
            raise RuntimeError("the fake driver is set to fail")
        return {key: (self._name(key, "common"), self._claim_name(claim, key)) for key in devices}

    def unprepare(self, claim: DeviceClaim, devices: Sequence[DeviceKey]) -> None:
        """Do nothing, because ``prepare`` prepares nothing."""

    def _claim_name(self, claim: DeviceClaim, key: DeviceKey) -> str:
        return self._name(key, f"{claim_uid(claim)}-{key.name}")

    def _name(self, key: DeviceKey, device: str) -> str:
        return f"k8s.{key.driver}/{self.profile}={device}"


def claim_uid(claim: DeviceClaim) -> str:
    """Return the claim's UID; if the claim has none, derive one from its namespace and name."""
    # Not random: CDI names contain the UID, and ``prepare`` must return the same names again.
    return claim.metadata.uid or str(uuid.uuid5(uuid.NAMESPACE_URL, f"deviceclaim/{claim.id}"))
