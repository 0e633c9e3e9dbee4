"""Process of the client under test: start it, stop it, and read its state and output."""

from __future__ import annotations

import os
import signal
import socket
from collections import deque

from devicemanager.conformance.clients.client_under_test import ClientUnderTest
from devicemanager.conformance.clients.kubelet import ScriptedKubelet
from devicemanager.conformance.crash import crash_line, without_stacks
from devicemanager.core.printable import printable
from devicemanager.plugin.processes.namespace import node_binds
from devicemanager.plugin.processes.run import SupervisedRun

__all__ = ["ClientProcess"]

_STORED_LINES = 1000
_STOP_SECONDS = 2.0
_COMMAND_NOT_FOUND = 127


class ClientProcess:
    """Process of one client, which queries a scripted kubelet. It can be started again after it has
    exited."""

    def __init__(self, client: ClientUnderTest, kubelet: ScriptedKubelet) -> None:
        self._client = client
        # The port stays the same when the client is started again, because the reader of its page
        # knows only one URL.
        self._values = {
            "{socket}": str(kubelet.socket),
            "{root}": str(kubelet.root),
            "{port}": str(_free_port()),
        }
        self._binds = node_binds(kubelet.root) if client.at_node_paths else ()
        self._output: deque[str] = deque(maxlen=_STORED_LINES)
        self._run: SupervisedRun | None = None

    @property
    def metrics(self) -> str:
        """URL of this client's metrics page; empty if it has none."""
        return self._filled(self._client.metrics or "")

    def start(self) -> None:
        """Start the client."""
        env = dict(os.environ)
        env |= {name: self._filled(value) for name, value in self._client.env.items()}
        command = [self._filled(word) for word in self._client.command]
        self._run = SupervisedRun(command, env, self._client.cwd, self._binds, self._output)
        self._run.start(lambda: None)

    def stop(self) -> None:
        """Stop the client and its descendants with SIGTERM, then SIGKILL. A second call does
        nothing."""
        if self._run is not None:
            self._run.terminate()
            if self._run.wait(_STOP_SECONDS) is None:
                self._run.signal(signal.SIGKILL)
            self._run.end()

    def terminate(self, seconds: float) -> bool:
        """Send SIGTERM. Return False if the client still runs after ``seconds``."""
        assert self._run is not None
        self._run.signal(signal.SIGTERM)
        return self._run.wait(seconds) is not None

    @property
    def pid(self) -> int:
        """Process ID of the client, which must have been started."""
        assert self._run is not None
        return self._run.pid

    @property
    def is_running(self) -> bool:
        """True if the client runs."""
        return self._run is not None and self._run.status is None

    @property
    def could_not_start(self) -> bool:
        """True if the client's command does not exist."""
        return self._run is not None and self._run.status == _COMMAND_NOT_FOUND

    def exit_text(self) -> str:
        """Return a text about the client's exit: the status, and the crash message or last line of
        output. Before the exit, return ``still running``."""
        status = None if self._run is None else self._run.status
        if status is None:
            return "still running"
        how = f"ended by signal {-status}" if status < 0 else f"exit status {status}"
        # A copy, because a thread may still append lines.
        lines = [*self._output]
        reason = crash_line(lines) or "".join(without_stacks(lines)[-1:])
        return f"{how}, output: {printable(reason.strip())[:200]}" if reason else how

    def output(self) -> list[str]:
        """Return the last lines that the client has printed, at most 1000."""
        return list(self._output)

    def _filled(self, text: str) -> str:
        for name, value in self._values.items():
            text = text.replace(name, value)
        return text


def _free_port() -> int:
    # The port is closed again on return, because the client itself must listen on it.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
