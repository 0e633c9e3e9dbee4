"""A file that is replaced is freed by a thread, and whoever replaced it waits for no disk."""

import os
import threading
from pathlib import Path

import pytest

from checkpoint import CheckpointWriteError, FileOperations, FileStore, Freeing
from checkpoint.freeing import MOST_WAITING

PATIENCE = 30.0


def descriptors() -> set[str]:
    """The files that this process has open."""
    links = list(Path("/proc/self/fd").iterdir())
    return {str(link.readlink()) for link in links if link.is_symlink()}


def held() -> list[str]:
    return [link for link in descriptors() if link.endswith("(deleted)") and "held" in link]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "held"
    path.write_bytes(b"x" * 100)
    return path


class Steps(Freeing):
    """Remembers what it was asked."""

    def __init__(self, done: list[str]) -> None:
        super().__init__()
        self.done = done

    def hold(self, path: str) -> int | None:
        descriptor = super().hold(path)
        self.done.append("hold" if descriptor is not None else "nothing to hold")
        return descriptor

    def free(self, descriptor: int) -> None:
        self.done.append("free")
        super().free(descriptor)


class Files(FileOperations):
    def __init__(self, done: list[str], error: OSError | None = None) -> None:
        self.done = done
        self.error = error

    def rename(self, old: str, new: str) -> None:
        self.done.append("rename")
        if self.error is not None:
            raise self.error
        super().rename(old, new)


def test_the_old_file_is_held_over_the_rename(tmp_path: Path) -> None:
    done: list[str] = []
    freeing = Steps(done)
    store = FileStore(tmp_path, files=Files(done), freeing=freeing)
    store.write(b"first")
    assert done == ["nothing to hold", "rename"]
    done.clear()
    store.write(b"second")
    assert done == ["hold", "rename", "free"]
    assert store.path.read_bytes() == b"second"
    freeing.close()


def test_a_file_that_is_not_replaced_is_let_go(tmp_path: Path) -> None:
    FileStore(tmp_path).write(b"first")
    done: list[str] = []
    freeing = Steps(done)
    store = FileStore(tmp_path, files=Files(done, OSError(5, "no")), freeing=freeing)
    with pytest.raises(CheckpointWriteError):
        store.write(b"second")
    assert done == ["hold", "rename", "free"]
    freeing.close()
    assert not [each for each in descriptors() if each.startswith(str(tmp_path))]
    assert store.path.read_bytes() == b"first"


def test_a_held_file_is_freed_in_another_thread(place: Path) -> None:
    threads: list[str] = []

    def close(descriptor: int) -> None:
        threads.append(threading.current_thread().name)
        os.close(descriptor)

    freeing = Freeing(close)
    descriptor = freeing.hold(str(place))
    assert descriptor is not None
    place.unlink()
    assert held() == [f"{place} (deleted)"]
    freeing.free(descriptor)
    freeing.close()
    assert held() == []
    assert threads == ["checkpoint freeing"]
    assert "checkpoint freeing" not in [each.name for each in threading.enumerate()]


def test_on_a_slow_disk_nothing_piles_up(place: Path) -> None:
    go_on = threading.Event()

    def close(descriptor: int) -> None:
        assert go_on.wait(PATIENCE)
        os.close(descriptor)

    freeing, files = Freeing(close), 0
    while (descriptor := freeing.hold(str(place))) is not None:
        freeing.free(descriptor)
        files += 1
        assert files <= MOST_WAITING + 1  # the thread has one itself
    assert files >= MOST_WAITING
    go_on.set()
    freeing.close()
    assert str(place) not in descriptors()


def test_what_is_no_file_of_ours_is_not_opened(tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    freeing = Freeing()
    assert freeing.hold(str(tmp_path / "absent")) is None
    for path in (fifo, link):
        descriptor = freeing.hold(str(path))  # returns, though nobody writes to the FIFO
        assert descriptor is not None
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.read(descriptor, 1)
        os.close(descriptor)


def test_closed_without_a_file_and_used_again(place: Path) -> None:
    freeing = Freeing()
    freeing.close()
    for _ in range(2):
        descriptor = freeing.hold(str(place))
        assert descriptor is not None
        freeing.free(descriptor)
        freeing.close()
        freeing.close()
    assert str(place) not in descriptors()


def test_where_no_thread_can_start_the_file_is_freed_in_place(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    freeing = Freeing()
    descriptor = freeing.hold(str(place))
    assert descriptor is not None
    freeing.free(descriptor)
    assert str(place) not in descriptors()
    freeing.close()
