"""What the tests of faults share: a root, a kubelet, and that nothing is left over."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from devicemanager.io import watch
from devicemanager.io.idle_pool import IdlePool
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.registration import event_loop
from devicemanager.kubelet.settings import Settings
from tests.hostile import hostile, residue

Start = Callable[..., MockKubelet]

PATIENT = Settings(pod_resources_qps=None)
"""With the kubelet's own deadlines: no test fails because the machine is busy."""

IMPATIENT = attrs.evolve(PATIENT, dial_timeout=0.3, options_timeout=0.3)
"""Short deadlines of dialing and of options, which the plugin does not meet anyway."""

impatient = pytest.mark.parametrize("settings", [IMPATIENT], ids=["impatient"])
"""For tests in which something never gets an answer."""


several = pytest.mark.parametrize(
    "settings", [attrs.evolve(PATIENT, kubelet_version="1.37")], ids=["1.37"]
)
"""For tests of several plugins that serve one resource at a time."""


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
    """Every test must give back its threads and descriptors. What other tests of this process
    keep for each other is neither used nor added to."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(watch, "observers", IdlePool(0, watch._end))
        patched.setattr(event_loop, "loops", IdlePool(0, event_loop._end))
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

        def start(settings: Settings = PATIENT, at: Path = root) -> MockKubelet:
            kubelets.append(stack.enter_context(MockKubelet(at, settings)))
            return kubelets[-1]

        yield start
    for kubelet in kubelets:
        kubelet.check()


@pytest.fixture
def settings() -> Settings:
    return PATIENT


@pytest.fixture
def kubelet(start: Start, settings: Settings) -> MockKubelet:
    return start(settings)


def pod(name: str, count: int = 1, resource: str = hostile.RESOURCE, **metadata: str) -> Any:
    """A pod of one container that wants ``count`` devices."""
    limits = {resource: count} if count else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": {"limits": limits}}]},
    }
