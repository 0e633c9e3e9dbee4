"""Run plugins in separate processes: start and stop them, and restart them as a DaemonSet would.

Each start of the command is a *run*. A ``PluginProcess`` is changed by:

* the caller's thread;
* the thread that reads the output and notices the exit (``_exited``);
* the kubelet's clock, which restarts the command after a pause (``_launch``).

A lock is held during each change. After an exit, a new run is started only if the run that ended is
still the latest run. So a late exit of an old run cannot start another run.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from devicemanager.core.errors import DeviceManagerError
from devicemanager.core.printable import counted, printable
from devicemanager.events.stream import EventKind
from devicemanager.io.clock import Cancel
from devicemanager.kubelet.arguments import check_resource
from devicemanager.kubelet.mock import MockKubelet, WaitTimeout
from devicemanager.plugin.processes.namespace import node_binds, resolved
from devicemanager.plugin.processes.run import CrashLoopBackOff, SupervisedRun
from devicemanager.plugin.settings import DIRECTORY_VARIABLE
from devicemanager.testing.factories import Factory

__all__ = ["PluginProcess", "PluginProcessFactory", "ProcessEnded"]

_STORED_LINES = 1000
_SHOWN_LINES = 20
_STOP_SECONDS = 10.0


class ProcessEnded(DeviceManagerError, AssertionError):
    """Error of a process that does not run or exited unexpectedly, with its last lines of
    output."""


class PluginProcess:
    """Plugin command in a separate process, with all its descendants.

    Use it as a context manager, or call ``start`` and ``stop``. In the command and in ``env``,
    ``{plugin_dir}``, ``{kubelet_socket}`` and ``{root}`` are replaced by the kubelet's paths. With
    ``at_node_paths``, the kubelet's directory is also mounted at ``/var/lib/kubelet`` for the
    command; this needs no root.

    With ``restart="always"``, the command is restarted as by a kubelet. The pause is 0 after the
    first exit, then 10 s, 20 s and so on, up to 5 minutes. The kubelet's clock measures the pauses.

    The command and its descendants end with ``stop``, and when this program exits, even by SIGKILL.
    """

    def __init__(
        self,
        kubelet: MockKubelet,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        at_node_paths: bool = False,
        dev: Path | None = None,
        sys: Path | None = None,
        cdi: Path | None = None,
        restart: Literal["never", "always"] = "never",
    ) -> None:
        """Prepare a process without starting it.

        ``env`` is added to this program's environment. Without ``at_node_paths``, the variable
        ``DEVICE_PLUGIN_DIRECTORY``, which plugins of ``devicemanager.plugin`` read, is also added.
        With ``at_node_paths``, the directory ``dev`` is mounted at ``/dev``, ``sys`` at ``/sys``,
        and ``cdi`` at the directories for CDI files.
        """
        if isinstance(command, str):
            raise TypeError(f"expected a command as a list of words, not the string {command!r}")
        if restart not in ("never", "always"):
            raise ValueError(f"unknown restart {restart!r}: use 'never' or 'always'")
        self._kubelet = kubelet
        self._env = dict(env or {})
        self._cwd = cwd
        self._binds = node_binds(kubelet.root, dev=dev, sys=sys, cdi=cdi) if at_node_paths else ()
        self._command = [os.fspath(word) for word in command]
        self._restart = restart
        # Guards all fields below. Reentrant, because a clock can call `_launch` immediately.
        self._lock = threading.RLock()
        self._run: SupervisedRun | None = None
        # Runs that an upgrade has replaced and that may not have ended yet.
        self._replaced: list[SupervisedRun] = []
        self._wanted = False
        self._back_off = CrashLoopBackOff()
        self._started_at = 0.0
        self._timer: Cancel | None = None
        self._starts = 0
        self._output: deque[str] = deque(maxlen=_STORED_LINES)

    # -- start, stop and signals -------------------------------------------------------

    def start(self) -> Self:
        """Start the command, and return this object.

        Raises RuntimeError if the command is already started.
        """
        with self._lock:
            # Two runs of one object would share its output and status.
            if self._wanted:
                raise RuntimeError(f"{self.name} is already started: stop it first")
            self._wanted = True
            self._back_off = CrashLoopBackOff()
            self._run = None  # a late exit of an earlier run must not start another run
        self._launch(None)
        return self

    def stop(self, timeout: float = _STOP_SECONDS) -> None:
        """End the command and its descendants with SIGTERM, and after ``timeout`` seconds with
        SIGKILL. Do not restart it.

        Idempotent.
        """
        with self._lock:
            self._wanted = False
            runs = [*filter(None, [self._run]), *self._replaced]
            timer, self._timer = self._timer, None
        # Cancel outside the lock: cancelling waits for a callback that may need the lock.
        if timer is not None:
            timer()
        for run in runs:
            run.end(timeout)

    def stay_down(self) -> None:
        """Do not restart the command after its next exit; for ``restart="always"``."""
        with self._lock:
            self._wanted = False

    def forget_exits(self) -> None:
        """Reset the back-off of ``restart="always"``: the next exit leads to an immediate restart.

        A kubelet resets the back-off of a container that has run for more than ten minutes.
        """
        with self._lock:
            self._back_off = CrashLoopBackOff()

    def terminate(self, timeout: float = _STOP_SECONDS) -> int:
        """Send SIGTERM and wait for the exit. Return the exit status, or -N after signal N.

        With ``restart="always"``, the command is then restarted. Raises WaitTimeout if the command
        still runs after ``timeout`` seconds, and ProcessEnded if it was not running at the call.
        """
        return self._end(signal.SIGTERM, timeout)

    def kill(self, timeout: float = _STOP_SECONDS) -> int:
        """Send SIGKILL and wait for the exit. The result and errors are those of ``terminate``."""
        return self._end(signal.SIGKILL, timeout)

    def pause(self) -> None:
        """Pause the command with SIGSTOP, so that it neither responds nor exits."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a paused command."""
        self.send_signal(signal.SIGCONT)

    def send_signal(self, number: int) -> None:
        """Send a signal to the command's process group.

        Raises ProcessEnded if the command does not run.
        """
        self._running().signal(number)

    def upgrade(
        self, command: Sequence[str | os.PathLike[str]], resource: str, timeout: float = 10.0
    ) -> None:
        """Replace the command like a DaemonSet's rolling update with ``maxSurge``.

        Start the new command, wait until ``resource`` is registered, then send SIGTERM to the old
        command. If ProcessEnded or WaitTimeout is raised, the old command continues to run.
        """
        with self._lock:
            # Later events than `before` are about the new command.
            old, before, former = self._running(), self._kubelet.events.latest, self._command
            self._command, self._run = [os.fspath(word) for word in command], None
        try:
            self._launch(None)
            self._wait_for_list(resource, before, timeout)
        # Clean up even after KeyboardInterrupt: the old command must stay the current one.
        except BaseException:
            with self._lock:
                new, self._run, self._command = self._run, old, former
            # If the start itself failed, there is no new run.
            if new is not None and new is not old:
                new.end()
            raise
        with self._lock:
            self._replaced = [*(each for each in self._replaced if each.status is None), old]
        # Do not wait for the exit, which takes as long as the plugin needs.
        old.terminate()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # -- state -----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """File name of the command."""
        return Path(self._command[0]).name

    @property
    def pid(self) -> int:
        """Process ID of the command. Raises ProcessEnded if the command does not run."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """True if the command runs."""
        run = self._run
        # The status is set after the command has exited and all its output has been read.
        return run is not None and run.status is None

    @property
    def waits(self) -> bool:
        """True if the command has exited and a restart is scheduled."""
        return self._timer is not None

    @property
    def starts(self) -> int:
        """Number of times that the command was started."""
        return self._starts

    @property
    def exit_status(self) -> int | None:
        """Exit status of the latest run, or -N after signal N.

        None while the command runs, and before its first start.
        """
        run = self._run
        # A local variable, because another thread can replace `_run` between test and use.
        return None if run is None else run.status

    def output(self) -> list[str]:
        """Return the last 1,000 lines of standard output and error of all runs."""
        return list(self._output)

    # -- paths -----------------------------------------------------------------------

    def seen_path(self, path: str) -> Path:
        """Return the path where this program finds the file that the command sees at ``path``.

        The path is only valid while the command runs. Links are resolved. Raises ProcessEnded if
        the command does not run, and OSError for a loop of links.
        """
        # The kernel would follow an absolute link from the root directory of this process.
        return resolved(Path(f"/proc/{self.pid}/root"), Path(path))

    def machine_path(self, path: str) -> Path:
        """Return the path on this machine of the file that the command sees at ``path``.

        Works after the command has exited, too. Links are not resolved.

        With ``at_node_paths``, some directories are mounted for the command. For example, if the
        directory ``dev`` is mounted at ``/dev``, ``/dev/gpu0`` is the file ``gpu0`` in this
        directory. A path outside the mounts does not change.
        """
        for source, target, keep in self._binds:
            # The mount at /var/run/cdi is also at /run/cdi if /var/run is a link to /run.
            for place in (target, resolved(Path("/"), target)):
                if Path(path).is_relative_to(place):
                    inner = Path(path).relative_to(place)
                    return Path(path) if {*inner.parts[:1]} & {*keep} else source / inner
        return Path(path)

    # -- waiting ---------------------------------------------------------------------

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """Wait until ``count`` devices of a resource are allocatable (None: any number above 0).

        Raises ProcessEnded as soon as the command exits and is not restarted, WaitTimeout after
        ``timeout`` seconds, and RequestError for an invalid resource name or count.
        """
        check_resource(resource, count)

        def allocatable() -> bool:
            self._check_alive()
            counts = self._kubelet.allocatable()
            found = counts.get(resource, 0)
            # A resource that is not registered has 0 devices, too, but a wait for 0 must not accept
            # it.
            return found > 0 if count is None else resource in counts and found == count

        devices = "any devices" if count is None else counted(count, "device")
        what = f"{devices} of {resource} from {self.name}"
        self._kubelet.wait_for(allocatable, timeout, what)

    def wait(self, timeout: float = _STOP_SECONDS) -> int:
        """Wait until the command exits. Return the exit status, or -N after signal N.

        Raises WaitTimeout if the command still runs after ``timeout`` seconds, and ProcessEnded if
        it was never started.
        """
        run = self._run
        if run is None:
            raise ProcessEnded(f"{self.name} was never started")
        status = run.wait(timeout)
        if status is None:
            raise WaitTimeout(f"{self.name} still runs after {timeout:g} s\n{self._last_lines()}")
        return status

    def _check_alive(self) -> None:
        # With restarts, the wait continues after an exit, because the next run may register.
        run = self._run
        if run is None or (run.status is not None and self._restart == "never"):
            raise ProcessEnded(self._summary())

    def _wait_for_list(self, resource: str, after: int, timeout: float) -> None:
        def registered() -> bool:
            self._check_alive()
            return any(
                event.number > after and event.resource == resource
                for event in self._kubelet.events.recent(EventKind.DEVICES_UPDATED)
            )

        self._kubelet.wait_for(registered, timeout, f"{resource} from the new {self.name}")

    # -- internals -------------------------------------------------------------------

    def _launch(self, former: SupervisedRun | None) -> None:
        """Start a run of the command if the current run is still ``former``."""
        paths = {
            "plugin_dir": str(self._kubelet.plugin_dir),
            "kubelet_socket": str(self._kubelet.plugin_socket),
            "root": str(self._kubelet.root),
        }
        command = [_filled(word, paths) for word in self._command]
        # Override a variable of the shell, which could lead the plugin to another kubelet. With
        # private mounts, the plugin's default path is correct.
        env = dict(os.environ)
        if not self._binds:
            env[DIRECTORY_VARIABLE] = paths["plugin_dir"]
        env |= {name: _filled(value, paths) for name, value in self._env.items()}
        with self._lock:
            if not self._wanted or self._run is not former:
                return
            self._timer = None
            run = SupervisedRun(command, env, self._cwd, self._binds, self._output)
            # Start with the lock held: `_exited` needs the lock, so it sees the new `_run`.
            run.start(lambda: self._exited(run))
            self._run = run
            self._starts += 1
            self._started_at = self._kubelet.clock.monotonic()
        # Publish outside the lock, because callbacks of events may use this object.
        self._kubelet.events.publish(
            EventKind.PROCESS_STARTED, f"{self.name} runs as process {run.pid}"
        )

    def _exited(self, run: SupervisedRun) -> None:
        """Restart the command after its exit if required.

        The thread that reads the output calls this method.
        """
        how = _how(run.status)
        self._kubelet.events.publish(EventKind.PROCESS_ENDED, f"{self.name} {how}")
        with self._lock:
            # Do not restart a command that was stopped, is not restarted, or was replaced.
            if not self._wanted or self._restart != "always" or self._run is not run:
                return
            clock = self._kubelet.clock
            pause = self._back_off.next_pause(clock.monotonic() - self._started_at)
            if pause:
                # Use the kubelet's clock, so that a test with a ManualClock need not wait.
                due = clock.monotonic() + pause
                self._timer = clock.call_at(due, lambda: self._launch(run))
        # Start outside the lock, because a start takes some milliseconds.
        if not pause:
            self._launch(run)

    def _end(self, number: int, timeout: float) -> int:
        run = self._running()
        run.signal(number)
        run.signal(signal.SIGCONT)  # a paused command reacts to SIGTERM only after SIGCONT
        status = run.wait(timeout)
        if status is None:
            name = signal.Signals(number).name
            raise WaitTimeout(
                f"{self.name} still runs {timeout:g} s after {name}\n{self._last_lines()}"
            )
        return status

    def _running(self) -> SupervisedRun:
        run = self._run
        if run is None or run.status is not None:
            raise ProcessEnded(self._summary())
        return run

    def _summary(self) -> str:
        run = self._run
        how = "was never started" if run is None else _how(run.status)
        return f"{self.name} {how}\n{self._last_lines()}"

    def _last_lines(self) -> str:
        return last_lines(self.output()) or "  (no output)"


def last_lines(output: Sequence[str]) -> str:
    """Return the last 20 lines of output as indented text; empty without output."""
    return "\n".join(f"  | {printable(line)}" for line in output[-_SHOWN_LINES:])


def _filled(text: str, paths: Mapping[str, str]) -> str:
    for name, path in paths.items():
        # Not `str.format`, which would reject other braces, such as those of a JSON argument.
        text = text.replace(f"{{{name}}}", path)
    return text


def _how(status: int | None) -> str:
    if status is None:
        return "runs"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"exited with status {status}"


class PluginProcessFactory(Factory):
    """Factory of plugins in separate processes; a context manager that ends the processes."""

    def __init__(self, kubelet: MockKubelet) -> None:
        """Create a factory; ``kubelet`` is the default kubelet of its processes."""
        super().__init__()
        self._kubelet = kubelet
        self._processes: list[PluginProcess] = []

    def __call__(
        self,
        command: Sequence[str | os.PathLike[str]],
        resource: str | None = None,
        count: int | None = None,
        *,
        kubelet: MockKubelet | None = None,
        timeout: float = 10.0,
        **options: Any,
    ) -> PluginProcess:
        """Start a command and, if ``resource`` is given, wait until its devices are allocatable.

        ``options`` are arguments of PluginProcess. Raises WaitTimeout after ``timeout`` seconds,
        and ProcessEnded as soon as the command exits and is not restarted.
        """
        process = PluginProcess(kubelet or self._kubelet, command, **options)
        # Store the process before the start, so that a report exists if the start fails.
        self._processes.append(process)
        self._stack.enter_context(process)
        if resource is not None:
            process.wait_for_resource(resource, count, timeout)
        return process

    def report(self) -> str:
        """Return the last output of all processes, as text."""
        return "\n".join(filter(None, map(_printed, self._processes)))


def _printed(process: PluginProcess) -> str:
    lines = last_lines(process.output())
    if not lines:
        return ""
    times = "once" if process.starts == 1 else f"{process.starts} times"
    return f"{process.name}, started {times}\n{lines}"
