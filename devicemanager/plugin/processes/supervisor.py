"""A process that runs another one and leaves nothing of it behind.

Signals and the exit status pass through. What the other one has started ends with it, and
all of it ends when whoever holds the lifeline goes, however that happens: the kernel gives
orphans to this process (``PR_SET_CHILD_SUBREAPER``) and closes the lifeline.
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
from typing import NoReturn

import attrs

from devicemanager.plugin.processes.namespace import Bind, NamespaceError, enter

__all__ = ["CANNOT_START", "Supervision", "end_as", "supervise"]

CANNOT_START = 127
"""The exit status if the command could not be started, as in a shell."""

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
}
_FROM_TERMINAL = {signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}
_AWAITED = _FORWARDED | {signal.SIGCHLD, signal.SIGIO}
_GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL for what the command left behind."""


@attrs.frozen
class Supervision:
    """What is run, and how."""

    command: Sequence[str]
    binds: tuple[Bind, ...] = ()
    lifeline: int | None = None
    """A pipe to read from: at its end everything is killed. The command gets a session of
    its own then; else it stays in the terminal's foreground."""
    report: int | None = None
    """A pipe to write to: one JSON object a line, ``{"pid": n}`` once the command runs."""


def supervise(plan: Supervision) -> int:
    """Run the command to its end. Returns its wait status; see ``end_as``.

    Must be called from a process with one thread.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    started_read, started_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(started_read)
        _become(plan, before)
    os.close(started_write)
    try:
        # At its end the command runs, or could not: exec closes the other side. Before that
        # it has no session of its own that a signal could go to.
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


def end_as(status: int) -> NoReturn:
    """End this process as the one with this wait status ended, by the same signal if so."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        sys.exit(128 + number)
    sys.exit(os.waitstatus_to_exitcode(status))


def _become(plan: Supervision, mask: set[signal.Signals | int]) -> NoReturn:
    """In the child: the command itself, or an exit with one line on standard error."""
    try:
        if plan.lifeline is not None:
            os.setsid()
        if plan.binds:
            enter(plan.binds)
        for number in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # Python ignores one and catches the other
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvp(plan.command[0], list(plan.command))
    except NamespaceError as error:
        _complain(str(error))
    except OSError as error:
        _complain(f"{plan.command[0]}: cannot be started: {error.strerror}")
    except ValueError as error:
        _complain(f"{plan.command[0]!r}: cannot be started: {error}")
    finally:
        os._exit(CANNOT_START)


def _complain(text: str) -> None:
    os.write(2, f"devicemanager: {text}\n".encode(errors="replace"))


def _signal_at_end(pipe: int) -> None:
    """SIGIO when the pipe's other end is closed."""
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)


def _wait(child: int, plan: Supervision) -> int:
    while True:
        if plan.lifeline is not None and _is_closed(plan.lifeline):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        for pid, status in _ended():
            if pid == child:
                return status
        came = signal.sigwaitinfo(_AWAITED)
        number = signal.Signals(came.si_signo)
        # The terminal has sent it to the command as well.
        is_terminals = came.si_code == _SI_KERNEL and number in _FROM_TERMINAL
        if number in _FORWARDED and not is_terminals:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)


def _is_closed(pipe: int) -> bool:
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False


def _ended() -> Iterator[tuple[int, int]]:
    """Every child that has ended, with its wait status."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _end_descendants() -> None:
    """SIGTERM, and SIGKILL for what does not go, until nothing is left."""
    limit = time.monotonic() + _GRACE_SECONDS
    number = signal.SIGTERM
    told: set[int] = set()
    while True:
        for _ in _ended():
            pass
        left = _children()
        if not left:
            return
        if time.monotonic() >= limit and number is signal.SIGTERM:
            number, told = signal.SIGKILL, set()
        for pid in left - told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)  # one that is stopped hears nothing else
        told |= left
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)


def _children() -> set[int]:
    """Our children; the children of one that ends become ours."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number), "prctl")
