"""Supervisor process that runs a command and leaves none of its descendants behind.

Signals and the exit status pass through unchanged. When the command exits, its descendants are
ended: the kernel makes this process the parent of orphans (``PR_SET_CHILD_SUBREAPER``). The
lifeline is a pipe from the program that started the supervisor. When it is closed, the command and
its descendants are killed. The kernel closes it when that program exits.

The supervisor blocks signals and reads them with ``sigwaitinfo``: a handler could miss a signal
between the check of a condition and the wait.

Each start of a plugin starts an interpreter for this module. So the module does not import attrs:
that import would take a third of the startup time.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, Self

from devicemanager.plugin.processes.interpreter import why_not_started
from devicemanager.plugin.processes.mount_points import mount_points
from devicemanager.plugin.processes.namespace import Bind, NamespaceError, enter

__all__ = ["CANNOT_START", "Supervision", "end_as", "supervise", "supervise_guarded"]

CANNOT_START = 127
"""Exit status if the command cannot be started, as in a shell."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SI_KERNEL = 0x80
_FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    # Signals that would end the supervisor, although nothing uses them for its control.
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGXCPU,
    signal.SIGXFSZ,
    signal.SIGPWR,
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
}
_FROM_TERMINAL = {signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}
_AWAITED = _FORWARDED | {signal.SIGCHLD, signal.SIGIO}
_GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL for processes that the command left behind."""


class Supervision(NamedTuple):
    """Input of the supervisor: a command, its mounts, and pipes to the supervisor's parent."""

    command: Sequence[str]
    binds: tuple[Bind, ...] = ()
    lifeline: int | None = None
    """Descriptor of a pipe. If its other end is closed, the command and its descendants are killed.

    With a lifeline, the command gets a new session, unless ``foreground`` is true. Without a
    lifeline, the command stays in the terminal's foreground process group.
    """
    report: int | None = None
    """Descriptor of a pipe. The supervisor writes the command's process ID to it, as the line
    ``{"pid": n}``."""
    foreground: bool = False
    """True if the command stays in the terminal's foreground process group."""

    def encode(self) -> str:
        """Return this input, without ``foreground``, as one command-line argument (JSON)."""
        return json.dumps(
            {
                "command": list(self.command),
                "binds": [[str(bind.source), str(bind.target), bind.keep] for bind in self.binds],
                "lifeline": self.lifeline,
                "report": self.report,
            }
        )

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the input that ``encode`` converted to ``text``."""
        data = json.loads(text)
        binds = tuple(
            Bind(Path(source), Path(target), tuple(keep)) for source, target, keep in data["binds"]
        )
        return cls(data["command"], binds, data["lifeline"], data["report"])


def supervise(plan: Supervision) -> int:
    """Run the command until it exits. Return its wait status, the argument of ``end_as``.

    Must be called in a process with a single thread, because it forks.
    """
    # The mount points must outlive all processes of the command.
    with contextlib.ExitStack() as points:
        for bind in plan.binds:
            if bind.keep:
                points.enter_context(
                    mount_points(bind.source, bind.target, bind.keep, _print_error)
                )
        return _supervise(plan)


def _supervise(plan: Supervision) -> int:
    # Set before the fork, because a command can fork and exit before the parent runs.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Blocked signals stay pending, so none is lost before `sigwaitinfo`.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    started_read, started_write = os.pipe()
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(started_read)
        _become(plan, before, supervisor)
    os.close(started_write)
    try:
        # The pipe ends when the command runs (exec closes the other side) or failed to start. Until
        # then, the command has no process group that the program could signal.
        os.read(started_read, 1)
        os.close(started_read)
        if plan.report is not None:
            os.write(plan.report, json.dumps({"pid": child}).encode() + b"\n")
        if plan.lifeline is not None:
            _signal_at_end(plan.lifeline)
        return _wait(child, plan)
    finally:
        _end_descendants()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def supervise_guarded(plan: Supervision) -> int:
    """Supervise the command in a child process, and pass signals to it. Return the wait status.

    If this process is killed, even by SIGKILL, the child kills the command and its descendants.
    Must be called in a process with a single thread, because it forks.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    lifeline, ours = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(ours)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            status = supervise(plan._replace(lifeline=lifeline, foreground=True))
            if os.WIFSIGNALED(status):
                end_as(status)
            status = os.waitstatus_to_exitcode(status)
        finally:
            # Do not use sys.exit: exit handlers of the program must not run in the child.
            os._exit(status)
    os.close(lifeline)
    try:
        return _wait(child, plan._replace(lifeline=None))
    finally:
        os.close(ours)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_as(status: int) -> NoReturn:
    """Exit like a process with this wait status: with the same exit status or signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # Prevent a second core dump: the command has already dumped core, if that is enabled.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        sys.exit(128 + number)
    sys.exit(os.waitstatus_to_exitcode(status))


def _become(plan: Supervision, mask: set[signal.Signals | int], supervisor: int) -> NoReturn:
    """Replace this child process by the command, or exit with a one-line error."""
    try:
        if plan.lifeline is not None and not plan.foreground:
            # A session has its own process group, to which the program can send signals. Without
            # a lifeline, the command stays in the process group that the terminal signals.
            os.setsid()
        if plan.binds:
            # Mount after the fork, so that only the command gets the mounts, not the supervisor.
            enter(plan.binds)
        # After the mounts, because new capabilities reset it. If the supervisor itself is killed,
        # at least the command ends.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(CANNOT_START)  # it was killed before
        for number in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # Python ignores SIGPIPE and catches SIGINT
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvp(plan.command[0], list(plan.command))
    except NamespaceError as error:
        _print_error(str(error))
    except OSError as error:
        is_image = any(str(bind.target) == "/" for bind in plan.binds)
        reason = why_not_started(plan.command[0], error, is_image=is_image)
        _print_error(f"{plan.command[0]}: cannot be started: {reason}")
    except ValueError as error:
        _print_error(f"{plan.command[0]!r}: cannot be started: {error}")
    finally:
        # Do not use sys.exit: exit handlers of the parent program must not run in the child.
        os._exit(CANNOT_START)


def _print_error(text: str) -> None:
    os.write(2, f"devicemanager: {text}\n".encode(errors="replace"))


def _signal_at_end(pipe: int) -> None:
    """Make the kernel send SIGIO when the other end of a pipe is closed."""
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)


def _wait(child: int, plan: Supervision) -> int:
    while True:
        if plan.lifeline is not None and _is_closed(plan.lifeline):
            # `_end_descendants` ends the descendants later.
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        # Check all children before each wait: one SIGCHLD can stand for several children.
        for pid, status in _exited():
            if pid == child:
                return status
        info = signal.sigwaitinfo(_AWAITED)
        number = signal.Signals(info.si_signo)
        # The kernel sends the signals of a terminal to the whole process group, so the command
        # already has them. A signal of `kill` comes from a process and must be forwarded.
        from_terminal = info.si_code == _SI_KERNEL and number in _FROM_TERMINAL
        if number in _FORWARDED and not from_terminal:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)


def _is_closed(pipe: int) -> bool:
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False


def _exited() -> Iterator[tuple[int, int]]:
    """Yield the process ID and wait status of each child that has exited."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _end_descendants() -> None:
    """Send SIGTERM to all descendants, and SIGKILL after 2 s, until all have exited."""
    limit = time.monotonic() + _GRACE_SECONDS
    number = signal.SIGTERM
    signalled: set[int] = set()
    while True:
        # Reap zombies, because they would count as children.
        for _ in _exited():
            pass
        left = _children()
        if not left:
            return
        if time.monotonic() >= limit and number is signal.SIGTERM:
            number, signalled = signal.SIGKILL, set()
        for pid in left - signalled:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)  # a stopped process handles SIGTERM only after SIGCONT
        signalled |= left
        # Use a timeout, because a grandchild becomes a child without a signal.
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)


def _children() -> set[int]:
    """Return the children of this process, which include orphaned descendants."""
    children: set[int] = set()
    # The kernel lists children per thread of the parent.
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            children.update(map(int, (task / "children").read_text().split()))
    return children


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number), "prctl")
