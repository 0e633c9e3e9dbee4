"""Fixtures of these tests: a root, a kubelet, and a check that nothing is left over."""

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
"""The kubelet's own deadlines, so that no test fails because the machine is busy."""

IMPATIENT = attrs.evolve(PATIENT, dial_timeout=0.3, options_timeout=0.3)
"""Short deadlines for dialing and for options: only where no plugin is to be registered."""

impatient = pytest.mark.parametrize("settings", [IMPATIENT], ids=["impatient"])
"""For tests in which a call never gets a response."""

several = pytest.mark.parametrize(
    "settings", [attrs.evolve(PATIENT, kubelet_version="1.37")], ids=["1.37"]
)
"""For tests of several plugins of one resource."""


@pytest.fixture(scope="session")
def _warm() -> None:
    """Start a server and a channel once: gRPC never closes some of what these open."""
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    with MockKubelet(root) as kubelet, hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(hostile.RESOURCE)
    shutil.rmtree(root)


@pytest.fixture(autouse=True)
def nothing_left(_warm: None) -> Iterator[residue.Residue]:
    """Fail a test that leaves threads or descriptors.

    The pools of idle observers and loops, which other tests share, are replaced meanwhile.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(watch, "observers", IdlePool(0, watch._end))
        patched.setattr(event_loop, "loops", IdlePool(0, event_loop._end))
        before = residue.Residue.now()
        yield before
        residue.assert_back_to(before)


@pytest.fixture
def root(nothing_left: residue.Residue) -> Iterator[Path]:
    """A directory whose path is short enough for sockets; removed afterwards."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(root: Path) -> Iterator[Start]:
    """Start kubelets, by default in ``root``.

    They stop at the end of the test, and errors on their threads fail it.
    """
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
    """Return a pod with one container that requests ``count`` devices."""
    limits = {resource: count} if count else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": {"limits": limits}}]},
    }
