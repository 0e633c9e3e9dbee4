"""Checkpoint files that cannot be read, and disks that cannot be written.

| fault | test |
|---|---|
| truncated, bit-flipped, wrong checksum, empty, not JSON | test_invalid_checkpoint_is_set_aside |
| a directory, a pipe or a dangling link in its place | test_non_regular_file_prevents_the_start |
| permanently unreadable | test_unreadable_checkpoint_prevents_the_start |
| temporarily unreadable | test_failed_read_is_retried |
| a sparse file of a gigabyte | test_huge_sparse_checkpoint_is_rejected_at_once |
| Q21: a file that was set aside survives later starts | test_invalid_checkpoint_is_set_aside |
| valid checksum, inconsistent contents | test_inconsistent_checkpoint_affects_only_its_pods |
| disk full | test_full_disk_rejects_pods |
| read-only | test_read_only_disk_rejects_pods |
| file size limit | test_file_size_limit_rejects_pods |
| a store that fails during many admissions | test_failing_writes_during_many_admissions |
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

import checkpoint
from checkpoint import Checkpoint, PodDevicesEntry
from devicemanager.core.errors import StartError
from devicemanager.events.stream import EventKind
from devicemanager.kubelet.mock import MockKubelet
from tests.hostile import hostile, residue
from tests.hostile.conftest import PATIENT, Start, pod
from tests.paths import ROOT

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
RESOURCE = hostile.RESOURCE


def one_pod(root: Path, start: Start) -> tuple[Path, bytes]:
    """Return path and contents of the checkpoint of a stopped kubelet with one pod and device."""
    kubelet = start()
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(RESOURCE, 2)
        assert kubelet.admit(pod("a", uid="uid-a")).admitted
        kubelet.stop()
    return kubelet.checkpoint_path, kubelet.checkpoint_path.read_bytes()


def flipped(data: bytes) -> bytes:
    at = data.index(b"uid-a")
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def wrong_checksum(data: bytes) -> bytes:
    head, _, number = data.rpartition(b":")
    return head + b":%d}" % (int(number[:-1]) ^ 1)


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "cut by one byte": lambda data: data[:-1],
    "bit flipped": flipped,
    "wrong checksum": wrong_checksum,
    "empty": lambda data: b"",
    "not JSON": lambda data: b"\0\xff" * 100,
    "another kind of JSON": lambda data: b'["Data", 1]',
}


@pytest.mark.parametrize("how", BROKEN)
def test_invalid_checkpoint_is_set_aside(root: Path, start: Start, how: str) -> None:
    path, data = one_pod(root, start)
    broken = BROKEN[how](data)
    path.write_bytes(broken)
    for starts in range(3):
        kubelet = start()
        aside = path.with_name(path.name + ".corrupt-1")
        assert aside.read_bytes() == broken
        events = kubelet.events.recent(EventKind.CHECKPOINT_SET_ASIDE)
        assert [event.message.count("\n") for event in events] == ([0] if not starts else [])
        done = f"; renamed to {aside}, starting without it"
        assert all(event.message.endswith(done) and event.is_warning for event in events)
        assert not any("move it away" in event.message for event in events)  # that has been done
        with hostile.RawPlugin(kubelet.plugin_dir / "p.sock"):
            assert hostile.register(kubelet.plugin_socket, "p.sock") is None
            kubelet.wait_for_resource(RESOURCE, 2)
            assert kubelet.admit(pod("b", 2, uid="uid-b")).admitted  # nothing is allocated any more
            kubelet.stop()
        checkpoint.verify(path)


@pytest.mark.parametrize("lost", [True, False])
def test_start_without_checkpoint_resets_node_capacity(start: Start, lost: bool) -> None:
    """So does one that is set aside (``ShouldResetExtendedResourceCapacity``)."""
    kubelet = start()
    with plugin(kubelet, 2):
        assert kubelet.node_status().capacity == {RESOURCE: 2}
        kubelet.stop()
    if lost:
        kubelet.checkpoint_path.unlink()
    else:
        kubelet.checkpoint_path.write_bytes(b"{")
    kubelet.start()
    assert kubelet.node_status().capacity == kubelet.node_status().allocatable == {RESOURCE: 0}


def test_every_invalid_file_is_set_aside_under_a_new_name(root: Path, start: Start) -> None:
    path, _ = one_pod(root, start)
    for number in range(1, 4):
        path.write_text(f"broken {number}")
        start().stop()
        assert path.with_name(f"{path.name}.corrupt-{number}").read_text() == f"broken {number}"


@pytest.mark.parametrize("kind", ["directory", "pipe", "full directory", "link", "loop"])
def test_non_regular_file_prevents_the_start(root: Path, start: Start, kind: str) -> None:
    """It was not read, so it may be valid: the kubelet does not start."""
    path, data = one_pod(root, start)
    path.rename(root / "mounted elsewhere")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(root / "not mounted")
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.mkdir()
        if kind == "full directory":
            (path / "mine").write_text("kept")
    before = os.lstat(path).st_ino
    with pytest.raises(StartError, match=f"^{path}: cannot be read: .*; check its") as caught:
        start()
    assert "\n" not in str(caught.value)
    assert os.lstat(path).st_ino == before
    assert not list(path.parent.glob("*.corrupt-*"))
    if kind == "full directory":
        (path / "mine").unlink()
    path.rmdir() if path.is_dir() else path.unlink()
    path.write_bytes(data)
    assert start().devices("uid-a") == {"main": {RESOURCE: ["d0"]}}


FAILURES = [errno.EIO, errno.EACCES, errno.EMFILE, errno.ENFILE, errno.ENOMEM]


@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.parametrize("step", ["open", "read"])
def test_unreadable_checkpoint_prevents_the_start(
    root: Path, start: Start, monkeypatch: pytest.MonkeyPatch, step: str, code: int
) -> None:
    """Nothing is lost. Errors are injected, because root can read every file."""
    path, data = one_pod(root, start)
    with monkeypatch.context() as patch:
        fail(patch, step, code, times=10**6)
        with pytest.raises(StartError, match=f"^{path}: cannot be read: {os.strerror(code)}; "):
            start()
    assert path.read_bytes() == data
    assert not list(path.parent.glob("*.corrupt-*"))
    assert start().devices("uid-a") == {"main": {RESOURCE: ["d0"]}}


@pytest.mark.parametrize("step", ["open", "read"])
def test_failed_read_is_retried(
    root: Path, start: Start, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    one_pod(root, start)
    with monkeypatch.context() as patch:
        fail(patch, step, errno.EMFILE, times=1)
        kubelet = start()
    assert kubelet.devices("uid-a") == {"main": {RESOURCE: ["d0"]}}


def test_quirk_q21_starts_with_an_unreadable_checkpoint(
    root: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = one_pod(root, start)
    with monkeypatch.context() as patch:
        fail(patch, "read", errno.EIO, times=10**6)
        kubelet = start(attrs.evolve(PATIENT, quirks={"Q21"}))
    assert path.read_bytes() == data
    event = kubelet.wait_for_event(EventKind.CHECKPOINT_FAILED, after=0)
    assert event.message.endswith("; the file stays in place")
    assert not kubelet.manager.pods()


def test_huge_sparse_checkpoint_is_rejected_at_once(root: Path, start: Start) -> None:
    path, _ = one_pod(root, start)
    os.truncate(path, 1 << 30)
    with pytest.raises(StartError, match=f"{1 << 30} bytes; the limit is {checkpoint.MAX_SIZE}"):
        start()
    assert path.stat().st_size == 1 << 30


def test_start_removes_temporary_file_of_a_killed_writer(root: Path, start: Start) -> None:
    path, data = one_pod(root, start)
    leftover = path.with_name(f".{path.name}.tmp-1-0")
    leftover.write_bytes(data[:10])
    start()
    assert not leftover.exists()


def fail(patch: pytest.MonkeyPatch, step: str, code: int, times: int) -> None:
    """Fail the next ``times`` calls that read the checkpoint."""
    call = getattr(os, step)
    calls = itertools.count(1)

    def failing(target: object, *args: Any, **options: Any) -> Any:
        path = target if step == "open" else _name_of(target)
        if str(path).endswith(checkpoint.CHECKPOINT_NAME) and next(calls) <= times:
            raise OSError(code, os.strerror(code))
        return call(target, *args, **options)

    patch.setattr(os, step, failing)


def _name_of(descriptor: object) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def entry(uid: str, *ids: str, response: bytes | None = b"") -> PodDevicesEntry:
    return PodDevicesEntry(uid, "main", RESOURCE, {-1: ids}, response)


def test_inconsistent_checkpoint_affects_only_its_pods(root: Path, start: Start) -> None:
    """With a valid checksum the kubelet starts. It drops an entry with an unreadable response,
    and other pods are not affected."""
    entries = (
        entry("uid-a", "d0", response=b"\xff\xff not a message"),
        entry("uid-b", "d0"),
        entry("uid-c"),
        entry("uid-d", "gone", response=None),
        PodDevicesEntry("uid-e", "main", RESOURCE, None, None),
    )
    saved = Checkpoint(entries, {RESOURCE: None, "not a name": ("x",)})
    (root / "device-plugins").mkdir()
    (root / "device-plugins" / checkpoint.CHECKPOINT_NAME).write_bytes(checkpoint.dumps(saved))
    kubelet = start()
    with plugin(kubelet, 3):
        assert kubelet.admit(pod("a", uid="uid-a")).containers["main"].devices == {RESOURCE: ["d1"]}
        assert kubelet.admit(pod("b", uid="uid-b")).admitted
        kubelet.sources_ready()
        assert kubelet.admit(pod("f", uid="uid-f")).containers["main"].devices == {RESOURCE: ["d2"]}
        kubelet.terminate("uid-a")
        assert kubelet.admit(pod("g", uid="uid-g")).containers["main"].devices == {RESOURCE: ["d1"]}
        assert not kubelet.admit(pod("h", uid="uid-h")).admitted  # d0 is allocated to uid-b
        kubelet.terminate("uid-b")
        assert kubelet.admit(pod("h", uid="uid-h")).containers["main"].devices == {RESOURCE: ["d0"]}
        kubelet.manager.self_check()
    checkpoint.verify(kubelet.checkpoint_path)


# -- writing ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(root: Path) -> Iterator[Path]:
    """A file system with 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    at = root / "disk"
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=750", "tmpfs", at]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    yield at
    # gRPC closes server sockets on its own threads; until then the disk is in use.
    until = time.monotonic() + 10
    while (unmounted := subprocess.run(["umount", at], capture_output=True)).returncode:
        assert time.monotonic() < until, unmounted.stderr
        time.sleep(0.02)


@contextlib.contextmanager
def plugin(kubelet: MockKubelet, count: int = 4) -> Iterator[hostile.RawPlugin]:
    listed = hostile.lists(hostile.devices(*(f"d{i}" for i in range(count))))
    with hostile.RawPlugin(kubelet.plugin_dir / "p.sock", lists=listed) as raw:
        assert hostile.register(kubelet.plugin_socket, "p.sock") is None
        kubelet.wait_for_resource(RESOURCE, count)
        yield raw


def assert_fails_and_recovers(
    kubelet: MockKubelet, breaking: contextlib.AbstractContextManager[object], reason: str
) -> None:
    """Check that an admission without a write is rejected and changes nothing, then works."""
    assert kubelet.admit(pod("a", 2, uid="uid-a")).admitted
    # While the previous checkpoint is being freed, the disk is not full and cannot be remounted.
    assert residue.eventually(lambda: not residue.deleted(kubelet.plugin_dir))
    before = kubelet.checkpoint_path.read_bytes()
    with breaking:
        failed = kubelet.admit(pod("b", 2, uid="uid-b"))
        assert not failed.admitted
        assert failed.reason == "UnexpectedAdmissionError"
        assert reason in failed.message
        assert "it is unchanged" in failed.message
        assert "\n" not in failed.message
        assert kubelet.events.recent(EventKind.CHECKPOINT_FAILED)[-1].is_warning
        assert kubelet.checkpoint_path.read_bytes() == before
        assert kubelet.devices("uid-b") == {}
        assert kubelet.devices("uid-a") == {"main": {RESOURCE: ["d0", "d1"]}}
    assert not [p for p in kubelet.plugin_dir.iterdir() if ".tmp-" in p.name]
    again = kubelet.admit(pod("b", 2, uid="uid-b"))
    assert again.containers["main"].devices == {RESOURCE: ["d2", "d3"]}
    saved = checkpoint.load(kubelet.checkpoint_path)
    assert {each.pod_uid for each in saved.entries or ()} == {"uid-a", "uid-b"}
    kubelet.manager.self_check()


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    yield
    ballast.unlink()


def test_full_disk_rejects_pods(small_disk: Path, start: Start) -> None:
    kubelet = start(at=small_disk)
    with plugin(kubelet):
        assert_fails_and_recovers(kubelet, filled(small_disk), "the disk is full: free some space")


@contextlib.contextmanager
def read_only(disk: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    yield
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)


def test_read_only_disk_rejects_pods(small_disk: Path, start: Start) -> None:
    kubelet = start(at=small_disk)
    with plugin(kubelet):
        assert_fails_and_recovers(kubelet, read_only(small_disk), "the file system is read-only")


LIMITED = """
import resource, signal, sys
from contextlib import contextmanager
from devicemanager.kubelet.mock import MockKubelet
from tests.hostile.conftest import PATIENT
from tests.hostile.test_checkpoint_faults import assert_fails_and_recovers, plugin
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

@contextmanager
def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)

with MockKubelet(sys.argv[1], PATIENT) as kubelet, plugin(kubelet):
    assert_fails_and_recovers(kubelet, limited(), "size limit of this process")
"""


def test_file_size_limit_rejects_pods(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, root],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


def test_list_that_cannot_be_written_is_applied(small_disk: Path, start: Start) -> None:
    """Devices and health follow the plugin; the next successful write stores them."""
    kubelet = start(at=small_disk)
    with filled(small_disk), plugin(kubelet, 300):
        event = kubelet.wait_for_event(EventKind.CHECKPOINT_FAILED, after=0)
        assert "the disk is full" in event.message
        assert kubelet.allocatable() == {RESOURCE: 300}
        kubelet.stop()  # does not raise


def test_failing_writes_during_many_admissions(
    root: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third write fails while eight threads admit pods.

    Exactly the admitted pods have devices, in memory and on disk.
    """
    kubelet = start()
    write = checkpoint.FileStore.write
    counter = iter(range(10**6))

    def sometimes(store: checkpoint.FileStore, data: bytes) -> None:
        if next(counter) % 3 == 0:
            raise checkpoint.CheckpointWriteError(str(store.path), "the disk is full")
        write(store, data)

    with plugin(kubelet, 100):
        monkeypatch.setattr(checkpoint.FileStore, "write", sometimes)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: kubelet.admit(pod(f"p{i}")), range(80)))
        monkeypatch.undo()
        assert kubelet.admit(pod("last")).admitted
        admitted = {answer.pod.uid for answer in answers if answer.admitted}
        assert 0 < len(admitted) < 80
        saved = checkpoint.load(kubelet.checkpoint_path)
        on_disk = {each.pod_uid: dict(each.device_ids or {}) for each in saved.entries or ()}
        last = on_disk.keys() - admitted
        assert len(last) == 1
        for uid in admitted:
            assert kubelet.devices(uid)["main"][RESOURCE] == list(on_disk[uid][-1])
        ids = [id_ for nodes in on_disk.values() for each in nodes.values() for id_ in each or ()]
        assert len(ids) == len(set(ids))
        kubelet.manager.self_check()
