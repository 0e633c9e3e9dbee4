"""Leaks: threads, descriptors and connections of this process."""

from __future__ import annotations

import contextlib
import gc
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import psutil

DEADLINE = 10.0
_CACHED = {"anon_inode:[eventfd]", "anon_inode:[eventpoll]"}
_CACHE = 8
"""gRPC never closes these; it keeps as many as it once needed at a time."""


def eventually(condition: Callable[[], bool], timeout: float = DEADLINE) -> bool:
    """True if the condition holds within the timeout.

    For effects of the operating system and of gRPC's threads, for which there is no event.
    """
    pause = threading.Event()
    for _ in range(int(timeout / 0.01)):
        if condition():
            return True
        pause.wait(0.01)
    return condition()


@attrs.frozen
class Residue:
    """Names of the Python threads and kinds of the descriptors of this process."""

    threads: Counter[str]
    descriptors: Counter[str]

    @classmethod
    def now(cls) -> Residue:
        return cls(Counter(map(_name, threading.enumerate())), Counter(map(_kind, _links())))

    def surplus(self, before: Residue, ignoring: tuple[str, ...] = ()) -> str:
        """Describe what has been added since ``before``; empty if nothing has.

        Threads whose names begin with one of ``ignoring`` do not count.
        """
        threads = self.threads - before.threads
        threads = Counter({n: k for n, k in threads.items() if not n.startswith(ignoring)})
        descriptors = self.descriptors - before.descriptors
        for kind in _CACHED & descriptors.keys():
            descriptors[kind] -= _CACHE
        descriptors = +descriptors
        return f"{dict(threads)} {dict(descriptors)}" if threads or descriptors else ""


def assert_back_to(before: Residue, timeout: float = DEADLINE) -> None:
    """Fail unless everything that was added since ``before`` is released."""

    def nothing() -> bool:
        return not Residue.now().surplus(before)

    if eventually(nothing, min(timeout, 0.5)):
        return
    gc.collect()
    assert eventually(nothing, timeout), f"left over: {Residue.now().surplus(before)}"


def connections(under: Path) -> int:
    """Count the unix sockets of this process that are bound to, or accepted on, a path in a
    directory. A connection counts once."""
    return sum(
        str(each.laddr or "").startswith(f"{under}/")
        for each in psutil.Process().net_connections("unix")
    )


def deleted(directory: Path) -> list[str]:
    """Return the removed or replaced files of a directory that this process still has open."""
    return [link for link in _links() if link.startswith(f"{directory}/") and "(deleted)" in link]


def _name(thread: threading.Thread) -> str:
    return re.sub(r"-\d+", "", thread.name)  # without numbers, as in Thread-17 (_serve)


def _links() -> list[str]:
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            links.append(str(descriptor.readlink()))
    return links


def _kind(link: str) -> str:
    return link.split("[")[0] if ":[" in link and not link.startswith("anon_inode") else link
