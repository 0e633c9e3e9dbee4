"""How often each method was asked and failed, under the kubelet's metric names."""

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
    """Counts per metric name and ``server_api_version``. Thread-safe.

    As in the kubelet (pkg/kubelet/apis/podresources, v1.32), v1alpha1 calls count in
    the total only, and calls that the rate limit rejected count nowhere.
    """

    def __init__(
        self, kinds: Collection[str] = ("list", "get_allocatable", "get"), twice: str = ""
    ) -> None:
        """``kinds`` have metrics of their own; calls of kind ``twice`` count twice in the
        total, as GetAllocatableResources did from v1.21 to v1.26."""
        self._kinds = frozenset(kinds)
        self._twice = twice
        self._lock = threading.Lock()
        # Guarded by _lock: (metric name, API version) -> count.
        self._counts: Counter[tuple[str, str]] = Counter()

    @classmethod
    def of(cls, profile: Profile) -> Counters:
        """What a version of the kubelet counts."""
        return cls(profile.counted, "get_allocatable" if profile.counts_allocatable_twice else "")

    def requested(self, api_version: str, kind: Kind) -> None:
        """Count one call that was let in."""
        with self._lock:
            self._counts[f"{PREFIX}_requests_total", api_version] += 1 + (kind == self._twice)
            if api_version == "v1" and kind in self._kinds:
                self._counts[f"{PREFIX}_requests_{kind}", api_version] += 1

    def failed(self, api_version: str, kind: Kind) -> None:
        """Count one call that was let in and answered with an error."""
        if api_version == "v1" and kind in self._kinds:
            with self._lock:
                self._counts[f"{PREFIX}_errors_{kind}", api_version] += 1

    def snapshot(self) -> Mapping[tuple[str, str], int]:
        """(metric name, ``server_api_version``) → count, sorted; only what was counted."""
        with self._lock:
            return dict(sorted(self._counts.items()))
