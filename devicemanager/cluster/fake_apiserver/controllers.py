"""What reconciles in a cluster, in small: enough for nodes to be Ready, pods to be bound and
Jobs to be done.

No stand-in for the real ones: the scheduler counts resources and looks at taints, the node
lifecycle looks at conditions and leases, and that is all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from devicemanager.cluster.fake_apiserver import jobs, lifecycle, scheduling
from devicemanager.cluster.fake_apiserver.server import FakeApiServer

__all__ = ["Controllers"]


class Controllers:
    """Run beside a stub, each on a thread, from ``start`` or ``with`` to ``stop``."""

    def __init__(self, stub: FakeApiServer, *, grace: float = 50.0) -> None:
        """``grace``: seconds without a renewed lease until a node is NotReady."""
        self._stub = stub
        self._lifecycle = lifecycle.Lifecycle(grace)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Reconcile whenever something changed."""
        for name, step in (
            ("lifecycle", self._lifecycle.step),
            ("scheduler", scheduling.step),
            ("jobs", jobs.step),
        ):
            thread = threading.Thread(target=self._run, args=(step,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Reconcile no more."""
        self._stopping.set()
        self._stub.objects.store.wake()
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, step: Callable[[FakeApiServer], None]) -> None:
        at = 0
        while not self._stopping.is_set():
            store = self._stub.objects.store
            with store.lock:
                version = store.version
            if version != at:
                step(self._stub)
            at = version
            for _ in store.after(at, 0.5, self._stopping.is_set):
                break
            # What comes in bursts is looked at once.
            self._stopping.wait(0.02)
            if store is not self._stub.objects.store:
                at = 0
