"""KeyboardInterrupt at every line of an admission: the pod has its devices, or nothing.

An interrupt can come between any two steps, also during a clean-up. Each test repeats one
admission and interrupts it at another line each time.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

import checkpoint
import devicemanager
from devicemanager.core.errors import RpcError
from devicemanager.core.ids import PodUid
from devicemanager.core.rejection import Rejected
from tests.helpers import container, devices, pod
from tests.node import Node

OURS = str(Path(devicemanager.__file__).parent)


Line = tuple[str, int]


@cache
def is_ours(file: str) -> bool:
    return file.startswith(OURS)


@cache
def may_be_interrupted(line: Line) -> bool:
    # Python also reports a `with` line before it leaves the block, and a `try` line before it
    # enters one. No interrupt can come there; otherwise locks would stay locked.
    return not linecache.getline(*line).strip().startswith(("with ", "try:"))


@attrs.define
class Interrupt:
    """Raises KeyboardInterrupt at line number ``at`` of our code, counted from 0."""

    at: int | None
    seen: list[Line] = attrs.field(factory=list)

    def __call__(self, frame: Any, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if not is_ours(file):
            return None
        line = (file, frame.f_lineno)
        if event == "line" and may_be_interrupted(line):
            if len(self.seen) == self.at:
                raise KeyboardInterrupt
            self.seen.append(line)
        return self

    def during(self, call: Callable[[], object]) -> bool:
        """Run a call. True if it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        except Rejected:
            return False
        finally:
            sys.settrace(before)
        return False


class Harness(Node):
    """A node with one pod that stays, and a plugin of four devices."""

    def __init__(self, **plugin: Any) -> None:
        super().__init__()
        self.gpus = self.plugin(devices("a", "b", "c", "d"))
        self.manager.admit(pod("stays", gpu=1))
        for name, value in plugin.items():
            setattr(self.gpus, name, value)

    def held(self, uid: str) -> int:
        held = self.devices(uid)
        return sum(len(ids) for by_resource in held.values() for ids in by_resource.values())

    def check(self) -> None:
        """Check that all indexes agree and that all free devices can be allocated."""
        self.gpus.allocate_error = None
        self.manager.self_check()
        has = self.held("p")
        assert has in (0, 2)
        saved = checkpoint.loads(self.store.data or b"")
        assert {entry.pod_uid for entry in saved.entries or ()} == self.manager.pods()
        self.manager.admit(pod("rest", gpu=3 - has))
        if not has:
            self.manager.release(PodUid("rest"))
            self.manager.admit(pod("p", container("x", gpu=1), container("y", gpu=1)))
        self.manager.self_check()


def moments(**plugin: Any) -> Iterator[tuple[Harness, Interrupt]]:
    """Yield a new harness for the first and the last time that each line runs.

    Before them, one run without an interrupt finds the lines.
    """
    whole = Interrupt(None)
    yield Harness(**plugin), whole
    first = {line: at for at, line in reversed([*enumerate(whole.seen)])}
    last = {line: at for at, line in enumerate(whole.seen)}
    for at in sorted({*first.values(), *last.values()}):
        yield Harness(**plugin), Interrupt(at)


@pytest.mark.parametrize("rejected", [False, True])
def test_admission_interrupted_at_any_line(rejected: bool) -> None:
    error = RpcError("Unknown", "not today") if rejected else None
    interrupted = 0
    for harness, interrupt in moments(allocate_error=error):
        spec = pod("p", container("x", gpu=1), container("y", gpu=1))
        interrupted += interrupt.during(lambda h=harness, s=spec: h.manager.admit(s))
        harness.check()
    assert interrupted > 100


def test_allocation_at_container_start_interrupted_at_any_line() -> None:
    interrupted = 0
    for harness, interrupt in moments():
        spec = pod("p", container("x", gpu=2))
        interrupted += interrupt.during(
            lambda h=harness, s=spec: h.manager.allocate_now(s, s.containers[0], is_init=False)
        )
        harness.check()
    assert interrupted > 50


def test_release_interrupted_at_any_line() -> None:
    """It is complete, or can be repeated."""
    interrupted = 0
    for harness, interrupt in moments():
        harness.manager.admit(pod("p", container("x", gpu=2)))
        interrupted += interrupt.during(lambda h=harness: h.manager.release(PodUid("p")))
        harness.manager.self_check()
        harness.manager.release(PodUid("p"))
        harness.manager.write()
        harness.check()
    assert interrupted > 20


def test_adoption_interrupted_at_any_line() -> None:
    """It is complete, or can be repeated."""
    interrupted = 0
    for harness, interrupt in moments():
        held = {"x": {"vendor.com/gpu": ["c"]}, "y": {"vendor.com/gpu": ["d"]}}
        interrupted += interrupt.during(
            lambda h=harness, d=held: h.manager.adopt(PodUid("p"), d)  # type: ignore[misc]
        )
        harness.manager.self_check()
        assert harness.held("p") in (0, 2)
        harness.manager.adopt(PodUid("p"), held)
        harness.check()
    assert interrupted > 20
