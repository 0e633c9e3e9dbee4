"""What is left over: threads, descriptors and connections of this process."""

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
"""gRPC keeps as many of these as it once needed at a time, for good."""


def eventually(condition: Callable[[], bool], timeout: float = DEADLINE) -> bool:
    """Whether the condition holds within the time. For what the operating system or gRPC's
    own threads do, which nobody announces."""
    pause = threading.Event()
    for _ in range(int(timeout / 0.01)):
        if condition():
            return True
        pause.wait(0.01)
    return condition()


@attrs.frozen
class Residue:
    """What this process holds: names of Python threads, kinds of descriptors."""

    threads: Counter[str]
    descriptors: Counter[str]

    @classmethod
    def now(cls) -> Residue:
        return cls(Counter(map(_name, threading.enumerate())), Counter(map(_kind, _links())))

    def surplus(self, before: Residue, ignoring: tuple[str, ...] = ()) -> str:
        """What is here and was not then; empty if nothing. ``ignoring``: how the names of
        threads begin that do not count."""
        threads = self.threads - before.threads
        threads = Counter({n: k for n, k in threads.items() if not n.startswith(ignoring)})
        descriptors = self.descriptors - before.descriptors
        for kind in _CACHED & descriptors.keys():
            descriptors[kind] -= _CACHE
        descriptors = +descriptors
        return f"{dict(threads)} {dict(descriptors)}" if threads or descriptors else ""


def assert_back_to(before: Residue, timeout: float = DEADLINE) -> None:
    """Fail unless everything that came since ``before`` goes away."""

    def nothing() -> bool:
        return not Residue.now().surplus(before)

    if eventually(nothing, min(timeout, 0.5)):
        return
    gc.collect()
    assert eventually(nothing, timeout), f"left over: {Residue.now().surplus(before)}"


def connections(under: Path) -> int:
    """How many descriptors of this process are unix sockets bound to or accepted on paths
    under a directory; a connection has one end there."""
    return sum(
        str(each.laddr or "").startswith(f"{under}/")
        for each in psutil.Process().net_connections("unix")
    )


def deleted(directory: Path) -> list[str]:
    """The files of a directory that are removed or replaced, and that this process still holds."""
    return [link for link in _links() if link.startswith(f"{directory}/") and "(deleted)" in link]


def _name(thread: threading.Thread) -> str:
    return re.sub(r"-\d+", "", thread.name)  # Thread-17 (_serve): its number says nothing


def _links() -> list[str]:
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own, gone by now
            links.append(str(descriptor.readlink()))
    return links


def _kind(link: str) -> str:
    return link.split("[")[0] if ":[" in link and not link.startswith("anon_inode") else link
