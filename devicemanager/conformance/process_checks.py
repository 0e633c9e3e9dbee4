"""What a plugin's processes use, measured from outside."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import psutil

__all__ = ["Usage", "cpu_seconds", "goroutines_in", "is_go", "listening_ports", "usage"]

_GO_BUILD_INFO = b"\xff Go buildinf:"
"""What every Go program has in a section of its own (debug/buildinfo)."""


@attrs.frozen
class Usage:
    """The sum over a process and its descendants."""

    descriptors: int
    threads: int
    memory: int
    """Resident bytes."""
    inotify: int
    """Open inotify instances."""
    unix_listeners: int
    """Listening unix sockets."""
    processes: int

    def __str__(self) -> str:
        return (
            f"{self.descriptors} descriptors, {self.threads} threads, "
            f"{self.memory / (1 << 20):.1f} MiB, {self.inotify} inotify instances, "
            f"{self.unix_listeners} listening sockets"
        )


def usage(pid: int) -> Usage:
    """What the process and its descendants use now; all 0 if it has ended."""
    descriptors = threads = memory = inotify = listeners = processes = 0
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
    """Processor time of the process and its descendants so far, children that ended and were
    waited for included."""
    total = 0.0
    for process in _family(pid):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def listening_ports(pid: int) -> list[str]:
    """TCP addresses that the process and its descendants listen on, as ``address:port``."""
    found = set()
    for process in _family(pid):
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr:
                    found.add(f"{connection.laddr.ip}:{connection.laddr.port}")
    return sorted(found)


def is_go(pid: int) -> bool:
    """Whether the process runs a Go program."""
    try:
        with open(f"/proc/{pid}/exe", "rb") as file:  # noqa: PTH123 - no path of a file system
            program = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return program.find(_GO_BUILD_INFO) >= 0
    except (OSError, ValueError):
        return False


def goroutines_in(lines: list[str], method: str) -> int | None:
    """How many goroutines of a Go program were in ``method`` when it wrote its stacks; None if
    this is no such output."""
    if not any(line.startswith("goroutine ") for line in lines):
        return None
    inside = count = 0
    for line in lines:
        if line.startswith("goroutine "):
            inside = 1
        elif inside and f".{method}(" in line and not line.startswith(("\t", "created by")):
            # A handler has one frame of the service's own and one of generated code.
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
                yield os.readlink(entry)  # noqa: PTH115 - the text, not a path


_ACCEPTS = 0x10000
"""``__SO_ACCEPTCON`` in the flags of /proc/net/unix."""

_UNIX_SOCKET = re.compile(
    r"^[0-9A-F]+: [0-9A-F]{8} [0-9A-F]{8} ([0-9A-F]{8}) [0-9A-F]{4} [0-9A-F]{2} +(\d+)(?: |$)",
    re.MULTILINE | re.IGNORECASE,
)
"""A line of /proc/net/unix: flags and inode (unix_seq_show of Linux)."""


def _listening_inodes() -> frozenset[str]:
    """Inodes of the machine's listening unix sockets. A socket's path may have line ends, which
    stand there as they are, so that not every line is one of a socket."""
    table = ""
    with contextlib.suppress(OSError):
        table = Path("/proc/net/unix").read_text(errors="replace")
    return frozenset(
        f"socket:[{inode}]"
        for flags, inode in _UNIX_SOCKET.findall(table)
        if int(flags, 16) & _ACCEPTS
    )
