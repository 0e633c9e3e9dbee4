"""Plugins of a scenario that are programs. They run beside the mock kubelet, as on a node."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from devicemanager.kubelet.mock import MockKubelet
from tools.differential.plugins import handled_by, wait_for


class ProgramPlugin:
    """A plugin that is a program. ``$DIRECTORY`` in its command is the plugin directory."""

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
        handled, sockets = handled_by(kubelet), self._sockets()
        before = handled.lists
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(lambda: handled.lists > before)
        self._own = self._sockets() - sockets

    def watch(self, kubelet: MockKubelet) -> None:
        """Start the program. It decides how it registers."""
        self.join(kubelet)

    def unwatch(self) -> None:
        """End the program."""
        self.stop()

    def send(self, devices: Sequence[Mapping[str, Any]]) -> None:
        """Do nothing: the program decides which devices it lists."""

    def stop(self) -> None:
        """Kill the program, wait until the kubelet has noticed, and remove its sockets."""
        if self._process is None or self._kubelet is None:
            return
        handled = handled_by(self._kubelet) if self._kubelet.is_serving else None
        before = handled.ends if handled else 0
        process, self._process = self._process, None
        process.kill()
        process.wait()
        if handled:
            wait_for(lambda: handled.ends > before)
        for socket in self._own:
            socket.unlink(missing_ok=True)

    def _sockets(self) -> set[Path]:
        assert self._kubelet is not None
        return set(self._kubelet.plugin_dir.glob("*.sock"))
