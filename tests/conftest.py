"""Configuration of the whole suite: libraries, hypothesis profiles, fixtures."""

import gc
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

import hypothesis
import pytest

from tests.dispositions import hear_signals

TESTS = Path(__file__).parent
WIRE_ROOMS = ("plugin/typed", "podresources", "protos")
MEASURED_ROOMS = {"cli", "plugin", "processes", "registration"}

# CI machines are shared, so the time of an example is not meaningful.
_PATIENT = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
# Every run uses few examples, CI always the same ones. --hypothesis-profile=deep, used now and
# then, finds what only many examples show.
_FEW = {"max_examples": 40, **_PATIENT}
hypothesis.settings.register_profile("dev", **_FEW)
hypothesis.settings.register_profile("ci", derandomize=True, print_blob=True, **_FEW)
hypothesis.settings.register_profile("deep", max_examples=1000, print_blob=True, **_PATIENT)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


hear_signals()


def pytest_report_header():
    """Show the versions of the wire libraries, because older ones can be laid over the
    environment."""
    return f"wire: protobuf {version('protobuf')}, grpcio {version('grpcio')}"


def pytest_collection_modifyitems(items):
    """Mark all tests of the rooms that only talk to peers."""
    for item in items:
        if (
            item.path.relative_to(TESTS)
            .as_posix()
            .startswith(tuple(f"{room}/" for room in WIRE_ROOMS))
        ):
            item.add_marker("wire")


def pytest_collection_finish():
    """Exempt the collected tests from garbage collection: thousands of them live until the end."""
    gc.freeze()


@pytest.fixture
def directory():
    """A directory with a name short enough for sockets, removed afterwards."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def no_idle_observers():
    """Use no idle observers of other tests, and leave none."""
    from devicemanager.io import watch
    from devicemanager.io.idle_pool import IdlePool

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "observers", IdlePool(2, watch._end))
        yield


@pytest.fixture(autouse=True)
def measured_processes(request, monkeypatch):
    """Measure the coverage of processes only in these rooms.

    Processes of other tests are killed, lack descriptors or disk, or are compared exactly: they
    run as a user's would.
    """
    if request.path.relative_to(TESTS).parts[0] not in MEASURED_ROOMS:
        monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
