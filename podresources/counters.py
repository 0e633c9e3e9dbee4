"""Count calls and failures of PodResources methods under the kubelet's metric names."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Literal

from podresources.profile import Profile

Kind = Literal["list", "get_allocatable", "get"]

PREFIX = "kubelet_pod_resources_endpoint"
LABEL = "server_api_version"


class Counters:
    """Counters of calls and failures, by metric name and API version. Thread-safe.

    The API version (``v1`` or ``v1alpha1``) is the label ``server_api_version`` of the metric. For
    v1alpha1, only the total of all calls is counted, as in the kubelet
    (pkg/kubelet/apis/podresources, v1.32). Calls that the rate limit rejects are not counted.
    """

    def __init__(
        self, kinds: Collection[str] = ("list", "get_allocatable", "get"), twice: str = ""
    ) -> None:
        """``kinds`` are the methods that have their own metrics, in addition to the total of all
        calls. Each call of the method ``twice`` adds 2 to this total; an empty string means no
        method. Kubelets from v1.21 to v1.26 add 2 for GetAllocatableResources."""
        self._kinds = frozenset(kinds)
        self._twice = twice
        self._lock = threading.Lock()
        # Guarded by _lock: (metric name, API version) -> count.
        self._counts: Counter[tuple[str, str]] = Counter()

    @classmethod
    def of(cls, profile: Profile) -> Counters:
        """Create the counters of the kubelet version that ``profile`` describes."""
        return cls(profile.counted, "get_allocatable" if profile.counts_allocatable_twice else "")

    def requested(self, api_version: str, kind: Kind) -> None:
        """Count one accepted call of the method ``kind``."""
        with self._lock:
            self._counts[f"{PREFIX}_requests_total", api_version] += 1 + (kind == self._twice)
            if api_version == "v1" and kind in self._kinds:
                self._counts[f"{PREFIX}_requests_{kind}", api_version] += 1

    def failed(self, api_version: str, kind: Kind) -> None:
        """Count one accepted call of the method ``kind`` that has failed."""
        if api_version == "v1" and kind in self._kinds:
            with self._lock:
                self._counts[f"{PREFIX}_errors_{kind}", api_version] += 1

    def snapshot(self) -> Mapping[tuple[str, str], int]:
        """Return the nonzero counts. The keys are pairs of metric name and API version, sorted."""
        with self._lock:
            return dict(sorted(self._counts.items()))
