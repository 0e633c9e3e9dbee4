"""Pods in memory, on a socket, and a client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from podresources.pods_api import EventType, PodsClient, PodsServer, Watcher, pod_to_bytes


def pod(uid: str, phase: str = "Running") -> bytes:
    return pod_to_bytes({"metadata": {"name": uid, "uid": uid}, "status": {"phase": phase}})


class MemoryPods:
    """Pods by UID, which a test changes."""

    def __init__(self, *uids: str) -> None:
        self._lock = threading.Lock()
        self._pods = {uid: pod(uid) for uid in uids}
        self.watchers: set[Watcher] = set()
        self.is_ready = True

    def pods(self) -> Sequence[bytes]:
        with self._lock:
            return [self._pods[uid] for uid in sorted(self._pods)]

    def pod(self, uid: str) -> bytes | None:
        return self._pods.get(uid)

    def watch(self, watcher: Watcher) -> None:
        with self._lock:
            self.watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        with self._lock:
            self.watchers.discard(watcher)

    def publish(self, kind: EventType, uid: str, phase: str = "Running") -> None:
        """Change a pod and send an event; queues that are full are dropped."""
        with self._lock:
            if kind is EventType.DELETED:
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod(uid, phase)
            self.watchers = {each for each in self.watchers if each.put(kind, pod(uid, phase))}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.fixture
def socket_path(directory: Path) -> Path:
    return directory / "pods-api.sock"


@pytest.fixture
def source() -> MemoryPods:
    return MemoryPods("b", "a")


@pytest.fixture
def serve(stack: ExitStack, socket_path: Path, source: MemoryPods) -> Callable[..., PodsServer]:
    def started(**settings: Any) -> PodsServer:
        return stack.enter_context(PodsServer(source, socket_path, **{"qps": None} | settings))

    return started


@pytest.fixture
def client(stack: ExitStack, socket_path: Path) -> PodsClient:
    return stack.enter_context(PodsClient(socket_path, timeout=10))
