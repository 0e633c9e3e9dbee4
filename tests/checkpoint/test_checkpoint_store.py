"""The file on disk: it is replaced completely or not at all."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from checkpoint import (
    CHECKPOINT_NAME,
    MAX_SIZE,
    Checkpoint,
    CheckpointCorrupt,
    CheckpointNotFound,
    CheckpointUnreadable,
    CheckpointWriteError,
    ChecksumMismatch,
    Contents,
    Durability,
    FileOperations,
    FileStore,
    PodDevicesEntry,
    checksum,
    dumps,
    is_checkpoint_file,
    load,
    verify,
)

OLD = Checkpoint(None, {"vendor.com/r": ("old",)})
NEW = Checkpoint((PodDevicesEntry("u", "c", "vendor.com/r", {0: ("a",)}, b"\x01"),), {})


@pytest.fixture
def store(tmp_path) -> FileStore:
    store = FileStore(tmp_path)
    store.write(dumps(OLD))
    return store


def names(store: FileStore) -> list[str]:
    return sorted(path.name for path in store.directory.iterdir())


def test_write_and_read(store):
    assert store.path == store.directory / "kubelet_internal_checkpoint"
    assert load(store.path) == store.load() == OLD
    store.write(dumps(NEW))
    assert store.read() == dumps(NEW)
    assert store.load() == NEW
    assert verify(store.path) == checksum(NEW)
    assert names(store) == [CHECKPOINT_NAME]
    assert store.path.stat().st_mode & 0o777 == 0o600


class Recorder(FileOperations):
    """Records the operations that matter to durability, by kind of file."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    def write(self, descriptor: int, data: Contents) -> None:
        self.done.append(("write", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        super().write(descriptor, data)

    def flush(self, descriptor: int) -> None:
        self.done.append(("flush", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        super().flush(descriptor)

    def rename(self, old: str, new: str) -> None:
        self.done.append(("rename", Path(old).name))
        super().rename(old, new)

    def flush_directory(self, path: str) -> None:
        self.done.append(("flush directory", Path(path).name))
        super().flush_directory(path)


@pytest.mark.parametrize(
    ("durability", "steps"),
    [
        ("process", ["write", "rename"]),
        ("kubelet", ["write", "flush", "rename"]),
        ("power", ["write", "flush", "rename", "flush directory"]),
    ],
)
def test_flushes_of_each_durability(tmp_path, durability, steps):
    files = Recorder()
    store = FileStore(tmp_path, durability=durability, files=files)
    store.write(dumps(NEW))
    assert [step for step, _ in files.done] == steps
    temporary = files.done[0][1]
    assert not is_checkpoint_file(temporary)
    assert {name for _, name in files.done} <= {temporary, tmp_path.name}
    assert store.load() == NEW


def test_set_aside_flushes_the_directory_only_for_power(tmp_path):
    for durability in Durability:
        files = Recorder()
        store = FileStore(tmp_path, durability=durability, files=files)
        store.path.write_text("broken")
        store.set_aside()
        flushed = ("flush directory", tmp_path.name) in files.done
        assert flushed is (durability is Durability.POWER)


def test_durability_levels():
    assert list(Durability) == ["process", "kubelet", "power"]
    with pytest.raises(ValueError, match=r"^'paper' is not a valid Durability"):
        FileStore("/", durability="paper")


def test_data_is_flushed_before_the_rename(tmp_path, monkeypatch):
    done = []
    rename, fsync = os.rename, os.fsync

    def recording_fsync(descriptor: int) -> None:
        done.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def recording_rename(path: str, target: str) -> None:
        done.append(("rename", Path(path).name))
        rename(path, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "rename", recording_rename)
    FileStore(tmp_path, durability="power").write(dumps(NEW))
    temporary = done[0][1]
    assert done == [("fsync", temporary), ("rename", temporary), ("fsync", tmp_path.name)]


def failing(code: int):
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "the disk is full: free some space"),
        (errno.EDQUOT, "the disk quota is used up: free some space"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EACCES, "no permission to write in its directory: check its owner and mode"),
        (errno.EIO, "the disk reports an error"),
        (errno.EMFILE, "Too many open files"),
    ],
)
@pytest.mark.parametrize("step", ["open", "write", "fsync", "close", "rename"])
def test_failed_write_changes_nothing(store, monkeypatch, step, code, reason):
    with monkeypatch.context() as patch:
        if step == "close":
            close = os.close

            def close_and_fail(descriptor: int) -> None:
                close(descriptor)
                failing(code)()

            patch.setattr(os, "close", close_and_fail)
        else:
            patch.setattr(os, step, failing(code))
        with pytest.raises(CheckpointWriteError) as caught:
            store.write(dumps(NEW))
    error = caught.value
    assert str(error) == f"{store.path}: cannot be written: {reason}; it is unchanged"
    assert isinstance(error.__cause__, OSError)
    assert error.__cause__.errno == code
    assert not error.replaced
    assert store.load() == OLD
    assert names(store) == [CHECKPOINT_NAME]
    store.write(dumps(NEW))
    assert store.load() == NEW


def test_full_disk_during_a_write(store, monkeypatch):
    write = os.write

    def write_a_little(descriptor: int, data: memoryview) -> int:
        if os.fstat(descriptor).st_size >= 100:
            failing(errno.ENOSPC)()
        return write(descriptor, data[:50])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_a_little)
        with pytest.raises(CheckpointWriteError, match="the disk is full"):
            store.write(dumps(NEW))
    assert store.load() == OLD
    assert names(store) == [CHECKPOINT_NAME]


def test_short_writes_are_continued(store, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    store.write(dumps(NEW))
    assert store.load() == NEW


@pytest.mark.parametrize("number", [0, 1, 1024, 1025, 3000])
def test_pieces_are_written_as_one_file(store, number):
    store.write([b"%d," % piece for piece in range(number)])
    assert store.read() == b"".join(b"%d," % piece for piece in range(number))


def test_short_writes_of_pieces_are_continued(store, monkeypatch):
    write = os.write
    # So short that a write ends within a piece.
    monkeypatch.setattr(os, "writev", lambda descriptor, pieces: write(descriptor, pieces[0][:7]))
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:5]))
    text = dumps(NEW)
    store.write([text[:20], text[20:21], b"", text[21:]])
    assert store.load() == NEW


def test_full_disk_between_pieces(store, monkeypatch):
    monkeypatch.setattr(os, "writev", failing(errno.ENOSPC))
    with pytest.raises(CheckpointWriteError, match="the disk is full"):
        store.write([dumps(NEW)])
    assert store.load() == OLD
    assert names(store) == [CHECKPOINT_NAME]


def test_file_size_limit_of_the_process(store):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(CheckpointWriteError, match="the size limit of this process"):
            store.write(dumps(NEW))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.load() == OLD
    assert names(store) == [CHECKPOINT_NAME]


def test_directory_that_cannot_be_flushed(tmp_path, monkeypatch):
    store = FileStore(tmp_path, durability="power")
    fsync = os.fsync
    failed = failing(errno.EIO)
    monkeypatch.setattr(
        os, "fsync", lambda fd: failed() if Path(f"/proc/self/fd/{fd}").is_dir() else fsync(fd)
    )
    with pytest.raises(CheckpointWriteError, match="a power failure may undo the write") as caught:
        store.write(dumps(NEW))
    assert caught.value.replaced
    assert store.load() == NEW
    assert names(store) == [CHECKPOINT_NAME]


def test_interrupt_leaves_no_temporary_file(store, monkeypatch):
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.write(dumps(NEW))
    assert store.load() == OLD
    assert names(store) == [CHECKPOINT_NAME]


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "taken" / CHECKPOINT_NAME).mkdir(parents=True)
    for directory, reason in [
        ("absent", "its directory does not exist"),
        ("file", "its directory is a file"),
        ("taken", "it is a directory: move it away"),
    ]:
        with pytest.raises(CheckpointWriteError, match=reason):
            FileStore(tmp_path / directory).write(b"{}")
    assert names(FileStore(tmp_path / "taken")) == [CHECKPOINT_NAME]


def test_descriptors_are_closed(store, monkeypatch):
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    store.write(dumps(NEW))
    store.load()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.EIO))
        with pytest.raises(CheckpointWriteError):
            store.write(dumps(NEW))
    with pytest.raises(CheckpointUnreadable):
        load(store.directory)
    assert opened() == before


def test_missing_file(tmp_path):
    path = tmp_path / CHECKPOINT_NAME
    with pytest.raises(CheckpointNotFound, match="No such file or directory: check the path"):
        load(path)
    with pytest.raises(CheckpointNotFound):
        FileStore(tmp_path).load()
    with pytest.raises(CheckpointNotFound):
        FileStore(tmp_path).set_aside()
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_read(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(dumps(OLD))
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("gone")
    with pytest.raises(
        CheckpointUnreadable, match="it is a directory, not a regular file; check its"
    ):
        load(tmp_path)
    with pytest.raises(
        CheckpointUnreadable, match="it is a device, pipe or socket, not a regular file"
    ):
        load(tmp_path / "pipe")
    with pytest.raises(
        CheckpointUnreadable, match=r"^/dev/zero: cannot be read: it is a device, pipe or socket"
    ):
        load("/dev/zero")
    with pytest.raises(CheckpointUnreadable, match="Too many levels of symbolic links"):
        load(tmp_path / "loop")
    with pytest.raises(CheckpointUnreadable, match="it is a link to gone, which does not exist"):
        load(tmp_path / "link")
    with pytest.raises(CheckpointUnreadable, match="Not a directory"):
        load(tmp_path / "file" / "x")
    with pytest.raises(CheckpointUnreadable, match="embedded null byte"):
        load("a\0b")
    monkeypatch.setattr(os, "read", failing(errno.EIO))
    with pytest.raises(CheckpointUnreadable, match="Input/output error") as caught:
        load(tmp_path / "file")
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_missing_permission_to_read(store):
    store.path.chmod(0)
    with pytest.raises(CheckpointUnreadable, match="Permission denied"):
        store.load()


def test_errors_name_the_file(store):
    store.path.write_bytes(b"")
    with pytest.raises(CheckpointCorrupt, match=f"^{store.path}: the file is empty; "):
        store.load()
    store.path.write_bytes(dumps(OLD).replace(b"old", b"odd"))
    with pytest.raises(ChecksumMismatch, match=f"^{store.path}: the file has checksum "):
        verify(store.path)


def test_set_aside_does_not_overwrite(store):
    (store.directory / f"{CHECKPOINT_NAME}.corrupt-1").write_text("mine")
    (store.directory / f"{CHECKPOINT_NAME}.corrupt-3").mkdir()
    for content, number in [(b"first", 2), (b"second", 4), (b"third", 5)]:
        store.path.write_bytes(content)
        aside = store.set_aside()
        assert aside == store.directory / f"{CHECKPOINT_NAME}.corrupt-{number}"
        assert aside.read_bytes() == content
        assert not store.path.exists()
    assert (store.directory / f"{CHECKPOINT_NAME}.corrupt-1").read_text() == "mine"
    assert all(map(is_checkpoint_file, names(store)))
    store.write(dumps(NEW))
    assert store.load() == NEW


def test_failed_set_aside_changes_nothing(store, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing(errno.EROFS))
        with pytest.raises(CheckpointWriteError, match="read-only"):
            store.set_aside()
    assert store.load() == OLD
    assert names(store) == [CHECKPOINT_NAME]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (CHECKPOINT_NAME, True),
        (f"{CHECKPOINT_NAME}.corrupt-1", True),
        (f"{CHECKPOINT_NAME}.corrupt-12", True),
        (f"{CHECKPOINT_NAME}.corrupt-0", False),
        (f"{CHECKPOINT_NAME}.corrupt-1\n", False),
        (f"{CHECKPOINT_NAME}.corrupt-", False),
        (f"{CHECKPOINT_NAME}.corrupt-1.sock", False),
        (f".{CHECKPOINT_NAME}.tmp-1-0", False),
        ("kubelet.sock", False),
        ("", False),
    ],
)
def test_files_that_a_start_keeps(name, kept):
    assert is_checkpoint_file(name) is kept


def test_only_leftovers_are_removed(store):
    leftovers = [f".{CHECKPOINT_NAME}.tmp-{pid}-0" for pid in (1, os.getpid())]
    others = [".other", f".{CHECKPOINT_NAME}", f"{CHECKPOINT_NAME}.corrupt-1", "vendor.sock"]
    for name in leftovers + others:
        (store.directory / name).touch()
    directory = store.directory / f".{CHECKPOINT_NAME}.tmp-dir"
    directory.mkdir()
    for _ in range(2):
        store.remove_leftovers()
        assert names(store) == sorted([*others, CHECKPOINT_NAME, directory.name])
    FileStore(store.directory / "absent").remove_leftovers()


def test_leftover_of_the_same_name_does_not_prevent_a_write(store):
    leftover = store.directory / f".{CHECKPOINT_NAME}.tmp-{os.getpid()}-1"
    leftover.write_text("leftover")
    for _ in range(3):
        store.write(dumps(NEW))
    assert store.load() == NEW
    assert leftover.read_text() == "leftover"
    assert len(names(store)) == 2


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def test_too_large_file_is_not_read(store, monkeypatch):
    sparse(store.path, MAX_SIZE + 1)
    monkeypatch.setattr(os, "read", failing(errno.EIO))  # nothing is read
    with pytest.raises(CheckpointUnreadable, match=f"{MAX_SIZE + 1} bytes; the limit is"):
        store.load()


def test_file_growing_above_the_limit_is_not_read(store, monkeypatch):
    monkeypatch.setattr(os, "read", lambda _, size: bytes(size))
    with pytest.raises(CheckpointUnreadable, match=f"the limit is {MAX_SIZE}"):
        store.load()


def test_too_large_contents_are_not_written(store):
    with pytest.raises(CheckpointWriteError, match=r"the limit is .* it is unchanged"):
        store.write([bytes(1 << 20)] * ((MAX_SIZE >> 20) + 1))
    assert store.load() == OLD
    assert names(store) == [CHECKPOINT_NAME]


WRITER = """
import sys
from checkpoint import Document, FileStore, PodDevicesEntry, render_entry
store, document = FileStore(sys.argv[1], durability=sys.argv[2]), Document()
print("ready", flush=True)
for number in range(1_000_000):
    entry = PodDevicesEntry(f"u{number}", "c", "vendor.com/r", {0: (f"d{number}",)}, b"x" * 2000)
    document.put(str(number), [render_entry(entry)])
    store.write(document.snapshot().parts())
    print(number, flush=True)
"""


@pytest.mark.timeout(50)
@pytest.mark.parametrize("durability", list(Durability))
def test_killed_writer_leaves_a_complete_file(tmp_path, durability):
    store = FileStore(tmp_path)
    left_over = 0
    for kill in range(12):
        command = [sys.executable, "-c", WRITER, str(tmp_path), durability]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            # No waiting for an event: the pause varies the moment of the kill.
            time.sleep(kill * 0.0023)
            writer.send_signal(signal.SIGKILL)
            answered = writer.stdout.read().splitlines(keepends=True)
        whole = [int(line) for line in answered if line.endswith("\n")]
        if whole:
            held = store.load().entries
            assert held is not None
            assert {f"u{number}" for number in whole} <= {entry.pod_uid for entry in held}
        elif store.path.exists():
            store.load()
        left_over += len([name for name in names(store) if ".tmp-" in name])
        store.remove_leftovers()
        assert set(names(store)) <= {CHECKPOINT_NAME}
        store.path.unlink(missing_ok=True)
    # Without a flush, a write is too short to be hit reliably by a kill.
    assert left_over or durability is Durability.PROCESS, "no kill fell into a write"


def test_first_file_set_aside_has_number_1(tmp_path):
    store = FileStore(tmp_path)
    store.path.write_text("broken")
    assert store.set_aside() == tmp_path / f"{CHECKPOINT_NAME}.corrupt-1"
