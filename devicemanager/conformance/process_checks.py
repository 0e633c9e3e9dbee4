"""Measure the resource use of other processes. Needs psutil.

A plugin may be a shell script with child processes. Therefore each number is a sum over the process
and its descendants.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import psutil

from devicemanager.conformance.limits import Limits
from devicemanager.core.printable import counted

__all__ = [
    "ThreadTime",
    "Usage",
    "cpu_seconds",
    "goroutines_in",
    "is_go",
    "listening_ports",
    "thread_times",
    "usage",
]

_GO_BUILD_INFO = b"\xff Go buildinf:"
"""Beginning of a section that every Go program has (debug/buildinfo)."""


@attrs.frozen
class Usage:
    """Resources that a process and its descendants use."""

    descriptors: int
    threads: int
    memory: int
    """Resident memory in bytes."""
    inotify: int
    """Number of open inotify instances."""
    unix_listeners: int
    """Number of listening unix sockets."""
    processes: int

    def has_more_handles(self, before: Usage, limits: Limits) -> bool:
        """True if the use of descriptors or threads has grown since ``before`` by more than the
        limits allow."""
        return (
            self.descriptors > before.descriptors + limits.extra_descriptors
            or self.threads > before.threads + limits.extra_threads
        )

    def has_leaked(self, before: Usage, limits: Limits) -> bool:
        """True if the number of descriptors, threads or listening sockets, or the memory, has grown
        since ``before`` by more than the limits allow."""
        return (
            self.has_more_handles(before, limits)
            or self.unix_listeners > before.unix_listeners
            or not limits.allow_memory(before.memory, self.memory)
        )

    def __str__(self) -> str:
        return (
            f"{counted(self.descriptors, 'descriptor')}, {counted(self.threads, 'thread')}, "
            f"{self.memory / (1 << 20):.1f} MiB, {counted(self.inotify, 'inotify instance')}, "
            f"{counted(self.unix_listeners, 'listening socket')}"
        )


def usage(pid: int) -> Usage:
    """Return the current resource use of a process and its descendants. All numbers are 0 if the
    process has exited."""
    descriptors = threads = memory = inotify = listeners = processes = 0
    # Read the table once for all processes: it can be long.
    listening = _listening_inodes()
    for process in _family(pid):
        with contextlib.suppress(psutil.Error):
            links = list(_links(process.pid))
            descriptors += len(links)
            inotify += sum(link == "anon_inode:inotify" for link in links)
            listeners += sum(link in listening for link in links)
            threads += process.num_threads()
            memory += process.memory_info().rss
            processes += 1
    return Usage(descriptors, threads, memory, inotify, listeners, processes)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process and its descendants have used so far, in seconds."""
    total = 0.0
    for process in _family(pid):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            # The times of the children cover only those that have exited and were waited for, so no
            # living descendant counts twice.
            total += times.user + times.system + times.children_user + times.children_system
    return total


@attrs.frozen
class ThreadTime:
    """CPU time and waiting time of a thread since its start, in seconds."""

    cpu: float
    waited: float
    """Seconds in which the thread was ready to run and had no CPU core."""


def thread_times(pid: int) -> Mapping[int, ThreadTime]:
    """Return the CPU time and waiting time of each thread of a process and its descendants, by
    thread ID. Empty if the kernel does not record these times."""
    return {id_: time for process in _family(pid) for id_, time in _threads_of(process.pid)}


def own_thread_times() -> Mapping[int, ThreadTime]:
    """Return the CPU time and waiting time of each thread of this process, by thread ID. Threads of
    its descendants are not included."""
    return dict(_threads_of(os.getpid()))


def _threads_of(pid: int) -> Iterator[tuple[int, ThreadTime]]:
    with contextlib.suppress(OSError, ValueError):
        for entry in Path(f"/proc/{pid}/task").iterdir():
            # CPU time and waiting time in nanoseconds (Documentation/scheduler/sched-stats).
            cpu, waited, *_ = map(int, (entry / "schedstat").read_text().split())
            yield int(entry.name), ThreadTime(cpu / 1e9, waited / 1e9)


def listening_ports(pid: int) -> list[str]:
    """Return the TCP addresses on which a process or its descendants listen, as
    ``address:port``."""
    ports = set()
    for process in _family(pid):
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr:
                    ports.add(f"{connection.laddr.ip}:{connection.laddr.port}")
    return sorted(ports)


def is_go(pid: int) -> bool:
    """True if the process with this ID runs a Go program."""
    try:
        with open(f"/proc/{pid}/exe", "rb") as file:  # noqa: PTH123  # a link that must not be resolved
            program = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return program.find(_GO_BUILD_INFO) >= 0
    except (OSError, ValueError):
        return False


def goroutines_in(lines: list[str], method: str) -> int | None:
    """Return the number of goroutines with ``method`` on their stack; None if ``lines`` are not the
    output of a Go program.

    ``lines`` are the stacks that a Go program prints on SIGABRT.
    """
    if not any(line.startswith("goroutine ") for line in lines):
        return None
    inside = count = 0
    for line in lines:
        # The output has a header line per goroutine, followed by two lines per frame: the function,
        # and its file, indented.
        if line.startswith("goroutine "):
            inside = 1
        elif inside and f".{method}(" in line and not line.startswith(("\t", "created by")):
            # Count each goroutine only once: a handler has another frame in generated code.
            count, inside = count + 1, 0
    return count


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _links(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(entry)  # noqa: PTH115  # may not be a path


_ACCEPTS = 0x10000
"""Bit in the flags of /proc/net/unix that marks a listening socket: ``__SO_ACCEPTCON``."""

# The whole line must match: a socket path can contain a line break, and the text after it can look
# like a line of the table.
_UNIX_SOCKET = re.compile(
    r"^[0-9A-F]+: [0-9A-F]{8} [0-9A-F]{8} ([0-9A-F]{8}) [0-9A-F]{4} [0-9A-F]{2} +(\d+)(?: |$)",
    re.MULTILINE | re.IGNORECASE,
)
"""Line of /proc/net/unix. The groups are flags and inode (unix_seq_show of Linux)."""


def _listening_inodes() -> frozenset[str]:
    """Return the listening unix sockets of this machine, in the form of links in /proc/PID/fd, such
    as ``socket:[123]``."""
    table = ""
    with contextlib.suppress(OSError):
        table = Path("/proc/net/unix").read_text(errors="replace")
    return frozenset(
        f"socket:[{inode}]"
        for flags, inode in _UNIX_SOCKET.findall(table)
        if int(flags, 16) & _ACCEPTS
    )
