"""Counters and histograms of the events and calls of one kubelet instance."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

import attrs

from devicemanager.core import messages

__all__ = [
    "OTHERS",
    "Admitted",
    "Allocated",
    "DriverCalled",
    "Histogram",
    "Observation",
    "Prepared",
    "Registered",
    "Tally",
]

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of buckets in seconds: ``DefBuckets`` of the Go client."""
DRA_SECONDS: Final = tuple(0.1 * 400 ** (n / 14) for n in range(15))
"""Upper bounds of buckets in seconds, from 0.1 to 40: ``DRADurationBuckets``
(pkg/kubelet/metrics/metrics.go, v1.32)."""
# ``ExponentialBuckets(0.05, 2, 15)`` of the kubelet (pkg/kubelet/metrics/metrics.go).
MILLISECONDS: Final = tuple(0.05 * 2**n for n in range(15))
MOST_RESOURCES: Final = 1000
"""Maximum number of resource names that are used as labels. Plugins choose the names, and each name
uses memory here and in every system that stores the metrics."""
OTHERS: Final = "(others)"
"""Label for all resources beyond ``MOST_RESOURCES``. It is not a valid resource name."""

# ``admissionRejectionReasons`` (pkg/kubelet/kubelet.go, v1.32), without the reasons that a mock
# kubelet never uses.
_KNOWN_REASONS: Final = frozenset(
    {messages.UNEXPECTED_ADMISSION_ERROR, messages.TOPOLOGY_AFFINITY_ERROR}
    | {messages.OUT_OF.format(resource=name) for name in ("cpu", "memory", "pods")}
    | {messages.OUT_OF.format(resource="ephemeral-storage")}
)


class Histogram:
    """Histogram with ascending upper ``bounds``. A value equal to a bound belongs to that bound's
    bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        # The additional last count is for values above all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add a value to the histogram."""
        # A value equal to a bound belongs to its bucket, because the label ``le`` means `at most`.
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of values in the histogram."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Return pairs of a bound and the number of values up to that bound."""
        # The last count has no bound, so it is left out. ``count`` is the value for ``+Inf``.
        return zip(self.bounds, accumulate(self.counts), strict=False)


@attrs.frozen
class Registered:
    """Data of a Register call for ``Tally.add``. The kubelet can have accepted or rejected it."""

    resource: str


@attrs.frozen
class Allocated:
    """Data of a finished Allocate call for ``Tally.add``. The call can have succeeded or failed."""

    resource: str
    seconds: float


@attrs.frozen
class Admitted:
    """Data of a finished admission for ``Tally.add``."""

    seconds: float
    containers: int
    """Number of containers whose devices were allocated."""
    reason: str = ""
    """Reason of the rejection; empty for an admitted pod."""


@attrs.frozen
class Prepared:
    """Data of a finished operation on the ResourceClaims of a pod, for ``Tally.add``."""

    operation: str
    """Name of the operation: ``PrepareResources`` or ``UnprepareResources``."""
    failed: bool
    seconds: float


@attrs.frozen
class DriverCalled:
    """Data of a finished call to a DRA driver, for ``Tally.add``."""

    driver: str
    rpc: str
    code: str
    seconds: float


Observation = Registered | Allocated | Admitted | Prepared | DriverCalled


class Tally:
    """Counts and histograms of a kubelet's events and calls. Not thread-safe.

    The arguments describe the Topology Manager. ``aligns``: True for any policy except ``none``.
    ``guarantees``: True for the policy ``single-numa-node``. ``per_pod``: True for the scope
    ``pod``.
    """

    def __init__(self, *, aligns: bool, guarantees: bool, per_pod: bool) -> None:
        self.aligns = aligns
        self.guarantees = guarantees
        self.per_pod = per_pod
        self.registrations: Counter[str] = Counter()
        self.allocations: dict[str, Histogram] = {}
        self.admissions = Histogram(MILLISECONDS)
        self.errors = 0
        """Number of admissions that failed in the Topology Manager."""
        self.rejections: Counter[str] = Counter()
        self.aligned = 0
        self.not_aligned = 0
        self.prepared: dict[tuple[str, bool], Histogram] = {}
        """Durations of operations on ResourceClaims, in seconds, by operation and result. The
        result is True for a failed operation."""
        self.driver_calls: dict[tuple[str, str, str], Histogram] = {}
        """Durations of calls to DRA drivers, in seconds, by driver, RPC and status code."""

    def add(self, observation: Observation) -> None:
        """Count one event or call."""
        match observation:
            case Registered(resource):
                self.registrations[self._label(resource, self.registrations)] += 1
            case Allocated(resource, seconds):
                resource = self._label(resource, self.allocations)
                if resource not in self.allocations:
                    self.allocations[resource] = Histogram(SECONDS)
                self.allocations[resource].observe(seconds)
            case Admitted():
                self._admission(observation)
            case Prepared(operation, failed, seconds):
                known = self.prepared
                known.setdefault((operation, failed), Histogram(DRA_SECONDS)).observe(seconds)
            case DriverCalled(driver, rpc, code, seconds):
                calls = self.driver_calls
                key = driver, rpc, code
                # Drivers choose their names, so the number of keys is limited as for resources.
                if key not in calls and len(calls) >= MOST_RESOURCES:
                    key = OTHERS, rpc, code
                calls.setdefault(key, Histogram(DRA_SECONDS)).observe(seconds)

    @staticmethod
    def _label(resource: str, labels: Counter[str] | dict[str, Histogram]) -> str:
        return resource if resource in labels or len(labels) < MOST_RESOURCES else OTHERS

    def _admission(self, admission: Admitted) -> None:
        # ``Admit`` of manager and scopes (pkg/kubelet/cm/topologymanager, v1.33): durations in
        # whole milliseconds; policy ``none`` counts no errors.
        self.admissions.observe(float(int(admission.seconds * 1000)))
        reason = admission.reason
        in_topology_manager = reason in (
            messages.UNEXPECTED_ADMISSION_ERROR,
            messages.TOPOLOGY_AFFINITY_ERROR,
        )
        if reason:
            self.rejections[_reason_label(reason)] += 1
        if self.aligns and in_topology_manager:
            self.errors += 1
        # Scope ``pod`` counts pods. Scope ``container`` counts containers, even those that were
        # aligned before a later container of the same pod failed.
        if self.guarantees:
            self.not_aligned += reason == messages.TOPOLOGY_AFFINITY_ERROR
            self.aligned += not in_topology_manager if self.per_pod else admission.containers


def _reason_label(reason: str) -> str:
    """Return the metric label for the reason of a rejection (``recordAdmissionRejection``,
    v1.32)."""
    if reason in _KNOWN_REASONS:
        return reason
    if reason.startswith(messages.OUT_OF.format(resource="")):
        return messages.OUT_OF.format(resource="ExtendedResources")
    return "Other"
