"""Plugins of a scenario that are programs, which run beside the mock kubelet as on a node."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from devicemanager.kubelet.mock import MockKubelet

_PATIENCE: Final = 10.0


class ProgramPlugin:
    """A plugin that is a program; ``$DIRECTORY`` in its command is the plugin directory."""

    def __init__(self, name: str, resource: str, described: Mapping[str, Any], _: object) -> None:
        self.name = name
        self._resource = resource
        self._command: Sequence[str] = described["program"]
        self._process: subprocess.Popen[bytes] | None = None
        self._kubelet: MockKubelet | None = None
        self._own: set[Path] = set()

    @property
    def closed(self) -> bool:
        """True if the program has ended."""
        return self._process is None or self._process.poll() is not None

    def join(self, kubelet: MockKubelet) -> None:
        """Start the program and wait until the kubelet has its first list."""
        directory = f"{kubelet.plugin_dir}/"
        command = [word.replace("$DIRECTORY", directory) for word in self._command]
        self._kubelet = kubelet
        before, sockets = self._allocatable(), self._sockets()
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait_for_change(before, "does not register")
        self._own = self._sockets() - sockets

    def watch(self, kubelet: MockKubelet) -> None:
        """Start the program: it registers in its own way."""
        self.join(kubelet)

    def unwatch(self) -> None:
        """End the program."""
        self.stop()

    def send(self, devices: Sequence[Mapping[str, Any]]) -> None:
        """Do nothing: the program decides what it lists."""

    def stop(self) -> None:
        """Kill the program, wait until the kubelet has noticed, and remove its sockets."""
        if self._process is None or self._kubelet is None:
            return
        before, process, self._process = self._allocatable(), self._process, None
        process.kill()
        process.wait()
        if self._kubelet.is_serving:
            self._wait_for_change(before, "ended unnoticed")
        for socket in self._own:
            socket.unlink(missing_ok=True)

    def _sockets(self) -> set[Path]:
        assert self._kubelet is not None
        return set(self._kubelet.plugin_dir.glob("*.sock"))

    def _allocatable(self) -> int | None:
        kubelet = self._kubelet
        assert kubelet is not None
        return kubelet.allocatable().get(self._resource) if kubelet.is_serving else None

    def _wait_for_change(self, before: int | None, problem: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while self._allocatable() == before:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the program of {self._resource} {problem}: {self._command}")
            time.sleep(0.001)
