"""Configuration of the whole suite: Hypothesis profiles, markers and shared fixtures."""

import functools
import gc
import os
import shutil
import sys
import tempfile
import threading
from importlib.metadata import version
from pathlib import Path

import hypothesis
import pytest

from tests.sessions import restore_signals
from tests.signatures import OURS

TESTS = Path(__file__).parent
WIRE_ROOMS = ("plugin/typed", "podresources", "protos")
MEASURED_ROOMS = ("cli", "kubelet/registration", "plugin")

# CI machines are shared, so the time of an example is not meaningful.
_PATIENT = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
# Few examples keep every run short, and CI always uses the same ones. Run
# --hypothesis-profile=deep from time to time to find rare failures.
_FEW = {"max_examples": 40, **_PATIENT}
hypothesis.settings.register_profile("dev", **_FEW)
hypothesis.settings.register_profile("ci", derandomize=True, print_blob=True, **_FEW)
hypothesis.settings.register_profile("deep", max_examples=1000, print_blob=True, **_PATIENT)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


restore_signals()

# Until the tests are collected: almost nothing that the collection creates is garbage.
gc.disable()

_start_thread = threading.Thread.start


def _start_daemon(thread):
    """Start a thread. Those of our packages must be daemons: others delay the program's exit."""
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if caller.partition(".")[0] in OURS:
        assert thread.daemon, f"{caller} starts the thread {thread.name!r}, which is not a daemon"
    _start_thread(thread)


threading.Thread.start = _start_daemon


@functools.cache
def is_in(path, rooms):
    """True if a test module is in one of these directories. Cached: it is asked for each test."""
    return any(path.is_relative_to(TESTS / room) for room in rooms)


def pytest_report_header():
    """Show the versions of the wire libraries: `make test-lines` replaces them by older ones."""
    return f"wire: protobuf {version('protobuf')}, grpcio {version('grpcio')}"


def pytest_collection_modifyitems(items):
    """Mark the tests that `make test-lines` repeats with older wire libraries."""
    for item in items:
        if is_in(item.path, WIRE_ROOMS):
            item.add_marker("wire")


def pytest_collection_finish():
    """Exempt the collected tests from garbage collection: thousands of them live until the end."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def directory():
    """Directory with a path short enough for sockets, removed after the test."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def no_idle_observers():
    """Pool of idle observers that is not shared with other tests."""
    from devicemanager.io import watch
    from devicemanager.io.idle_pool import IdlePool

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "observers", IdlePool(2, watch._end))
        yield


@pytest.fixture(autouse=True)
def measured_processes(request, monkeypatch):
    """Measure the coverage of child processes only in these rooms.

    Other tests kill their processes, limit their descriptors or disk, or compare their output
    exactly, so they must run without additions.
    """
    if not is_in(request.path, MEASURED_ROOMS):
        monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
