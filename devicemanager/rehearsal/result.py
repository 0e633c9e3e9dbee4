"""Result of a rehearsal: outcomes of pods, predicted events, and assumptions.

A rehearsal predicts what happens on a node during steps such as a kubelet restart.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

__all__ = ["Devices", "Fate", "Outcome", "PodResult", "Rehearsal", "Statement"]

Devices = Mapping[str, tuple[str, ...]]
"""Allocated device IDs by resource, sorted."""


class Fate(enum.StrEnum):
    """What happens to a pod in a rehearsal, such as a rejection."""

    STAYS = "stays"
    """The pod is on the node after all steps."""
    ADMITTED = "admitted"
    """The pod is new and was admitted."""
    REJECTED = "rejected"
    """The kubelet rejected the pod, or the kubelet itself does not run after the steps."""
    WAITS = "waits"
    """The pod cannot start, or cannot be deleted, because a DRA driver is missing or fails."""
    DRAINED = "drained"
    """The step ``Drain`` deleted the pod."""


@attrs.frozen
class Outcome:
    """Final state of a pod after all steps, for one order of registrations and admissions."""

    fate: Fate
    reason: str = ""
    """Reason in the pod's status, such as ``UnexpectedAdmissionError``."""
    message: str = ""
    devices: Devices = attrs.field(factory=dict, hash=False)
    """The pod's devices after all steps."""
    missing: tuple[str, ...] = ()
    """Resources and DRA drivers whose devices the pod needs, but does not have, or will not get at
    its next start. Empty for a pod that is lost or deleted."""

    @property
    def is_lost(self) -> bool:
        """True if the pod is rejected, or waits for a DRA driver (REJECTED or WAITS)."""
        return self.fate in (Fate.REJECTED, Fate.WAITS)

    @property
    def is_bad(self) -> bool:
        """True if the pod is lost, or runs without its devices."""
        return self.is_lost or bool(self.missing)


@attrs.frozen
class PodResult:
    """All outcomes of one pod, from all orders of registrations and admissions that were tried."""

    uid: str
    name: str
    """``namespace/name``; the UID if the snapshot lacks the name."""
    before: Devices
    """Devices of the pod in the snapshot, by resource; empty for a new pod."""
    outcomes: Mapping[Outcome, int]
    """For each outcome, the number of orders that lead to it; the most frequent outcome first."""
    claims: Devices = attrs.field(factory=dict)
    """Devices of the pod's ResourceClaims in the snapshot, by driver, as ``pool/device``."""

    @property
    def can_be_lost(self) -> bool:
        """True if the pod is lost in at least one of the orders that were tried."""
        return any(outcome.is_lost for outcome in self.outcomes)

    @property
    def without_devices(self) -> int:
        """Number of orders in which the pod runs without its devices."""
        return sum(number for outcome, number in self.outcomes.items() if outcome.missing)

    @property
    def is_always_lost(self) -> bool:
        """True if the pod is lost in every order."""
        return all(outcome.is_lost for outcome in self.outcomes)


@attrs.frozen
class Statement:
    """A predicted event, its cause, and advice."""

    text: str
    basis: str
    """Evidence for the prediction: a comparison with a real kubelet, or source code."""
    advice: str = ""


@attrs.frozen
class Rehearsal:
    """Result of a rehearsal of one node."""

    node: str
    steps: tuple[str, ...]
    """The steps as text, in order."""
    pods: tuple[PodResult, ...]
    orders: int
    """Number of orders tried."""
    bad_orders: int
    """Number of tried orders in which at least one pod is lost or runs without its devices."""
    all_orders: bool
    """True if the result covers all orders of registrations and admissions; False if only a sample
    of the orders was tried."""
    kubelet_starts: bool
    """False if the kubelet exits with an error when it starts."""
    statements: tuple[Statement, ...]
    assumptions: tuple[str, ...]

    @property
    def loses_pods(self) -> bool:
        """True if a pod or its devices are lost in at least one order, or if the kubelet does not
        start."""
        is_bad = any(outcome.is_bad for pod in self.pods for outcome in pod.outcomes)
        return is_bad or not self.kubelet_starts

    @property
    def moved(self) -> Mapping[tuple[str, str], tuple[str, str]]:
        """Devices that move to another pod: (resource, device ID) → (old pod, new pod).

        The pods are given by name. For each pod, only the most frequent outcome is considered.
        """
        before = self._owners({pod.name: pod.before for pod in self.pods})
        after = self._owners({pod.name: next(iter(pod.outcomes)).devices for pod in self.pods})
        return {
            key: (owner, after[key])
            for key, owner in sorted(before.items())
            # A device that no pod has afterwards is free: it did not move.
            if after.get(key, owner) != owner
        }

    @staticmethod
    def _owners(devices: Mapping[str, Devices]) -> dict[tuple[str, str], str]:
        return {
            (resource, id_): name
            for name, held in devices.items()
            for resource, ids in held.items()
            for id_ in ids
        }
