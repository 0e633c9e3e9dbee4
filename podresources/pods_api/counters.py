"""Counters of the Pods API, with the kubelet's metric names."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

_METRICS = {"ListPods": "list", "GetPod": "get", "WatchPods": "watch"}
_PREFIX = "kubelet_pod_requests"


class PodsCounters:
    """Counters of calls, by metric name and name of the gRPC status code. Thread-safe.

    As in the kubelet (``MetricsUnaryServerInterceptor``, pkg/kubelet/apis/pods/server.go,
    v1.37.2), a watch is counted when it ends. Calls that the rate limit rejects are not counted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock: (metric, status code) -> count.
        self._counts: Counter[tuple[str, str]] = Counter()

    def ended(self, method: str, code: str) -> None:
        """Count a call that has ended with this status code."""
        with self._lock:
            self._counts[f"{_PREFIX}_total", code] += 1
            self._counts[f"{_PREFIX}_{_METRICS[method]}_total", code] += 1

    def snapshot(self) -> Mapping[tuple[str, str], int]:
        """Return the nonzero counts. The keys are pairs of metric name and status code, sorted."""
        with self._lock:
            return dict(sorted(self._counts.items()))
