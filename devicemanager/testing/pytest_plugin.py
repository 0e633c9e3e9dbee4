"""Pytest plugin with the fixture ``mock_kubelet`` and related fixtures.

Every pytest session loads this module, so it imports only pytest. The kubelet is imported when a
test uses a fixture.

The fixtures of a test store their factories in the stash of the test's item. The hooks at the end
of the module read these factories. They fail a test whose kubelet had an error on a server thread,
and add events and output to the report of a failure. Kubelets that several tests share are stored
in the stash of the configuration, by fixture name.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from devicemanager.apiserver import FakeApiServer
    from devicemanager.kubelet.mock import MockKubelet
    from devicemanager.kubelet.settings import Settings
    from devicemanager.testing.drivers import SimulatedDriverFactory
    from devicemanager.testing.factories import (
        MockKubeletFactory,
        PodResourcesServerFactory,
        SharedKubelet,
        SimulatedPluginFactory,
    )
    from devicemanager.testing.processes import PluginProcessFactory
    from devicemanager.testing.replays import ReplayPluginFactory

_SECTION = "mock kubelet events"
_PROCESS_SECTION = "plugin process output"
_MARK = "mock_kubelet"
# Keys of the stash: pytest's typed storage for plugins, on the configuration and each item.
_SHARED: pytest.StashKey[dict[str, SharedKubelet]] = pytest.StashKey()
"""Kubelets that several tests share, by fixture name."""
_SHARED_FIXTURES = ("module_mock_kubelet", "session_mock_kubelet")
_KUBELETS: pytest.StashKey[MockKubeletFactory] = pytest.StashKey()
_REPLAYS: pytest.StashKey[ReplayPluginFactory] = pytest.StashKey()
_PROCESSES: pytest.StashKey[PluginProcessFactory] = pytest.StashKey()
_KEEPS_THREADS: pytest.StashKey[bool] = pytest.StashKey()


@pytest.fixture
def mock_kubelet_version() -> str:
    """Kubelet version of a test.

    To run a test with several versions, use
    ``@pytest.mark.parametrize("mock_kubelet_version", KUBELET_VERSIONS)``.
    """
    from devicemanager.core.versions.version import DEFAULT

    return f"1.{DEFAULT}"


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark ``mock_kubelet``."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(field=value, ...): fields of Settings for the mock kubelets of a test or module",
    )


# Cached, because validating the settings takes most of the time of the fixture.
@functools.cache
def _settings(kubelet_version: str | None = None) -> Settings:
    from devicemanager.core.versions.version import DEFAULT
    from devicemanager.kubelet.settings import Settings

    # Tests kill processes but simulate no power failure, so writes need not wait for the disk.
    return Settings(kubelet_version=kubelet_version or f"1.{DEFAULT}", durability="process")


@pytest.fixture
def api_server() -> Iterator[FakeApiServer]:
    """An API server on a free port of loopback, with an empty store."""
    from devicemanager.apiserver import FakeApiServer

    with FakeApiServer() as server:
        yield server


@pytest.fixture
def mock_kubelet_settings(mock_kubelet_version: str) -> Settings:
    """Settings of the kubelets of a test.

    Override this fixture to change all settings, or change single fields with the mark
    ``mock_kubelet``. Durability is ``process``: writes do not wait for the disk.
    """
    return _settings(mock_kubelet_version)


@pytest.fixture(scope="module")
def module_mock_kubelet_settings() -> Settings:
    """Settings of the fixture ``module_mock_kubelet``; override this fixture to change them."""
    return _settings()


@pytest.fixture(scope="session")
def session_mock_kubelet_settings() -> Settings:
    """Settings of the fixture ``session_mock_kubelet``. Marks of tests do not change them."""
    return _settings()


def _marked(node: pytest.Item | pytest.Collector, settings: Settings) -> Settings:
    # `iter_markers` yields the marks of the test first, then those of class and module.
    marks = [(mark.args, mark.kwargs) for mark in node.iter_markers(_MARK)]
    if not marks:
        return settings
    from devicemanager.testing.factories import with_marks

    return with_marks(settings, marks)


@pytest.fixture
def make_mock_kubelet(
    request: pytest.FixtureRequest, mock_kubelet_settings: Settings
) -> Iterator[MockKubeletFactory]:
    """Factory of mock kubelets, for tests that need several kubelets or start them later."""
    from devicemanager.testing.factories import MockKubeletFactory

    _keep_threads(request.config)
    with MockKubeletFactory(_marked(request.node, mock_kubelet_settings)) as factory:
        request.node.stash[_KUBELETS] = factory
        yield factory


def _keep_threads(config: pytest.Config) -> None:
    """Reuse threads of one kubelet for the next kubelets, until the end of the session.

    These are threads of directory observers, of the event loop that dials plugins, and of gRPC.
    The kernel needs 7 ms to close an observer's inotify instance; gRPC's threads end with the last
    channel or server.
    """
    if not config.stash.setdefault(_KEEPS_THREADS, False):
        import grpc

        from devicemanager.io.watch import observers
        from devicemanager.kubelet.registration.event_loop import loops

        config.stash[_KEEPS_THREADS] = True
        # The stack closes them at the end of the session, in reverse order.
        stack = contextlib.ExitStack()
        stack.enter_context(observers.enabled())
        stack.enter_context(loops.enabled())
        stack.enter_context(grpc.insecure_channel("unix:/nowhere"))  # never connects
        config.add_cleanup(stack.close)


def _shared(request: pytest.FixtureRequest, settings: Settings) -> Iterator[MockKubelet]:
    from devicemanager.testing.factories import SharedKubelet

    in_use = request.config.stash.setdefault(_SHARED, {})
    name = str(request.fixturename)
    with SharedKubelet(_marked(request.node, settings)) as shared:
        in_use[name] = shared
        try:
            yield shared.kubelet
        finally:
            del in_use[name]


@pytest.fixture(scope="module")
def module_mock_kubelet(
    request: pytest.FixtureRequest, module_mock_kubelet_settings: Settings
) -> Iterator[MockKubelet]:
    """Mock kubelet that all tests of a module share.

    After each test that uses it, pods, faults and claims are removed (``MockKubelet.reset``);
    plugins stay.
    """
    yield from _shared(request, module_mock_kubelet_settings)


@pytest.fixture(scope="session")
def session_mock_kubelet(
    request: pytest.FixtureRequest, session_mock_kubelet_settings: Settings
) -> Iterator[MockKubelet]:
    """Mock kubelet that all tests of a session share (with xdist: all tests of a worker).

    It is reset after each test, like ``module_mock_kubelet``.
    """
    yield from _shared(request, session_mock_kubelet_settings)


@pytest.fixture
def mock_kubelet(make_mock_kubelet: MockKubeletFactory) -> MockKubelet:
    """New mock kubelet in a new directory. It is stopped after the test.

    An error on one of its server threads fails the test.
    """
    return make_mock_kubelet()


@pytest.fixture
def simulated_plugin(mock_kubelet: MockKubelet) -> Iterator[SimulatedPluginFactory]:
    """Factory of plugins with virtual devices, such as ``simulated_plugin("vendor.com/gpu", 8)``.

    The plugins register with ``mock_kubelet``, or with the kubelet in the argument ``kubelet``.
    """
    from devicemanager.testing.factories import SimulatedPluginFactory

    with SimulatedPluginFactory(mock_kubelet) as factory:
        yield factory


@pytest.fixture
def simulated_driver(mock_kubelet: MockKubelet) -> Iterator[SimulatedDriverFactory]:
    """Factory of DRA drivers with virtual devices, such as ``simulated_driver("gpu.example.com")``.

    The drivers register with ``mock_kubelet``, or with the kubelet in the argument ``kubelet``.
    """
    from devicemanager.testing.drivers import SimulatedDriverFactory

    with SimulatedDriverFactory(mock_kubelet) as factory:
        yield factory


@pytest.fixture
def simulated_pools(mock_kubelet: MockKubelet) -> Callable[..., None]:
    """Function that creates virtual devices for structured claims (docs/claims.md).

    ``simulated_pools(gpu=2, nic=1, fpga=1)`` creates two GPUs, a NIC and an FPGA, and the device
    classes that select them.
    """

    def publish(*, gpu: int = 0, nic: int = 0, fpga: int = 0) -> None:
        from devicemanager.claims.simulated import SimulatedHardware, publish_hardware

        publish_hardware(mock_kubelet.claims, SimulatedHardware(gpu, nic, fpga))

    return publish


@pytest.fixture
def plugin_process(
    request: pytest.FixtureRequest, mock_kubelet: MockKubelet
) -> Iterator[PluginProcessFactory]:
    """Factory of plugin processes; the plugins can be written in any language.

    The processes end with the test.

    The following example waits until 8 devices are allocatable:
    ``plugin_process(["./my-plugin", "--socket-dir", "{plugin_dir}"], "vendor.com/gpu", 8)``.
    """
    from devicemanager.testing.processes import PluginProcessFactory

    with PluginProcessFactory(mock_kubelet) as factory:
        request.node.stash[_PROCESSES] = factory
        yield factory


@pytest.fixture
def replay_plugin(
    request: pytest.FixtureRequest, mock_kubelet: MockKubelet
) -> Iterator[ReplayPluginFactory]:
    """Factory of plugins that replay recordings, such as ``replay_plugin("gpu-node.ndjson")``.

    ``devicemanager record`` makes recordings. The test fails if the kubelet makes a request that
    was not recorded.
    """
    from devicemanager.testing.replays import ReplayPluginFactory

    with ReplayPluginFactory(mock_kubelet) as factory:
        request.node.stash[_REPLAYS] = factory
        yield factory


@pytest.fixture
def pod_resources_server() -> Iterator[PodResourcesServerFactory]:
    """Factory of mock PodResources servers, such as ``pod_resources_server("node.yaml")``.

    The argument is a script, as a file or a dict. The servers need no kubelet.
    """
    from devicemanager.testing.factories import PodResourcesServerFactory

    with PodResourcesServerFactory() as factory:
        yield factory


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose mark ``mock_kubelet`` has no effect, because other tests share its kubelet.

    Such a test could pass for the wrong reason.
    """
    # Check only marks of the test itself: marks of a class or module also affect other tests.
    if any(mark.name == _MARK for mark in item.own_markers):
        names = getattr(item, "fixturenames", ())
        shared = [name for name in names if name in _SHARED_FIXTURES]
        if shared and "make_mock_kubelet" not in names:
            pytest.fail(
                f"the mark {_MARK} does not apply to {shared[0]}, which other tests also use: "
                f"use the fixture mock_kubelet, or override {shared[0]}_settings",
                pytrace=False,
            )


def _used(item: pytest.Item) -> list[SharedKubelet]:
    """Return the running shared kubelets that a test uses."""
    in_use = item.config.stash.get(_SHARED, None)
    if not in_use:
        return []
    names = getattr(item, "fixturenames", ())
    return [shared for name, shared in in_use.items() if name in names]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a passed test if a kubelet's thread had an error, or a replayed plugin had a miss.

    A miss is a request that the replayed recording does not contain.
    """
    # Check after the test, so that an exception of the test itself takes precedence.
    yield
    if (replays := item.stash.get(_REPLAYS, None)) is not None:
        replays.check()
    if (kubelets := item.stash.get(_KUBELETS, None)) is not None:
        kubelets.check()
    for shared in _used(item):
        shared.check()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Reset the shared kubelets of a test for the next test."""
    # Reset after the teardown of the test, whose fixtures may still use the kubelet.
    yield
    for shared in _used(item):
        shared.reset()


def _shorten(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    # Do not import this project for failures of other projects. If its errors module is not
    # loaded, the error does not come from this project.
    if "devicemanager.core.errors" in sys.modules:
        from devicemanager.testing.traces import hide_our_frames

        hide_our_frames(excinfo)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add events and process output to the report of a failure, and shorten its traceback."""
    if call.excinfo is not None and not item.config.getoption("fulltrace"):
        _shorten(call.excinfo)
    # Other pytest plugins create the report first.
    report = yield
    if not report.failed:
        return report
    kubelets = item.stash.get(_KUBELETS, None)
    events = [kubelets.report()] if kubelets is not None else []
    events += [shared.report() for shared in _used(item)]
    if text := "\n".join(filter(None, events)):
        report.sections.append((_SECTION, text))
    processes = item.stash.get(_PROCESSES, None)
    if processes is not None and (text := processes.report()):
        report.sections.append((_PROCESS_SECTION, text))
    return report
