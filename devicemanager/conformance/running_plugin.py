"""Processes of the plugin on one stage: start and stop them, and read their state and resource
use."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.conformance.crash import crash_line
from devicemanager.conformance.outcomes import Failed, HookFailed, Skipped
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.core.printable import printable
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.testing.processes import PluginProcess, ProcessEnded

if TYPE_CHECKING:
    from types import ModuleType

    from devicemanager.conformance.process_checks import ThreadTime, Usage

__all__ = ["RunningPlugin"]

_COMMAND_NOT_FOUND = 127
"""Exit status for a command that does not exist, as in a shell."""

_MOST_CORRECTION = 10
"""Maximum factor by which the share of a thread is increased because the thread waited for a core.
In a short measurement, a thread can wait for nearly the whole time."""


class RunningPlugin:
    """Instances of the plugin under test on one kubelet.

    Properties and methods apply to the instance that was started last. Earlier instances are
    stored, too: a check may run two instances at a time (K11, K12), and all must be stopped at the
    end.
    """

    def __init__(
        self, under_test: PluginUnderTest, kubelet: MockKubelet, stop_seconds: float = 10.0
    ) -> None:
        """Create the object without starting an instance. ``stop_seconds`` is the time from SIGTERM
        to SIGKILL when an instance is stopped."""
        self.under_test = under_test
        self._stop_seconds = stop_seconds
        self.processes: list[PluginProcess] = []
        self._kubelet = kubelet
        self._idle_since = self._idle_cpu = 0.0
        self._idle_threads: Mapping[int, ThreadTime] = {}
        self._idle_starts = 0

    @property
    def process(self) -> PluginProcess:
        """Process of the instance that was started last."""
        return self.processes[-1]

    def launch(self, *before: str, hook: str = "") -> PluginProcess:
        """Start an instance of the plugin and return without waiting.

        ``before`` are words to put before the plugin's command. ``hook`` is the name of a hook that
        runs after the hook ``prepare``, for example to change what ``prepare`` has written.
        """
        for name in ("prepare", hook):
            self.call_hook(name)
        process = self._new_process([*before, *self.under_test.command])
        # Added before the start, so that ``close`` also handles a process that cannot be started.
        self.processes.append(process)
        return process.start()

    def _new_process(self, command: list[str]) -> PluginProcess:
        plugin = self.under_test
        return PluginProcess(
            self._kubelet,
            command,
            env=plugin.env,
            cwd=plugin.cwd,
            at_node_paths=plugin.at_node_paths or plugin.hardware.has_directories,
            dev=plugin.hardware.dev,
            sys=plugin.hardware.sys,
            cdi=plugin.hardware.cdi,
            restart=plugin.restart,
        )

    def call_hook(self, name: str, id_: str = "") -> None:
        """Run the hook ``name`` if it is defined. Raises CheckError if the hook fails."""
        self.under_test.call(name, self._values(id_))

    def change(self, hook: str, id_: str = "") -> None:
        """Run a hook that changes the devices of the running plugin, if the hook is defined.

        Raises CheckError if the hook fails while the plugin runs. Raises Failed if the hook fails
        after the plugin has exited: a hook that uses the plugin's process ID cannot succeed then.
        """
        try:
            self.call_hook(hook, id_)
        except HookFailed:
            if self.processes and not self.process.is_running:
                kind = self.under_test.kind
                text = f"the {kind} exited before the hook {hook}: {self.exit_text()}"
                raise Failed(text) from None
            raise

    def _values(self, id_: str) -> Mapping[str, str]:
        is_running = self.processes and self.process.is_running
        return {
            "id": id_,
            "pid": str(self.process.pid) if is_running else "",
            "plugin_dir": str(self._kubelet.plugin_dir),
            "root": str(self._kubelet.root),
        }

    def close(self) -> None:
        """Stop all instances, and run the hook ``cleanup`` after stopping each instance."""
        values = self._values("")  # read before the stop, so that the hook gets the process ID
        # Callbacks run in reverse order: each instance stops before its hook ``cleanup`` runs.
        with contextlib.ExitStack() as stack:
            for process in self.processes:
                stack.callback(self.under_test.call, "cleanup", values)
                stack.callback(self.end, process)

    def stop(self, process: PluginProcess) -> None:
        """Stop an instance with SIGTERM, and after ``stop_seconds`` with SIGKILL."""
        process.stop(self._stop_seconds)

    def end(self, process: PluginProcess) -> None:
        """Stop an instance. Use it only if no check examines this exit: the instance is killed at
        once if an earlier instance has ignored SIGTERM."""
        was_running = process.is_running
        if self.under_test.ignores_sigterm.is_set():
            # With ``restart="always"``, the instance would otherwise come back after SIGKILL.
            process.stay_down()
            with contextlib.suppress(ProcessEnded):
                process.send_signal(signal.SIGKILL)
        self.stop(process)
        # Otherwise the check itself has killed the instance.
        if was_running and process.exit_status == -signal.SIGKILL:
            self.under_test.ignores_sigterm.set()

    # -- state -------------------------------------------------------------------------

    @property
    def has_exited(self) -> bool:
        """True if the plugin has exited and will not be started again."""
        # A command that does not exist fails at each start, so do not wait for a restart.
        is_final = self.under_test.restart == "never" or self.could_not_start
        return is_final and not self.process.is_running

    @property
    def has_exited_once(self) -> bool:
        """True if the latest instance has exited at least once, even if a supervisor has started it
        again."""
        # A supervisor may start the plugin again before the exit is noticed, so compare the number
        # of starts.
        return self.process.starts > 1 or not self.process.is_running

    @property
    def has_crashed(self) -> bool:
        """True if any instance of the plugin has exited, even if it was started again. Use it only
        in checks that do not stop the plugin."""
        return any(each.starts > 1 or not each.is_running for each in self.processes)

    @property
    def could_not_start(self) -> bool:
        """True if the latest instance exited because the plugin's command does not exist."""
        return bool(self.processes) and self.process.exit_status == _COMMAND_NOT_FOUND

    def forget_exits(self) -> None:
        """Reset the restart backoff of all instances: after their next exit, they restart without
        delay."""
        for process in self.processes:
            process.forget_exits()

    def exit_text(self) -> str:
        """Return a text about the plugin's exit, such as ``exit status 1``. If the plugin has
        printed a line that reports a crash, the text has this line."""
        status = self.process.exit_status
        if status is None:
            return f"the {self.under_test.kind} is still running"
        text = f"ended by signal {-status}" if status < 0 else f"exit status {status}"
        crash = crash_line(self.process.output())
        return f"{text}: {printable(crash)}" if crash else text

    def path(self, path: str) -> Path:
        """Return the path on this machine for a path as the running plugin sees it.

        The two differ if the plugin runs in a separate mount namespace.
        """
        try:
            return self.process.seen_path(path)
        except OSError:  # a loop of links, which does not exist for the plugin either
            return Path(f"/proc/{self.process.pid}/root{path}")

    # -- resource use, which raises Skipped without psutil -------------------------------

    def usage(self) -> Usage:
        """Return the resources that the plugin uses now. Raises Skipped if psutil is not
        installed."""
        usage: Usage = _process_checks().usage(self.process.pid)
        return usage

    def listening_ports(self) -> list[str]:
        """Return the TCP addresses on which the plugin listens, as ``address:port``. Raises Skipped
        if psutil is not installed."""
        return list(_process_checks().listening_ports(self.process.pid))

    def begin_idle(self) -> None:
        """Begin the measurement for ``idle_cpu_share``."""
        self._idle_since = time.monotonic()
        self._idle_starts = self.process.starts
        # Without psutil, the idle checks that do not read the CPU share still run.
        with contextlib.suppress(Skipped):
            self._idle_cpu = self._cpu_seconds()
            self._idle_threads = self._thread_times()

    @property
    def idle_cpu_share(self) -> float:
        """Share of one CPU core that the plugin has needed since ``begin_idle``, such as 0.01. The
        share is 0 if the plugin has exited since then. Raises Skipped if psutil is not installed.

        On a busy machine, threads wait for a CPU core, so the plugin gets less CPU time than it
        needs. To correct this, each thread's CPU time is divided only by the time in which the
        thread did not wait for a core.
        """
        # Read before the exit is checked. In the other order, the plugin could exit in between, and
        # the times would be incomplete.
        used = self._cpu_seconds() - self._idle_cpu
        threads = self._thread_times()
        if not self.process.is_running or self.process.starts != self._idle_starts:
            return 0.0
        seconds = time.monotonic() - self._idle_since
        needed = 0.0
        for id_, now in threads.items():
            if id_ in self._idle_threads:
                before = self._idle_threads[id_]
                rest = seconds - (now.waited - before.waited)
                needed += (now.cpu - before.cpu) / max(rest, seconds / _MOST_CORRECTION)
        # Threads that began or ended in the meantime are only in the CPU time of the processes.
        return max(used / seconds, needed)

    def core_waits(self) -> Mapping[int, float]:
        """Return how long each thread of the plugin and of this process has waited for a CPU core
        so far, in seconds, by thread ID. Empty if psutil is not installed."""
        times: dict[int, ThreadTime] = {}
        with contextlib.suppress(Skipped):
            times.update(_process_checks().own_thread_times())
            if self.processes:
                times.update(self._thread_times())
        return {id_: each.waited for id_, each in times.items()}

    def _thread_times(self) -> Mapping[int, ThreadTime]:
        try:
            times: Mapping[int, ThreadTime] = _process_checks().thread_times(self.process.pid)
        except ProcessEnded:
            return {}
        return times

    def _cpu_seconds(self) -> float:
        try:
            return float(_process_checks().cpu_seconds(self.process.pid))
        except ProcessEnded:
            return 0.0


def _process_checks() -> ModuleType:
    # Imported here: psutil is part of the extra `conformance`, and most checks do not need it.
    try:
        from devicemanager.conformance import process_checks
    except ImportError:
        raise Skipped(
            "psutil is not installed: pip install 'kubelet-devicemanager[conformance]'"
        ) from None
    return process_checks
