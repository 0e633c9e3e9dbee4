"""Replaced files are freed by a thread, so that writers do not wait for it."""

import contextlib
import linecache
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointWriteError, FileOperations, FileStore, Freeing
from checkpoint import freeing as module

PATIENCE = 30.0


def open_files() -> set[str]:
    """Return the open files of this process."""
    links = list(Path("/proc/self/fd").iterdir())
    return {str(link.readlink()) for link in links if link.is_symlink()}


def freeing_threads() -> int:
    return [each.name for each in threading.enumerate()].count("checkpoint freeing")


class Disk(FileOperations):
    """File operations with failing renames and delayed closes."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.may_free = threading.Event()
        self.freed_by: list[str] = []

    def rename(self, old: str, new: str) -> None:
        if self.error is not None:
            raise self.error
        super().rename(old, new)

    def close(self, descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name.endswith(" (deleted)"):
            assert self.may_free.wait(PATIENCE)
            self.freed_by.append(threading.current_thread().name)
        super().close(descriptor)


def deleted(store: FileStore) -> str:
    return f"{store.path} (deleted)"


def test_write_does_not_wait_for_the_old_file(tmp_path: Path) -> None:
    disk, before = Disk(), open_files()
    freeing = Freeing(disk)
    store = FileStore(tmp_path, files=disk, freeing=freeing)
    store.write(b"first")
    assert freeing_threads() == 0
    store.write(b"second")
    assert deleted(store) in open_files()
    disk.may_free.set()
    freeing.close()
    assert open_files() == before
    assert disk.freed_by == ["checkpoint freeing"]
    assert freeing_threads() == 0
    assert store.read() == b"second"


def test_next_write_waits_for_the_old_file(tmp_path: Path) -> None:
    """A disk with room for two files would be full otherwise."""
    disk = Disk()
    freeing = Freeing(disk)
    store = FileStore(tmp_path, files=disk, freeing=freeing)
    store.write(b"first")
    store.write(b"second")
    third = threading.Thread(target=store.write, args=(b"third",))
    third.start()
    third.join(0.05)
    assert third.is_alive()
    assert [path.name for path in tmp_path.iterdir()] == [store.path.name]
    disk.may_free.set()
    third.join(PATIENCE)
    freeing.close()
    assert store.read() == b"third"


def test_descriptor_is_closed_after_a_failed_rename(tmp_path: Path) -> None:
    FileStore(tmp_path).write(b"first")
    before = open_files()
    freeing = Freeing()
    store = FileStore(tmp_path, files=Disk(OSError(5, "no")), freeing=freeing)
    with pytest.raises(CheckpointWriteError):
        store.write(b"second")
    freeing.close()
    assert open_files() == before
    assert store.read() == b"first"


def test_only_regular_files_are_held(tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    freeing = Freeing()
    assert freeing.hold(str(tmp_path / "absent")) is None
    for path in (fifo, link):
        descriptor = freeing.hold(str(path))  # returns, although the FIFO has no writer
        assert descriptor is not None
        assert Path(f"/proc/self/fd/{descriptor}").readlink() == path
        freeing.free(descriptor)
    freeing.close()


def test_close_without_files_and_use_again(tmp_path: Path) -> None:
    freeing, before = Freeing(), open_files()
    freeing.close()
    store = FileStore(tmp_path, freeing=freeing)
    for _ in range(2):
        store.write(b"first")
        store.write(b"second")
        freeing.close()
        freeing.close()
        assert open_files() == before
        assert freeing_threads() == 0


def test_writer_frees_the_file_without_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", reject)
    disk, before = Disk(), open_files()
    disk.may_free.set()
    freeing = Freeing(disk)
    store = FileStore(tmp_path, files=disk, freeing=freeing)
    for number in range(3):
        store.write(b"%d" % number)
        assert open_files() == before
    assert disk.freed_by == ["MainThread"] * 2
    freeing.close()


def test_file_passed_to_a_stopping_thread_is_freed(tmp_path: Path) -> None:
    disk, before = Disk(), open_files()
    freeing = Freeing(disk)
    store = FileStore(tmp_path, files=disk, freeing=freeing)
    store.write(b"first")
    store.write(b"second")
    with freeing._lock:
        freeing._end()  # a call of ``close`` that is interrupted here
    descriptor = freeing.hold(str(store.path))
    assert descriptor is not None
    store.path.unlink()
    freeing.free(descriptor)
    disk.may_free.set()
    freeing.close()
    assert disk.freed_by == ["checkpoint freeing"] * 2
    assert (open_files(), freeing_threads()) == (before, 0)


class Interrupt:
    """Trace function that raises KeyboardInterrupt at the ``at``-th line of the module."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: Any, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        line = linecache.getline(module.__file__, frame.f_lineno).strip()
        # Python reports a `with` line again when the block ends; no interrupt can hit there.
        if event == "line" and not line.startswith(("with ", "try:")):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return self


class Lingering(Freeing):
    """The thread is alive for a moment after it has stopped to free files."""

    def _run(self, held: Any) -> None:
        super()._run(held)
        threading.Event().wait(0.05)


def interrupted(at: int, path: Path, ends: bool) -> bool:
    """Interrupt a write, or ``close``, at a line; check that later calls do not block.

    False if it has fewer lines.
    """
    freeing = Lingering()
    store = FileStore(path, freeing=freeing)
    store.write(b"first")
    if ends:
        store.write(b"second")
    before = sys.gettrace()
    try:
        sys.settrace(Interrupt(at))
        if ends:
            freeing.close()
        else:
            store.write(b"third")
        was = False
    except KeyboardInterrupt:
        was = True
    finally:
        sys.settrace(before)

    def rest() -> None:
        for _ in range(2):
            store.write(b"fourth")
            store.write(b"fifth")
            freeing.close()

    later = threading.Thread(target=rest, daemon=True)
    later.start()
    later.join(PATIENCE)
    assert not later.is_alive(), f"interrupted at line {at}, the next one waits"
    assert store.read() == b"fifth"
    return was


@pytest.mark.parametrize("ends", [False, True])
def test_interrupt_at_any_line_blocks_no_later_caller(tmp_path: Path, ends: bool) -> None:
    threads = freeing_threads()
    at = 0
    while interrupted(at, tmp_path, ends):
        at += 1
    assert at > 5
    assert freeing_threads() == threads


FORKED = """
import os, sys, threading
from checkpoint import FileOperations, FileStore, Freeing

class Disk(FileOperations):
    def close(self, descriptor):
        # The parent's does not free anything before the child has ended.
        if threading.current_thread().name == "checkpoint freeing" and os.getpid() == parent:
            ended.wait()
        super().close(descriptor)

parent, ended = os.getpid(), threading.Event()
freeing = Freeing(Disk())
store = FileStore(sys.argv[1], freeing=freeing)
store.write(b"first")
store.write(b"second")
child = os.fork()
store.write(b"third") if child == 0 else os.waitpid(child, 0)
ended.set()
freeing.close()
"""


def test_forked_process_does_not_wait_for_its_parents_thread(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path)]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            assert process.wait(PATIENCE) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert FileStore(tmp_path).read() == b"third"
