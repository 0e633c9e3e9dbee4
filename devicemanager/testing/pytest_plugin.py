"""The pytest plugin: ``mock_kubelet`` and the fixtures around it.

It is loaded into every pytest session, so it imports nothing but pytest; the kubelet is
imported when a test asks for a fixture.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from devicemanager.kubelet.mock import MockKubelet
    from devicemanager.kubelet.settings import Settings
    from devicemanager.testing.factories import MockKubeletFactory, SimulatedPluginFactory
    from devicemanager.testing.processfactory import PluginProcessFactory
    from devicemanager.testing.replays import ReplayPluginFactory
    from devicemanager.testing.scripts import PodResourcesServerFactory
    from devicemanager.testing.shared import SharedKubelet

_SECTION = "mock kubelet events"
_PROCESS_SECTION = "plugin process output"
_MARK = "mock_kubelet"
_SHARED: pytest.StashKey[dict[str, SharedKubelet]] = pytest.StashKey()
"""Kubelets that several tests share, by the name of their fixture."""
_SHARED_FIXTURES = ("module_mock_kubelet", "session_mock_kubelet")
_KUBELETS: pytest.StashKey[MockKubeletFactory] = pytest.StashKey()
_REPLAYS: pytest.StashKey[ReplayPluginFactory] = pytest.StashKey()
_PROCESSES: pytest.StashKey[PluginProcessFactory] = pytest.StashKey()
_KEEPS_ENGINES: pytest.StashKey[bool] = pytest.StashKey()


@pytest.fixture
def mock_kubelet_version() -> str:
    """The version that the kubelets of a test have. To run a test on several:
    ``@pytest.mark.parametrize("mock_kubelet_version", KUBELET_VERSIONS)``."""
    from devicemanager.core.versions.version import VERIFIED

    return f"1.{VERIFIED}"


def pytest_configure(config: pytest.Config) -> None:
    """Tell of the mark."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(field=value, ...): fields of Settings for the mock kubelets of a test or module",
    )


@functools.cache
def _settings(kubelet_version: str | None = None) -> Settings:
    from devicemanager.core.versions.version import VERIFIED
    from devicemanager.kubelet.settings import Settings

    # Tests kill processes and do not cut the power, so nothing waits for the disk.
    return Settings(kubelet_version=kubelet_version or f"1.{VERIFIED}", durability="process")


@pytest.fixture
def mock_kubelet_settings(mock_kubelet_version: str) -> Settings:
    """Settings of the kubelets of a test. Override it where tests need other ones, or change
    single fields with the mark ``mock_kubelet``.

    Tests kill processes and do not cut the power, so nothing waits for the disk.
    """
    return _settings(mock_kubelet_version)


@pytest.fixture(scope="module")
def module_mock_kubelet_settings() -> Settings:
    """As ``mock_kubelet_settings``, for ``module_mock_kubelet``."""
    return _settings()


@pytest.fixture(scope="session")
def session_mock_kubelet_settings() -> Settings:
    """As ``mock_kubelet_settings``, for ``session_mock_kubelet``; no mark changes it."""
    return _settings()


def _marked(node: pytest.Item | pytest.Collector, settings: Settings) -> Settings:
    marks = [(mark.args, mark.kwargs) for mark in node.iter_markers(_MARK)]
    if not marks:
        return settings
    from devicemanager.testing.shared import with_marks

    return with_marks(settings, marks)


@pytest.fixture
def make_mock_kubelet(
    request: pytest.FixtureRequest, mock_kubelet_settings: Settings
) -> Iterator[MockKubeletFactory]:
    """Makes mock kubelets, for tests of several or of ones that they start themselves."""
    from devicemanager.testing.factories import MockKubeletFactory

    _keep_engines(request.config)
    with MockKubeletFactory(_marked(request.node, mock_kubelet_settings)) as factory:
        request.node.stash[_KUBELETS] = factory
        yield factory


def _keep_engines(config: pytest.Config) -> None:
    """Keep what one kubelet would end and the next begin again, until the end of the session:
    observers of directories, whose inotify instances take the kernel 7 ms to close, the event
    loop that plugins are dialed on, and gRPC's own threads, which last as long as any channel
    or server."""
    if not config.stash.setdefault(_KEEPS_ENGINES, False):
        import grpc

        from devicemanager.io import observers
        from devicemanager.kubelet.registration.event_loop import loops

        config.stash[_KEEPS_ENGINES] = True
        stack = contextlib.ExitStack()
        stack.enter_context(observers.kept())
        stack.enter_context(loops.kept())
        stack.enter_context(grpc.insecure_channel("unix:/nowhere"))  # never connects
        config.add_cleanup(stack.close)


def _shared(request: pytest.FixtureRequest, settings: Settings) -> Iterator[MockKubelet]:
    from devicemanager.testing.shared import SharedKubelet

    known = request.config.stash.setdefault(_SHARED, {})
    name = str(request.fixturename)
    with SharedKubelet(_marked(request.node, settings)) as shared:
        known[name] = shared
        try:
            yield shared.kubelet
        finally:
            del known[name]


@pytest.fixture(scope="module")
def module_mock_kubelet(
    request: pytest.FixtureRequest, module_mock_kubelet_settings: Settings
) -> Iterator[MockKubelet]:
    """One mock kubelet for all tests of a module. After each that used it, pods, faults and
    claims go (``MockKubelet.reset``); plugins stay."""
    yield from _shared(request, module_mock_kubelet_settings)


@pytest.fixture(scope="session")
def session_mock_kubelet(
    request: pytest.FixtureRequest, session_mock_kubelet_settings: Settings
) -> Iterator[MockKubelet]:
    """As ``module_mock_kubelet``, for the whole session: with xdist, one a worker."""
    yield from _shared(request, session_mock_kubelet_settings)


@pytest.fixture
def mock_kubelet(make_mock_kubelet: MockKubeletFactory) -> MockKubelet:
    """A fresh mock kubelet that serves in a directory of its own. It is stopped after the
    test; an error on one of its server threads fails the test."""
    return make_mock_kubelet()


@pytest.fixture
def simulated_plugin(mock_kubelet: MockKubelet) -> Iterator[SimulatedPluginFactory]:
    """Makes plugins with virtual devices, registered with ``mock_kubelet`` or another one:
    ``simulated_plugin("vendor.com/gpu", 8)``."""
    from devicemanager.testing.factories import SimulatedPluginFactory

    with SimulatedPluginFactory(mock_kubelet) as factory:
        yield factory


@pytest.fixture
def simulated_pools(mock_kubelet: MockKubelet) -> Callable[..., None]:
    """Publishes pools and classes of virtual hardware for structured claims on
    ``mock_kubelet``: ``simulated_pools(gpu=2, nic=1, fpga=1)``."""

    def publish(*, gpu: int = 0, nic: int = 0, fpga: int = 0) -> None:
        from devicemanager.claims.simulated import SimulatedHardware, publish_hardware

        publish_hardware(mock_kubelet.claims, SimulatedHardware(gpu, nic, fpga))

    return publish


@pytest.fixture
def plugin_process(
    request: pytest.FixtureRequest, mock_kubelet: MockKubelet
) -> Iterator[PluginProcessFactory]:
    """Runs plugins of any language in processes of their own, which end with the test:
    ``plugin_process(["./my-plugin", "--socket-dir", "{plugin_dir}"], "vendor.com/gpu", 8)``."""
    from devicemanager.testing.processfactory import PluginProcessFactory

    with PluginProcessFactory(mock_kubelet) as factory:
        request.node.stash[_PROCESSES] = factory
        yield factory


@pytest.fixture
def replay_plugin(
    request: pytest.FixtureRequest, mock_kubelet: MockKubelet
) -> Iterator[ReplayPluginFactory]:
    """Serves plugins from recordings of ``devicemanager record``, registered with
    ``mock_kubelet`` or another one: ``replay_plugin("gpu-node.ndjson")``. A test fails if its
    kubelet asks what was not recorded."""
    from devicemanager.testing.replays import ReplayPluginFactory

    with ReplayPluginFactory(mock_kubelet) as factory:
        request.node.stash[_REPLAYS] = factory
        yield factory


@pytest.fixture
def pod_resources_server() -> Iterator[PodResourcesServerFactory]:
    """Serves PodResources from scripted content, without a kubelet:
    ``pod_resources_server("node.yaml")``, or a dict in place of the file."""
    from devicemanager.testing.scripts import PodResourcesServerFactory

    with PodResourcesServerFactory() as factory:
        yield factory


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test with a mark of its own that reaches no kubelet, before it passes for the wrong
    reason."""
    if any(mark.name == _MARK for mark in item.own_markers):
        names = getattr(item, "fixturenames", ())
        shared = [name for name in names if name in _SHARED_FIXTURES]
        if shared and "make_mock_kubelet" not in names:
            pytest.fail(
                f"the mark {_MARK} does not reach {shared[0]}, which other tests use as well: "
                f"use mock_kubelet here, or override {shared[0]}_settings",
                pytrace=False,
            )


def _used(item: pytest.Item) -> list[SharedKubelet]:
    """The shared kubelets that a test uses and that are still there."""
    known = item.config.stash.get(_SHARED, None)
    if not known:
        return []
    names = getattr(item, "fixturenames", ())
    return [shared for name, shared in known.items() if name in names]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that passed if one of the kubelets' threads raised an error, or if a
    replayed plugin was asked what was not recorded."""
    yield
    if (replays := item.stash.get(_REPLAYS, None)) is not None:
        replays.check()
    if (kubelets := item.stash.get(_KUBELETS, None)) is not None:
        kubelets.check()
    for shared in _used(item):
        shared.check()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """The next test finds shared kubelets as this one did."""
    yield
    for shared in _used(item):
        shared.reset()


def _shorten(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    if "devicemanager.core.errors" in sys.modules:  # or none of our errors can be there
        from devicemanager.testing.traces import hide_our_frames

        hide_our_frames(excinfo)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the kubelets of the test saw, and of our errors the test's lines."""
    if call.excinfo is not None and not item.config.getoption("fulltrace"):
        _shorten(call.excinfo)
    report = yield
    if not report.failed:
        return report
    kubelets = item.stash.get(_KUBELETS, None)
    stories = [kubelets.story()] if kubelets is not None else []
    stories += [shared.story() for shared in _used(item)]
    if story := "\n".join(filter(None, stories)):
        report.sections.append((_SECTION, story))
    processes = item.stash.get(_PROCESSES, None)
    if processes is not None and (story := processes.story()):
        report.sections.append((_PROCESS_SECTION, story))
    return report
