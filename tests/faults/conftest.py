"""What the tests of faults share: a root, a kubelet, and that nothing is left over."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.settings import Settings
from tests.faults import hostile, residue

Start = Callable[..., MockKubelet]

IMPATIENT = Settings(
    dial_timeout=0.3, options_timeout=0.3, allocate_timeout=0.3, pod_resources_qps=None
)


@pytest.fixture(scope="session")
def _warm() -> None:
    """gRPC opens what it keeps for good with its first server and channel."""
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    with MockKubelet(root) as kubelet, hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(hostile.RESOURCE)
    shutil.rmtree(root)


@pytest.fixture(autouse=True)
def nothing_left(_warm: None) -> Iterator[residue.Residue]:
    """Every test must give back its threads and descriptors."""
    before = residue.Residue.now()
    yield before
    residue.assert_back_to(before)


@pytest.fixture
def root(nothing_left: residue.Residue) -> Iterator[Path]:
    """A directory short enough for sockets, gone afterwards."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(root: Path) -> Iterator[Start]:
    """Start kubelets, on ``root`` unless told otherwise; they stop with the test, and what
    went wrong on their threads fails it."""
    kubelets: list[MockKubelet] = []
    with ExitStack() as stack:

        def start(settings: Settings = IMPATIENT, at: Path = root) -> MockKubelet:
            kubelets.append(stack.enter_context(MockKubelet(at, settings)))
            return kubelets[-1]

        yield start
    for kubelet in kubelets:
        kubelet.check()


@pytest.fixture
def kubelet(start: Start) -> MockKubelet:
    return start()


def pod(name: str, count: int = 1, resource: str = hostile.RESOURCE, **metadata: str) -> Any:
    """A pod of one container that wants ``count`` devices."""
    limits = {resource: count} if count else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": {"limits": limits}}]},
    }
