"""Environment of the cases: a mock kubelet in this process and its plugin in another process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from tools.bench.plugin import resource_name, socket_name

_TIMEOUT = 60.0


class Helper:
    """Module that runs in another process and responds to each line with a line."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def ask(self, line: str) -> str:
        """Send a line to the process and return the line with which it responds."""
        stream = _pipe(self._process.stdin)
        stream.write(f"{line}\n")
        stream.flush()
        return self._read()

    def _read(self) -> str:
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"the helper {self._process.args!r} exited: see its message above")
        return line.strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            _pipe(self._process.stdin).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None, "the process was started with pipes"
    return stream


class PluginProcess(Helper):
    """Process of the plugin ``tools.bench.plugin`` for the kubelet of a directory."""

    def __init__(self, directory: Path, devices: int, nodes: int = 0, sockets: int = 1) -> None:
        self.socket = directory / socket_name(0)
        super().__init__("tools.bench.plugin", directory, devices, nodes, sockets)

    def register(self) -> float:
        """Register all sockets of the plugin. Return the time at which the registration started."""
        return float(self.ask("register"))

    def change(self, stream: int, repeats: int = 0) -> float:
        """Send the last device list ``repeats`` times on a stream, followed by a changed list.
        Return the start time."""
        return float(self.ask(f"{stream} {repeats}"))


def topology(nodes: int) -> NumaTopology:
    """Return a topology with ``nodes`` NUMA nodes: 0, 1, and so on."""
    return NumaTopology.of(range(nodes))


@contextlib.contextmanager
def node(
    devices: int, nodes: int = 0, settings: Settings | None = None, sockets: int = 1
) -> Iterator[tuple[MockKubelet, PluginProcess]]:
    """Run a kubelet with a registered plugin during a ``with`` block. At its start, the kubelet has
    all devices."""
    # The plugin must exit before the kubelet: its socket is in the kubelet's directory.
    with (
        MockKubelet(settings=settings) as kubelet,
        PluginProcess(kubelet.plugin_dir, devices, nodes, sockets) as plugin,
    ):
        plugin.register()
        for number in range(sockets):
            kubelet.wait_for_resource(resource_name(number), devices, timeout=_TIMEOUT)
        yield kubelet, plugin


def pod(number: int) -> Pod:
    """Return a pod with one container that requests one device."""
    # The UIDs have equal length, so that all checkpoint entries have the same size.
    limits = {ResourceName(resource_name(0)): 1}
    container = Container(ContainerName("main"), limits, requests=limits)
    uid = PodUid(f"00000000-0000-4000-8000-{number:012}")
    return Pod(uid, f"pod-{number}", "bench", (container,))


def admit(kubelet: MockKubelet, *pods: Pod) -> None:
    """Admit pods without starting their containers. Raises Rejected if the kubelet rejects a
    pod."""
    for each in pods:
        kubelet.admit(each, start=False).raise_for_rejection()
