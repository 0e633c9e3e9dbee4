"""Counters of calls and failures per method, with the kubelet's metric names."""

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
    """Counters per metric name and ``server_api_version``. Thread-safe.

    As in the kubelet (pkg/kubelet/apis/podresources, v1.32), v1alpha1 calls count only in the
    total, and calls rejected by the rate limit are not counted.
    """

    def __init__(
        self, kinds: Collection[str] = ("list", "get_allocatable", "get"), twice: str = ""
    ) -> None:
        """``kinds`` have separate metrics. Calls of kind ``twice`` count twice in the total,
        like GetAllocatableResources from v1.21 to v1.26."""
        self._kinds = frozenset(kinds)
        self._twice = twice
        self._lock = threading.Lock()
        # Guarded by _lock: (metric name, API version) -> count.
        self._counts: Counter[tuple[str, str]] = Counter()

    @classmethod
    def of(cls, profile: Profile) -> Counters:
        """Create the counters of a kubelet version."""
        return cls(profile.counted, "get_allocatable" if profile.counts_allocatable_twice else "")

    def requested(self, api_version: str, kind: Kind) -> None:
        """Count one accepted call."""
        with self._lock:
            self._counts[f"{PREFIX}_requests_total", api_version] += 1 + (kind == self._twice)
            if api_version == "v1" and kind in self._kinds:
                self._counts[f"{PREFIX}_requests_{kind}", api_version] += 1

    def failed(self, api_version: str, kind: Kind) -> None:
        """Count one accepted call that has failed."""
        if api_version == "v1" and kind in self._kinds:
            with self._lock:
                self._counts[f"{PREFIX}_errors_{kind}", api_version] += 1

    def snapshot(self) -> Mapping[tuple[str, str], int]:
        """Return the counts by metric name and ``server_api_version``, sorted, without
        zeros."""
        with self._lock:
            return dict(sorted(self._counts.items()))
