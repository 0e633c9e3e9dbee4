"""Benchmark start-up: the command, a kubelet in a running process, a restart, and imports."""

from __future__ import annotations

import compileall
import importlib.util
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import checkpoint
from devicemanager.kubelet.mock import MockKubelet
from tools.bench.clock import now, timed
from tools.bench.environment import pod
from tools.bench.model import Case, Measurement, Scale
from tools.bench.plugin import CONTAINER_RESPONSE, RESOURCE

_TIMEOUT: Final = 30.0
_PACKAGES: Final = ("devicemanager", "checkpoint", "podresources", "protos")
_IMPORT: Final = """
import time
begin = time.perf_counter()
import {module}
print((time.perf_counter() - begin) * 1000)
"""


_PROJECT: Final = {
    "pytest.ini": "[pytest]\n",
    "conftest.py": """
import json, time
from pathlib import Path
import pytest

taken = []

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    begin = time.perf_counter()
    result = yield
    taken.append((time.perf_counter() - begin) * 1000)
    return result

def pytest_sessionfinish(session):
    Path(__file__).with_name("taken.json").write_text(json.dumps(taken))
""",
    "test_whole.py": """
import pytest
from devicemanager.testing import pod_manifest

@pytest.mark.parametrize("number", range({tests}))
def test_whole(number, mock_kubelet, simulated_plugin):
    simulated_plugin("vendor.com/gpu", 8)
    pod = pod_manifest("train", {{"vendor.com/gpu": 1}})
    assert mock_kubelet.admit(pod).admitted
""",
}
"""Files of a project whose tests use the pytest fixtures."""


def cases(scale: Scale) -> list[Case]:
    """Return the cases: all waits of a user at a start."""
    return [
        Case("start", partial(_start, scale.starts)),
        Case("fixtures", partial(_fixtures, scale.samples, scale.starts)),
        Case("up", partial(_up, scale.samples)),
        Case("restart", partial(_restart, scale.entries, scale.starts)),
        Case("import", partial(_imports, scale.starts)),
    ]


@contextmanager
def running(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Run ``devicemanager run`` in a directory during a ``with`` block."""
    program = Path(sys.executable).with_name("devicemanager")
    command = [str(program), "run", "--root", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as root:
        yield Path(root)


def _compile() -> None:
    """Compile the installed packages to bytecode, as pip does.

    Otherwise each start would compile the sources if Python may not write bytecode files.
    """
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None, "a package of this project has a file"
        compileall.compile_dir(Path(spec.origin).parent, quiet=1)


def _start(count: int) -> list[Measurement]:
    _compile()
    taken = []
    # Importing grpc takes about half of the start time and cannot be avoided.
    grpc_alone = []
    for _ in range(count):
        with _directory() as root:
            begin = now()
            with running(root):
                _await_served(root / "device-plugins/kubelet.sock", begin + _TIMEOUT)
                taken.append((now() - begin) * 1000)
        grpc_alone.append(timed(partial(_python, "import grpc")))
    return [
        Measurement(
            "devicemanager run: exec to a served kubelet.sock",
            taken,
            against="python -c 'import grpc'",
            baseline=grpc_alone,
            at_most_ratio=2.3,
        )
    ]


def _await_served(path: Path, deadline: float) -> None:
    while now() < deadline:
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(str(path)) == 0:
                return
        # Sleep, to leave the CPU to the process that starts.
        time.sleep(0.0005)
    raise TimeoutError(f"no process listens on {path} after {_TIMEOUT:g} s")


def _python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def _fixtures(tests: int, count: int) -> list[Measurement]:
    """Run pytest once, and measure each test with the setup and teardown of its fixtures."""
    _compile()
    with _directory() as place:
        for name, text in _PROJECT.items():
            (place / name).write_text(text.format(tests=tests))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(place)]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"pytest: exit status {done.returncode}: {done.stdout[-500:]}")
        taken = json.loads((place / "taken.json").read_text())
    return [
        Measurement(
            "a test with kubelet, simulated plugin and one admission",
            taken,
            against="python -c 'import grpc'",
            baseline=[timed(partial(_python, "import grpc")) for _ in range(count)],
            at_most_ratio=0.2,
        )
    ]


def _up(count: int) -> list[Measurement]:
    taken = []
    for _ in range(count):
        kubelet = MockKubelet()
        taken.append(timed(kubelet.start))
        kubelet.close()  # also removes its directory
    return [
        # The first start includes imports, so it has a separate row.
        Measurement("MockKubelet up, the first of a process", taken[:1]),
        Measurement("MockKubelet up", taken[1:], at_most=10),
    ]


def _restart(entries: int, count: int) -> list[Measurement]:
    taken = []
    with _directory() as root:
        plugin_dir = root / "device-plugins"
        plugin_dir.mkdir()
        checkpoint.FileStore(plugin_dir).write(checkpoint.dumps(_saved(entries)))
        for _ in range(count):
            kubelet = MockKubelet(root)
            taken.append(timed(kubelet.start))
            if len(kubelet.manager.pods()) != entries:
                raise RuntimeError(
                    f"the restarted kubelet did not restore {entries} checkpoint entries"
                )
            kubelet.stop()
    return [Measurement(f"restart with {entries} entries, to serving", taken, at_most=500)]


def _saved(entries: int) -> checkpoint.Checkpoint:
    ids = tuple(f"device-{number:05}" for number in range(entries))
    # Use a valid response: the kubelet drops entries with an invalid one.
    response = CONTAINER_RESPONSE.SerializeToString()
    return checkpoint.Checkpoint(
        tuple(
            checkpoint.PodDevicesEntry(pod(number).uid, "main", RESOURCE, {-1: (id_,)}, response)
            for number, id_ in enumerate(ids)
        ),
        {RESOURCE: ids},
    )


def _imports(count: int) -> list[Measurement]:
    _compile()
    goals = {
        "devicemanager": 100,
        "devicemanager.kubelet.mock": None,
        "devicemanager.testing.pytest_plugin": None,
        "checkpoint": None,
        "podresources": None,
    }
    return [
        Measurement(
            f"import {module}",
            [float(_python(_IMPORT.format(module=module))) for _ in range(count)],
            at_most=at_most,
        )
        for module, at_most in goals.items()
    ]
