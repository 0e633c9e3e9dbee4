"""Power failures: the model of a disk, the recording, and that each missing flush is noticed."""

import os
import random
import threading

import pytest

import checkpoint
from checkpoint import Checkpoint, Durability, FileStore, PodDevicesEntry, dumps
from tools.harness.model import Broken, Confirmed
from tools.harness.model import devices as named
from tools.power import claims
from tools.power.__main__ import check, main, read_devices, recorded
from tools.power.disk import (
    Create,
    Disk,
    Flush,
    FlushDirectory,
    Mark,
    Remove,
    Rename,
    Truncate,
    Write,
    moments,
)
from tools.power.recording import recording

NAME = checkpoint.CHECKPOINT_NAME


def left(start, *operations):
    """Return all states that a power failure after these can leave, without repetitions."""
    (*_, disk) = moments(start, operations)
    found = []
    for files in disk.lost():
        if files not in found:
            found.append(files)
    return found


# -- the disk --------------------------------------------------------------------------


def test_unflushed_data_can_be_lost_or_truncated():
    made = [Create("a", 1), FlushDirectory(), Write(1, b"1234")]
    assert left({}, *made) == [{"a": b""}, {"a": b"12"}, {"a": b"1234"}]
    assert left({}, *made, Flush(1)) == [{"a": b"1234"}]
    assert left({}, *made, Flush(1), Truncate(1)) == [{"a": b"1234"}, {"a": b""}]


def test_names_reach_the_disk_in_order():
    done = [Create("t", 1), Write(1, b"new"), Flush(1), Rename("t", "a")]
    assert left({"a": b"old"}, *done) == [
        {"a": b"old"},
        {"a": b"old", "t": b"new"},
        {"a": b"new"},
    ]
    assert left({"a": b"old"}, *done, FlushDirectory()) == [{"a": b"new"}]
    assert left({"a": b"old"}, Remove("a")) == [{"a": b"old"}, {}]


def test_all_data_is_readable_without_a_failure():
    disk = Disk.of({"a": b"old"})
    for operation in [Create("t", 1), Write(1, b"new"), Rename("t", "a")]:
        disk.do(operation)
    assert disk.seen() == {"a": b"new"}


# -- the recording ---------------------------------------------------------------------


def test_recording_contains_only_operations_in_the_directory(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    with recording(inside) as recorder:
        for directory in (inside, outside):
            file = os.open(directory / "t", os.O_WRONLY | os.O_CREAT)
            os.write(file, b"one")
            os.writev(file, [b"two", b"three"])
            os.fsync(file)
            os.close(file)
            (directory / "t").rename(directory / "a")
            at = os.open(directory, os.O_RDONLY)
            os.fsync(at)
            file = os.open("b", os.O_WRONLY | os.O_CREAT, dir_fd=at)
            os.rename("b", "c", src_dir_fd=at, dst_dir_fd=at)
            os.close(file)
            os.unlink("c", dir_fd=at)
            os.close(at)
            file = os.open(directory / "a", os.O_WRONLY | os.O_TRUNC)
            os.close(file)
        recorder.mark("allocated", "u", frozenset({"d"}))
    assert recorder.operations == [
        Create("t", 1),
        Write(1, b"one"),
        Write(1, b"twothree"),
        Flush(1),
        Rename("t", "a"),
        FlushDirectory(),
        Create("b", 2),
        Rename("b", "c"),
        Remove("c"),
        Truncate(1),
        Mark("allocated", "u", frozenset({"d"})),
    ]
    # After the block nothing is recorded.
    (inside / "later").write_text("x")
    assert len(recorder.operations) == 11


def test_failed_operations_are_not_recorded(tmp_path):
    with recording(tmp_path) as recorder:
        with pytest.raises(FileNotFoundError):
            (tmp_path / "absent").rename(tmp_path / "b")
        with pytest.raises(FileNotFoundError):
            (tmp_path / "absent").unlink()
    assert recorder.operations == []


# -- the store, alone ------------------------------------------------------------------


def written(directory, level, count=4):
    """Return the operations of a store that saves one more pod each time, with marks."""
    store, entries = FileStore(directory, durability=level), []
    with recording(directory) as recorder:
        for number in range(count):
            devices = (f"d{number}",)
            entries.append(PodDevicesEntry(f"u{number}", "c", "a.b/r", {0: devices}, b"x"))
            store.write(dumps(Checkpoint(tuple(entries), {})))
            recorder.mark("allocated", f"u{number}", named({"a.b/r": devices}))
    return recorder.operations


@pytest.mark.parametrize("level", Durability)
def test_store_keeps_the_promises_of_its_level(tmp_path, level):
    assert check(level, {}, written(tmp_path, level), Confirmed()) > 4


def without(operations, kind, number):
    """Return the operations without one of this kind: a store that forgot a flush."""
    position = [n for n, operation in enumerate(operations) if isinstance(operation, kind)][number]
    return operations[:position] + operations[position + 1 :]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(
    ("level", "kind", "complaint"),
    [
        (Durability.KUBELET, Flush, "the checkpoint is damaged"),
        (Durability.POWER, Flush, "the checkpoint is damaged"),
        (Durability.POWER, FlushDirectory, "was allocated"),
    ],
)
def test_missing_flush_is_noticed(tmp_path, level, kind, complaint, number):
    operations = without(written(tmp_path, level), kind, number)
    with pytest.raises(Broken, match=complaint):
        check(level, {}, operations, Confirmed())


@pytest.mark.parametrize("level", [Durability.KUBELET, Durability.POWER])
def test_rename_before_flush_is_noticed(tmp_path, level):
    operations = written(tmp_path, level)
    flush, rename = (
        next(n for n, operation in enumerate(operations) if isinstance(operation, kind))
        for kind in (Flush, Rename)
    )
    operations.insert(flush, operations.pop(rename))
    with pytest.raises(Broken, match="the checkpoint is damaged"):
        check(level, {}, operations, Confirmed())


def test_each_level_promises_more_than_the_one_below(tmp_path):
    for above, below in [("power", "kubelet"), ("kubelet", "process")]:
        directory = tmp_path / below
        directory.mkdir()
        operations = written(directory, Durability(below))
        with pytest.raises(Broken):
            check(above, {}, operations, Confirmed())


def test_writing_in_place_is_noticed_at_every_level(tmp_path):
    def save(data):
        file = os.open(tmp_path / NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(file, data)
        os.fsync(file)
        os.close(file)

    with recording(tmp_path) as recorder:
        for number in range(2):
            save(dumps(Checkpoint((), {"a.b/r": (f"d{number}",)})))
    for level in Durability:
        with pytest.raises(Broken, match="the checkpoint is damaged"):
            check(level, {}, recorder.operations, Confirmed())


@pytest.mark.parametrize("level", Durability)
def test_file_that_is_set_aside_is_never_lost(tmp_path, level):
    damaged = b"damaged, but it shows what happened"
    (tmp_path / NAME).write_bytes(damaged)
    store = FileStore(tmp_path, durability=level)
    with recording(tmp_path) as recorder:
        store.set_aside()
    assert recorder.start == {NAME: damaged}
    assert Rename(NAME, f"{NAME}.corrupt-1") in recorder.operations
    for disk in moments(recorder.start, recorder.operations):
        assert all(damaged in files.values() for files in disk.lost())


# -- the check -------------------------------------------------------------------------


def saved(**holders):
    entries = [PodDevicesEntry(uid, "c", "a.b/r", {0: (id_,)}, b"") for uid, id_ in holders.items()]
    return {NAME: dumps(Checkpoint(tuple(entries), {}))}


ALLOCATED = Mark("allocated", "a", frozenset({"a.b/r d"}))
OTHER = Mark("allocated", "a", frozenset({"a.b/r e"}))


@pytest.mark.parametrize(
    ("level", "files", "marks", "complaint"),
    [
        ("kubelet", saved(a="d", b="d"), [], "allocated to a and to b"),
        (
            "power",
            saved(a="d"),
            [OTHER],
            "pod a was allocated",
        ),
        ("process", {}, [OTHER], "pod a was allocated"),
        (
            "power",
            saved(a="d"),
            [
                ALLOCATED,
                Mark("ending", "a"),
                Mark("ended", "a"),
            ],
            "terminated, but is on disk",
        ),
    ],
)
def test_check_reports_broken_promises(level, files, marks, complaint):
    with pytest.raises(Broken, match=complaint):
        check(level, files, marks, Confirmed())


def test_ending_pod_may_be_on_disk_or_not():
    ending = [ALLOCATED, Mark("ending", "a")]
    assert check("power", saved(a="d"), ending, Confirmed()) > 0
    assert read_devices(saved(a="d")) == {"a": {"a.b/r d"}}
    assert read_devices({}) == {}


# -- a whole kubelet -------------------------------------------------------------------


@pytest.mark.parametrize("level", Durability)
def test_kubelet_keeps_the_promises_of_its_level(level):
    operations = recorded(level, admissions=12, seed=1).operations
    assert sum(isinstance(each, Mark) and each.what == "allocated" for each in operations) >= 8
    assert check(level, {}, operations, Confirmed()) > 8
    if level is Durability.PROCESS:
        return
    flushes = sum(isinstance(each, Flush) for each in operations)
    forgot = without(operations, Flush, random.Random(flushes).randrange(flushes))
    with pytest.raises(Broken, match="the checkpoint is damaged"):
        check(level, {}, forgot, Confirmed())


def test_command_checks_one_level(capsys):
    before = threading.active_count()  # other tests in this process may have left some
    assert main(["--rounds", "1", "--admissions", "6", "--level", "power"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("power: power: 6 admissions and calls of the DRA manager each, power ")
    assert out[0].endswith(" different outcomes: all promises kept")
    assert out[1].startswith("power: ok: seed 1, ")
    assert threading.active_count() < before + 50


def test_command_reports_lost_data(capsys, monkeypatch):
    monkeypatch.setattr(checkpoint.FileOperations, "flush", lambda self, descriptor: None)
    assert main(["--rounds", "1", "--admissions", "6", "--level", "kubelet"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("power: FAILED: seed 1, ")
    assert " operations: kubelet: power lost after " in out


# -- the state file of the DRA manager ---------------------------------------------------


@pytest.mark.parametrize("level", Durability)
def test_state_file_keeps_the_promises_of_its_level(level):
    done = claims.recorded(level, 24, 1)
    assert claims.check(level, done.start, done.operations) > 20


@pytest.mark.parametrize(
    ("level", "removed", "problem"),
    [
        ("power", FlushDirectory, "a driver was called for"),
        ("kubelet", Flush, "the state file is damaged"),
    ],
)
def test_missing_flush_of_the_state_file_is_noticed(level, removed, problem):
    done = claims.recorded(level, 12, 1)
    operations = [each for each in done.operations if not isinstance(each, removed)]
    with pytest.raises(Broken, match=problem):
        claims.check(level, done.start, operations)


def test_driver_that_is_called_before_the_file_is_written_is_noticed():
    done = claims.recorded("power", 4, 1)
    first = next(each for each in done.operations if isinstance(each, Mark))
    early = [first, Mark("called", first.uid), *done.operations]
    with pytest.raises(Broken, match=f"a driver was called for {first.uid}"):
        claims.check("power", done.start, early)
