"""One kubelet for all tests of fault injection, and plugins and clients that observe it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import attrs
import grpc
import pytest

from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.plugin.settings import PluginSettings
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tests.hostile import hostile, residue

R = hostile.RESOURCE
EAGER = PluginSettings(
    register_backoff=0.01, register_backoff_limit=0.05, stream_delay=0.0, stop_grace=0.1
)
"""A plugin that retries at once."""


@pytest.fixture(scope="module")
def shared() -> Iterator[MockKubelet]:
    """One kubelet per module.

    A kubelet of the session would connect to a socket without a plugin for up to 10 seconds, and
    start a thread then. Tests for leaked threads, which may run meanwhile, would fail.
    """
    settings = Settings(durability="process", pod_resources_qps=None)
    with MockKubelet(settings=settings, clock=ManualClock()) as kubelet:
        yield kubelet


@pytest.fixture
def kubelet(shared: MockKubelet) -> Iterator[MockKubelet]:
    """A running kubelet without faults, plugins and pods; the test advances its clock."""
    shared.faults.seed = 0
    yield shared
    shared.faults.clear()
    for uid in shared.pods():
        shared.terminate(uid)
    shared.wait_for(
        lambda: not any(shared.allocatable().values()), what="all plugins to disconnect"
    )
    shared.check()


@pytest.fixture
def clock(kubelet: MockKubelet) -> ManualClock:
    assert isinstance(kubelet.clock, ManualClock)
    return kubelet.clock


@pytest.fixture
def in_thread() -> Iterator[Callable[..., Future[Any]]]:
    """Run a call on another thread: ``in_thread(call, *arguments)``."""
    with ThreadPoolExecutor(thread_name_prefix="in-thread") as pool:
        yield pool.submit


@attrs.frozen
class Outcome:
    """Status of a client's call."""

    code: str
    text: str


def register(kubelet: MockKubelet, endpoint: str, resource: str = R) -> Outcome:
    """Call Register once."""
    request = dp.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
    # On a new connection: a shared one may just have been cut by a fault.
    target = sockets.target(kubelet.plugin_socket)
    with grpc.insecure_channel(target, sockets.CHANNEL_OPTIONS) as channel:
        try:
            dp_grpc.RegistrationStub(channel).Register(request, timeout=30)
        except grpc.RpcError as error:
            return Outcome(error.code().name, error.details())
    return Outcome("OK", "")


@pytest.fixture
def plugin(kubelet: MockKubelet) -> Iterator[hostile.RawPlugin]:
    """A plugin that serves two devices of ``R`` on ``p.sock`` and does not register by itself."""
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock") as plugin:
        yield plugin


@pytest.fixture
def simulated(kubelet: MockKubelet) -> Iterator[Callable[..., SimulatedPlugin]]:
    """Run plugins that stay registered: ``simulated("vendor.com/gpu", pre_start=True)``."""
    with ExitStack() as stack:

        def start(resource: str, **more: Any) -> SimulatedPlugin:
            name = resource.rpartition("/")[2]
            settings = SimulationSettings(
                resource_name=resource, plugin_name=name, device_id_prefix=name, **more
            )
            plugin = SimulatedPlugin(settings, kubelet.plugin_dir, EAGER)
            stack.enter_context(plugin)
            kubelet.wait_for_resource(resource, settings.number_devices)
            return plugin

        yield start


def delays(kubelet: MockKubelet, count: int = 1) -> bool:
    """Wait until the faults delay exactly ``count`` calls and streams."""
    return residue.eventually(
        lambda: sum(state.holding for state in kubelet.faults.list()) == count
    )


def endpoint_of(kubelet: MockKubelet, resource: str) -> str:
    """Return the file name of the socket that the resource's plugin registered last."""
    return kubelet.calls(resource, rpc="Register")[-1].plugin


def cancelled_in(waiting: threading.Event) -> hostile.Unary:
    """Return a handler that waits until its caller cancels, then sets the event."""

    def handler(request: bytes, context: grpc.ServicerContext) -> bytes:
        hostile.until_cancelled(context)
        waiting.set()
        return b""

    return handler
