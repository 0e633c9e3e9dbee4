"""Settings of the whole suite: which libraries it runs on, and how hypothesis behaves."""

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

# CI machines are shared: how long an example takes says nothing about the code.
_PATIENT = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
# Every run takes a few examples, CI the same ones each time. What only many can find is looked
# for now and then: --hypothesis-profile=deep.
_FEW = {"max_examples": 40, **_PATIENT}
hypothesis.settings.register_profile("dev", **_FEW)
hypothesis.settings.register_profile("ci", derandomize=True, print_blob=True, **_FEW)
hypothesis.settings.register_profile("deep", max_examples=1000, print_blob=True, **_PATIENT)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


hear_signals()


def pytest_report_header():
    """Which wire libraries this run is on: older ones may be laid over the environment."""
    return f"wire: protobuf {version('protobuf')}, grpcio {version('grpcio')}"


def pytest_collection_modifyitems(items):
    """Mark all tests of the rooms that do nothing but speak to peers."""
    for item in items:
        if (
            item.path.relative_to(TESTS)
            .as_posix()
            .startswith(tuple(f"{room}/" for room in WIRE_ROOMS))
        ):
            item.add_marker("wire")


def pytest_collection_finish():
    """Thousands of collected tests stay until the end: the garbage collector need not look
    at them again and again."""
    gc.freeze()


@pytest.fixture
def directory():
    """A directory with a name short enough for sockets, gone afterwards."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dm-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def no_idle_observers():
    """Nothing that another test's watches have left idle is used, and nothing is kept."""
    from devicemanager.io import watch
    from devicemanager.io.idle_pool import IdlePool

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "observers", IdlePool(2, watch._end))
        yield


@pytest.fixture(autouse=True)
def measured_processes(request, monkeypatch):
    """Coverage measures the processes of these rooms. Those of the others are killed, lack
    descriptors or disk, or are compared to the letter: they run as a user's would."""
    if request.path.relative_to(TESTS).parts[0] not in MEASURED_ROOMS:
        monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
