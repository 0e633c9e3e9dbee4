"""Plugins in processes of their own: started, watched, restarted as a DaemonSet would."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from devicemanager.core.errors import DeviceManagerError
from devicemanager.core.printable import printable
from devicemanager.events.stream import EventKind
from devicemanager.io.clock import Cancel
from devicemanager.kubelet.arguments import check_resource
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.plugin.processes.backoff import CrashLoopBackOff
from devicemanager.plugin.processes.namespace import node_binds
from devicemanager.plugin.processes.run import SupervisedRun
from devicemanager.plugin.settings import DIRECTORY_VARIABLE

__all__ = ["PluginProcess", "ProcessEnded"]

_KEPT_LINES = 1000
_SHOWN_LINES = 20
_STOP_SECONDS = 10.0


class ProcessEnded(DeviceManagerError, AssertionError):
    """A process has ended where it was expected to run; the text has its last lines."""


class PluginProcess:
    """A command that serves a kubelet's plugin directory, and what it started.

    Use it as a context manager, or call ``start`` and ``stop``. In the command and in the
    environment ``{plugin_dir}``, ``{kubelet_socket}`` and ``{root}`` stand for the kubelet's
    paths. With ``at_node_paths`` it finds them under ``/var/lib/kubelet`` as well, without
    root. ``restart="always"`` starts it again when it ends, as the kubelet does: at once for
    the first time, then 10 s after its end, 20 s and so on up to 5 minutes, by the kubelet's
    clock.

    All of it ends with ``stop``, and with this program, however that ends.
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
        """``env`` is added to this program's environment, in which, without ``at_node_paths``,
        ``DEVICE_PLUGIN_DIRECTORY`` is the kubelet's: plugins of ``devicemanager.plugin`` need no
        more. ``dev``, ``sys`` and ``cdi`` are
        directories that the command sees as ``/dev``, ``/sys`` and the two CDI directories,
        with ``at_node_paths``."""
        if isinstance(command, str):
            raise TypeError(f"a command is a list of words, not the text {command!r}")
        if restart not in ("never", "always"):
            raise ValueError(f"restart is 'never' or 'always', not {restart!r}")
        self._kubelet = kubelet
        self._env = dict(env or {})
        self._cwd = cwd
        self._binds = node_binds(kubelet.root, dev=dev, sys=sys, cdi=cdi) if at_node_paths else ()
        self._command = [os.fspath(word) for word in command]
        self._restart = restart
        # Guards everything below; signalled when a process has started or ended.
        self._changed = threading.Condition()
        self._run: SupervisedRun | None = None
        self._wanted = False
        self._back_off = CrashLoopBackOff()
        self._started_at = 0.0
        self._timer: Cancel | None = None
        self._starts = 0
        self._output: deque[str] = deque(maxlen=_KEPT_LINES)

    # -- life ------------------------------------------------------------------------

    def start(self) -> Self:
        """Run the command. Raises ProcessEnded if it cannot be started."""
        with self._changed:
            if self._wanted:
                raise RuntimeError(f"{self.name} was started already: stop it first")
            self._wanted = True
            self._back_off = CrashLoopBackOff()
            self._run = None  # whose end, told only now, starts nothing
        self._launch(None)
        return self

    def stop(self) -> None:
        """End the command and all that it started: SIGTERM, SIGKILL after 2 s. It is not
        started again. Stopping twice does nothing."""
        with self._changed:
            self._wanted = False
            run, timer, self._timer = self._run, self._timer, None
        if timer is not None:
            timer()
        if run is not None:
            run.end()

    def stay_down(self) -> None:
        """Do not start the command again when it ends; with ``restart="always"``."""
        with self._changed:
            self._wanted = False

    def terminate(self, timeout: float = _STOP_SECONDS) -> int:
        """Send SIGTERM and wait for the end. Returns the exit status, -N after signal N.
        With ``restart="always"`` it comes back. Raises ProcessEnded if it does not end."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self, timeout: float = _STOP_SECONDS) -> int:
        """As ``terminate``, with SIGKILL."""
        return self._end(signal.SIGKILL, timeout)

    def pause(self) -> None:
        """Stop every thread of the command (SIGSTOP): it neither answers nor ends."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused command go on."""
        self.send_signal(signal.SIGCONT)

    def send_signal(self, number: int) -> None:
        """Send a signal to the command and the processes of its session's first group."""
        self._running().signal(number)

    def upgrade(
        self, command: Sequence[str | os.PathLike[str]], resource: str, timeout: float = 10.0
    ) -> None:
        """Replace the command by another one as a rolling update does: the new one is
        registered before the old one gets SIGTERM. Raises ProcessEnded and WaitTimeout; the
        old one runs on then."""
        with self._changed:
            old, before, former = self._running(), self._kubelet.events.latest, self._command
            self._command, self._run = [os.fspath(word) for word in command], None
        try:
            self._launch(None)
            self._await_event(resource, before, timeout)
        except BaseException:
            with self._changed:
                new, self._run, self._command = self._run, old, former
            if new is not None and new is not old:
                new.end()
            raise
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

    # -- what there is ---------------------------------------------------------------

    @property
    def name(self) -> str:
        """The command's file name."""
        return Path(self._command[0]).name

    @property
    def pid(self) -> int:
        """The command's process id. Raises ProcessEnded if it does not run."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the command runs now."""
        run = self._run
        return run is not None and run.status is None

    @property
    def waits(self) -> bool:
        """Whether it has ended and waits for its next start."""
        return self._timer is not None

    @property
    def starts(self) -> int:
        """How often it has been started."""
        return self._starts

    @property
    def exit_status(self) -> int | None:
        """The latest exit status, -N after signal N; None before the first end."""
        run = self._run
        return None if run is None else run.status

    def output(self) -> list[str]:
        """The latest 1,000 lines of standard output and error, of every start."""
        return list(self._output)

    # -- waiting ---------------------------------------------------------------------

    def wait_for_resource(
        self, resource: str, count: int | None = None, timeout: float = 10.0
    ) -> None:
        """Wait until ``count`` healthy devices are there (None: any).

        Raises ProcessEnded as soon as the command has ended for good, WaitTimeout, and
        RequestError as ``MockKubelet.wait_for_resource`` does.
        """
        check_resource(resource, count)

        def there() -> bool:
            self._check_alive()
            allocatable = self._kubelet.allocatable()
            found = allocatable.get(resource, 0)
            return found > 0 if count is None else resource in allocatable and found == count

        what = f"{'any' if count is None else count} devices of {resource} from {self.name}"
        self._kubelet.wait_for(there, timeout, what)

    def wait(self, timeout: float = _STOP_SECONDS) -> int:
        """Wait for the command's end. Returns the exit status, -N after signal N. Raises
        ProcessEnded with its last lines if it runs on."""
        run = self._run
        if run is None:
            raise ProcessEnded(f"{self.name} was never started")
        status = run.wait(timeout)
        if status is None:
            raise ProcessEnded(f"{self.name} still runs after {timeout:g} s\n{self._last_lines()}")
        return status

    def _check_alive(self) -> None:
        run = self._run
        if run is None or (run.status is not None and self._restart == "never"):
            raise ProcessEnded(self._obituary())

    def _await_event(self, resource: str, after: int, timeout: float) -> None:
        def registered() -> bool:
            self._check_alive()
            return any(
                event.number > after and event.resource == resource
                for event in self._kubelet.events.recent(EventKind.DEVICES_UPDATED)
            )

        self._kubelet.wait_for(registered, timeout, f"{resource} from the new {self.name}")

    # -- inside ----------------------------------------------------------------------

    def _launch(self, after: SupervisedRun | None) -> None:
        """Run the command, unless something else has come after that run meanwhile."""
        paths = {
            "plugin_dir": str(self._kubelet.plugin_dir),
            "kubelet_socket": str(self._kubelet.plugin_socket),
            "root": str(self._kubelet.root),
        }
        command = [_filled(word, paths) for word in self._command]
        env = dict(os.environ)
        if not self._binds:
            env[DIRECTORY_VARIABLE] = paths["plugin_dir"]
        env |= {name: _filled(value, paths) for name, value in self._env.items()}
        with self._changed:
            if not self._wanted or self._run is not after:
                return
            self._timer = None
            run = SupervisedRun(command, env, self._cwd, self._binds, self._output)
            # With the lock held, for which its end waits: nobody sees it before it runs.
            run.start(lambda: self._ended(run))
            self._run = run
            self._starts += 1
            self._started_at = self._kubelet.clock.monotonic()
        self._kubelet.events.publish(
            EventKind.PROCESS_STARTED, f"{self.name} runs as process {run.pid}"
        )

    def _ended(self, run: SupervisedRun) -> None:
        """On the thread that reads the output."""
        how = _how(run.status)
        self._kubelet.events.publish(EventKind.PROCESS_ENDED, f"{self.name} {how}")
        with self._changed:
            if not self._wanted or self._restart != "always" or self._run is not run:
                return
            clock = self._kubelet.clock
            pause = self._back_off.next_pause(clock.monotonic() - self._started_at)
            if pause:
                due = clock.monotonic() + pause
                self._timer = clock.call_at(due, lambda: self._launch(run))
        if not pause:
            self._launch(run)

    def _end(self, number: int, timeout: float) -> int:
        run = self._running()
        run.signal(number)
        status = run.wait(timeout)
        if status is None:
            name = signal.Signals(number).name
            raise ProcessEnded(
                f"{self.name} still runs {timeout:g} s after {name}\n{self._last_lines()}"
            )
        return status

    def _running(self) -> SupervisedRun:
        run = self._run
        if run is None or run.status is not None:
            raise ProcessEnded(self._obituary())
        return run

    def _obituary(self) -> str:
        run = self._run
        how = "was never started" if run is None else _how(run.status)
        return f"{self.name} {how}\n{self._last_lines()}"

    def _last_lines(self) -> str:
        return last_lines(self.output()) or "  (it printed nothing)"


def last_lines(output: Sequence[str]) -> str:
    """The last 20 lines that a process printed, for people; empty if there are none."""
    return "\n".join(f"  | {printable(line)}" for line in output[-_SHOWN_LINES:])


def _filled(text: str, paths: Mapping[str, str]) -> str:
    for name, path in paths.items():
        text = text.replace(f"{{{name}}}", path)
    return text


def _how(status: int | None) -> str:
    if status is None:
        return "runs"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"
