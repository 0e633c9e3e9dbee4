"""Lazy claims: nothing is loaded for a node without structured claims."""

import subprocess
import sys

import pytest

from devicemanager.claims.lazy_claims import LazyClaims
from devicemanager.core.ids import ContainerName
from devicemanager.events.stream import EventStream
from tests.claims.documents import claim, device_class, pool, read
from tests.claims.test_manager import MAIN, MemoryFile, pod


@pytest.fixture
def file(tmp_path):
    """A state file that does not exist yet."""
    found = MemoryFile()
    found.path = tmp_path / "device_claims_state"
    return found


@pytest.fixture
def lazy():
    return LazyClaims(EventStream(), "n0", frozenset({"ops"}))


def is_created(lazy):
    return lazy._manager is not None


def test_node_without_claims_creates_no_manager(lazy, file):
    lazy.load(file)
    found = pod("p")
    lazy.admit(found)
    lazy.admitted("p")
    lazy.prepare(found)
    lazy.unreserve("p")
    lazy.remove_pods("p")
    lazy.remove_other_pods([])
    lazy.flush()
    lazy.clear()
    lazy.close()
    assert (lazy.is_sources_ready, lazy.pods(), lazy.version, lazy.pod_version("p")) == (
        True,
        frozenset(),
        0,
        0,
    )
    claiming = pod("q", "x")
    for queried in (found, claiming):
        assert lazy.devices(queried, MAIN) == {}
        assert lazy.cdi_devices(queried, MAIN) == lazy.health(queried, MAIN) == ()
        assert lazy.dynamic_resources(queried, MAIN) == ()
    assert not is_created(lazy)


def test_existing_state_file_creates_the_manager(lazy, file):
    file.path.touch()
    lazy.load(file)
    assert is_created(lazy)


def test_manager_created_later_uses_the_state_file(lazy, file):
    lazy.load(file)
    lazy.manager.apply(map(read, (pool(), device_class(), claim("x"))))
    lazy.admit(pod("p", "x"))
    assert lazy.pods() == {"p"} and lazy.version > 0 and lazy.pod_version("p") > 0
    assert lazy.manager.node == "n0" and file.writes == 1
    lazy.close()
    assert lazy.devices(pod("p", "x"), ContainerName("main")) == {"x": ("p/a",)}
    lazy.load(file)
    assert not lazy.is_sources_ready
    lazy.remove_other_pods([])
    lazy.flush()
    assert lazy.pods() == frozenset()


def test_import_loads_no_search():
    code = (
        "import sys, devicemanager.claims.lazy_claims;"
        "sys.exit(any(each.startswith('devicemanager.claims.core') for each in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0
