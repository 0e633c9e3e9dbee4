"""The ResourceClaims of a snapshot's node, from the DRA manager's state file.

A snapshot contains no ResourceClaims of the API server. Therefore this module creates the claims:
it allocates to each claim the devices that the drivers have prepared for it, and reserves the claim
for the pods that hold it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from checkpoint import dra
from devicemanager.core.dra.errors import ClaimFetchError
from devicemanager.rehearsal.result import Devices

__all__ = ["HeldClaims", "devices_of"]


class HeldClaims:
    """The claims of the DRA manager's state file, in the form that an API server returns.

    The kubelet of a rehearsal reads its claims here.
    """

    def __init__(self, claims: Iterable[dra.ClaimState]) -> None:
        self._claims = {(each.namespace, each.name): each for each in claims}
        self.drivers: Mapping[str, Collection[str]] = _drivers(self._claims.values())
        """Names of prepared devices, by driver."""

    def fetch(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return a ResourceClaim in the form of the API ``resource.k8s.io/v1``.

        Raises ClaimFetchError for an unknown claim.
        """
        claim = self._claims.get((namespace, name))
        if claim is None:
            raise ClaimFetchError.not_found(name)
        return {
            "metadata": {"namespace": namespace, "name": name, "uid": claim.uid},
            "status": {
                "allocation": {"devices": {"results": list(_results(claim))}},
                "reservedFor": [{"resource": "pods", "uid": uid} for uid in sorted(claim.pods)],
            },
        }


def _drivers(claims: Iterable[dra.ClaimState]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for claim in claims:
        for driver, state in claim.drivers.items():
            found.setdefault(driver, set()).update(each.device for each in state.devices or ())
    return found


def _results(claim: dra.ClaimState) -> Iterator[dict[str, Any]]:
    for driver, state in claim.drivers.items():
        # A claim that was never prepared has no devices in the file, but it names its drivers.
        for device in state.devices or (dra.Device("", ""),):
            yield {
                "driver": driver,
                "pool": device.pool,
                "device": device.device,
                # The file does not show which devices may be used twice, so no driver rejects it.
                "adminAccess": True,
                "skipNodeOperations": list(state.skips),
            }


def devices_of(claims: Iterable[dra.ClaimState]) -> Devices:
    """Return the devices of claims by driver, as ``pool/device``."""
    found: dict[str, set[str]] = {}
    for claim in claims:
        for driver, state in claim.drivers.items():
            names = found.setdefault(driver, set())
            # A driver's device names are unique only within a pool.
            names.update(f"{each.pool}/{each.device}" for each in state.devices or ())
    # A claim that was never prepared names its drivers, but has no devices.
    return {driver: tuple(sorted(names)) for driver, names in sorted(found.items()) if names}
