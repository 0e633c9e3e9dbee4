"""Sockets in short directories, and servers that are stopped after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from podresources import MemorySource, PodResourcesClient, PodResourcesServer


@pytest.fixture
def socket_path(directory: Path) -> Path:
    return directory / "kubelet.sock"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.fixture
def serve(stack: ExitStack, socket_path: Path) -> Callable[..., PodResourcesServer]:
    def started(source: Any = None, **settings: Any) -> PodResourcesServer:
        settings = {"qps": None} | settings
        server = PodResourcesServer(source or MemorySource(), socket_path, **settings)
        return stack.enter_context(server)

    return started


@pytest.fixture
def client(stack: ExitStack, socket_path: Path) -> PodResourcesClient:
    return stack.enter_context(PodResourcesClient(socket_path, timeout=10))
