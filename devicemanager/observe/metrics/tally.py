"""What happened during one life of a kubelet's process, as numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

import attrs

from devicemanager.core import messages

__all__ = ["OTHERS", "Admitted", "Allocated", "Happened", "Histogram", "Registered", "Tally"]

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""``DefBuckets`` of the Go client."""
MILLISECONDS: Final = tuple(0.05 * 2**n for n in range(15))
MOST_RESOURCES: Final = 1000
"""Names of resources that are told apart: a plugin chooses them, and each costs memory here and
wherever it is stored."""
OTHERS: Final = "(others)"
"""No resource can have this name."""

_KNOWN_REASONS: Final = frozenset(
    {messages.UNEXPECTED_ADMISSION_ERROR, messages.TOPOLOGY_AFFINITY_ERROR}
    | {messages.OUT_OF.format(resource=name) for name in ("cpu", "memory", "pods")}
    | {messages.OUT_OF.format(resource="ephemeral-storage")}
)
"""``admissionRejectionReasons`` (pkg/kubelet/kubelet.go, v1.32), as far as we can reject so."""


class Histogram:
    """How many values fell where. ``bounds`` ascend; a value belongs to the first that is not
    below it."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound, and how many values are not above it."""
        return zip(self.bounds, accumulate(self.counts), strict=False)


@attrs.frozen
class Registered:
    """A plugin has called Register."""

    resource: str


@attrs.frozen
class Allocated:
    """A call of Allocate has ended, well or not."""

    resource: str
    seconds: float


@attrs.frozen
class Admitted:
    """An admission has ended."""

    seconds: float
    containers: int
    """Those that had got their devices."""
    reason: str = ""
    """That of a rejection; empty for a pod that was admitted."""


Happened = Registered | Allocated | Admitted


class Tally:
    """Adds up. With ``aligns`` the topology manager has a policy, with ``guarantees`` one that
    promises a single NUMA node; ``per_pod`` is its scope."""

    def __init__(self, *, aligns: bool, guarantees: bool, per_pod: bool) -> None:
        self.aligns = aligns
        self.guarantees = guarantees
        self.per_pod = per_pod
        self.registrations: Counter[str] = Counter()
        self.allocations: dict[str, Histogram] = {}
        self.admissions = Histogram(MILLISECONDS)
        self.errors = 0
        """Admissions that failed while resources were aligned."""
        self.rejections: Counter[str] = Counter()
        self.aligned = 0
        self.not_aligned = 0

    def add(self, happened: Happened) -> None:
        """Something more."""
        match happened:
            case Registered(resource):
                self.registrations[self._known(resource, self.registrations)] += 1
            case Allocated(resource, seconds):
                resource = self._known(resource, self.allocations)
                if resource not in self.allocations:
                    self.allocations[resource] = Histogram(SECONDS)
                self.allocations[resource].observe(seconds)
            case Admitted():
                self._admission(happened)

    @staticmethod
    def _known(resource: str, known: Counter[str] | dict[str, Histogram]) -> str:
        return resource if resource in known or len(known) < MOST_RESOURCES else OTHERS

    def _admission(self, admission: Admitted) -> None:
        """``Admit`` of manager and scopes (pkg/kubelet/cm/topologymanager, v1.33): whole
        milliseconds; policy ``none`` counts no errors."""
        self.admissions.observe(float(int(admission.seconds * 1000)))
        reason = admission.reason
        in_topology_manager = reason in (
            messages.UNEXPECTED_ADMISSION_ERROR,
            messages.TOPOLOGY_AFFINITY_ERROR,
        )
        if reason:
            self.rejections[_told(reason)] += 1
        if self.aligns and in_topology_manager:
            self.errors += 1
        if self.guarantees:
            self.not_aligned += reason == messages.TOPOLOGY_AFFINITY_ERROR
            self.aligned += not in_topology_manager if self.per_pod else admission.containers


def _told(reason: str) -> str:
    """The label for a rejection's reason (``recordAdmissionRejection``, v1.32)."""
    if reason in _KNOWN_REASONS:
        return reason
    if reason.startswith(messages.OUT_OF.format(resource="")):
        return messages.OUT_OF.format(resource="ExtendedResources")
    return "Other"
