"""Programs of other implementations as fixtures: built once, started and stopped by each test."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop import builds, gobuild, rustbuild
from tests.interop.goprocess import GoProcess

Spawn = Callable[..., GoProcess]

# The tmpfs hides /var/lib, so that the directories can be created without root's permissions and
# without changes to the machine.
ENTER_NODE_PATHS = """
mount -t tmpfs none /var/lib &&
mkdir -p /var/lib/kubelet/device-plugins &&
mount --bind "$1" /var/lib/kubelet/device-plugins &&
shift && exec "$@"
"""
"""Mount a directory at the path that the API defines; run in a private mount namespace."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test of this directory, and allow enough time for a first build."""
    item.add_marker(pytest.mark.interop)
    item.add_marker(pytest.mark.timeout(240))


def _built_or_skip(name: str, build: Callable[[], Path]) -> Path:
    try:
        return build()
    except builds.Unavailable as reason:
        pytest.skip(f"no {name} programs: {reason}")
    except builds.BuildFailed as failure:
        pytest.fail(f"the {name} programs do not build:\n{failure}", pytrace=False)


def _go_programs(recipe: gobuild.Recipe) -> Path:
    return _built_or_skip(recipe.name, lambda: gobuild.build(recipe))


@pytest.fixture(scope="session", params=list(gobuild.GENERATIONS))
def go_api(request: pytest.FixtureRequest) -> Path:
    """Directory with ``plugin``, ``kubeletside`` and ``podres``, for each generation of the API."""
    return _go_programs(gobuild.GENERATIONS[request.param])


@pytest.fixture(scope="session")
def go_bin() -> Path:
    """Directory of the same programs, for the API of Kubernetes 1.32 only."""
    return _go_programs(gobuild.GENERATIONS["k8s-0.32"])


@pytest.fixture(scope="session")
def dpm_plugin() -> Path:
    return _go_programs(gobuild.DPM) / "dpmplugin"


@pytest.fixture(scope="session")
def checkpointread() -> Path:
    return _go_programs(gobuild.CHECKPOINT) / "checkpointread"


@pytest.fixture(scope="session")
def podsapi() -> Path:
    return _go_programs(gobuild.PODS_API) / "podsapi"


@pytest.fixture(scope="session")
def dra_driver() -> Path:
    return _go_programs(gobuild.DRA_DRIVER) / "dradriver"


@pytest.fixture(scope="session")
def tonic_plugin() -> Path:
    return _built_or_skip("Rust", rustbuild.build) / "tonicplugin"


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Function that starts programs; they are stopped after the test."""
    with ExitStack() as running:

        def start(program: Path, *arguments: str | Path) -> GoProcess:
            return running.enter_context(GoProcess([program, *arguments]))

        yield start


@pytest.fixture
def node_dir(directory: Path) -> Path:
    return directory


@pytest.fixture
def plugin_dir(node_dir: Path) -> Path:
    path = node_dir / "device-plugins"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def at_node_paths() -> Callable[[Path, Path], list[str | Path]]:
    """Function that returns a command: it runs a program in a private mount namespace, with a
    directory mounted at /var/lib/kubelet/device-plugins."""
    failures = []
    for unshare in (["unshare", "-rm"], ["unshare", "-m"]):
        if shutil.which("unshare") is None:
            pytest.skip("unshare is not installed")
        trial = subprocess.run(
            [*unshare, "sh", "-c", ENTER_NODE_PATHS, "sh", "/tmp", "true"],
            capture_output=True,
            text=True,
        )
        if trial.returncode == 0:
            break
        failures.append(trial.stderr.strip())
    else:
        pytest.skip(f"cannot create a private mount namespace: {'; '.join(failures)}")

    def command(directory: Path, program: Path) -> list[str | Path]:
        return [*unshare, "sh", "-c", ENTER_NODE_PATHS, "sh", directory, program]

    return command


@pytest.fixture
def podres(go_bin: Path) -> Callable[..., Any]:
    """Function that queries a socket with the Go client: ``podres(socket, "list")``."""

    def query(socket: Path, *words: str, program: Path = go_bin / "podres") -> Any:
        done = subprocess.run(
            [program, "-socket", socket, *words], capture_output=True, text=True, timeout=30
        )
        assert done.stdout, done.stderr
        answer = json.loads(done.stdout)
        assert (done.returncode != 0) == ("error" in answer), done
        return answer

    return query
