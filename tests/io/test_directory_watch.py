"""Start and stop of a FollowedDirectory; tests of claims and static pods cover its contents."""

import queue
import threading

import pytest

from devicemanager.claims.directory import ClaimsDirectory
from devicemanager.claims.errors import ClaimsError
from devicemanager.core.errors import DeviceManagerError
from devicemanager.io.directory_watch import (
    FollowedDirectory,
    check_directory,
    is_complete_at_once,
    is_pivot,
)
from devicemanager.io.watch import Change, ChangeKind
from devicemanager.kubelet.pods.static_pods import ManifestDirectoryError, StaticPods


class Followed(FollowedDirectory):
    what = "test directory"
    error = DeviceManagerError

    def __init__(self, directory):
        self.lines = queue.SimpleQueue()
        super().__init__(directory, self.lines.put)

    def _scan(self):
        pass

    def _react(self, change):
        raise KeyError(change.name)


def test_exception_in_handler_does_not_end_watch(tmp_path):
    with Followed(tmp_path) as directory:
        for name in "ab":
            (tmp_path / name).touch()
            # One touch causes several changes, so the line can come more than once.
            while directory.lines.get(timeout=20) != f"test directory {tmp_path}: {name!r}":
                pass


def test_stop_waits_for_the_change_that_is_being_handled(tmp_path, monkeypatch):
    handling, resumed = threading.Event(), threading.Event()
    directory = Followed(tmp_path)
    join = directory._worker.join

    def react(change):
        handling.set()
        assert resumed.wait(20)

    def resume_and_join(seconds):
        # Not longer: a handler that hangs must not block the end of the program.
        assert seconds == 0.5
        resumed.set()
        join(20)

    monkeypatch.setattr(directory, "_react", react)
    monkeypatch.setattr(directory._worker, "join", resume_and_join)
    with directory:
        (tmp_path / "a").touch()
        assert handling.wait(20)
    assert resumed.is_set() and not directory._worker.is_alive()


@pytest.mark.parametrize(
    ("create", "error", "what"),
    [
        (Followed, DeviceManagerError, "test directory"),
        (lambda path: ClaimsDirectory(path, None, print), ClaimsError, "claims directory"),
        (lambda path: StaticPods(path, None, print), ManifestDirectoryError, "manifest directory"),
    ],
)
def test_failed_first_scan_ends_watch(tmp_path, monkeypatch, create, error, what):
    directory = create(tmp_path)

    def scan(failure):
        def fails():
            assert directory._watch._observer is not None
            raise failure

        return fails

    monkeypatch.setattr(directory, "_scan", scan(OSError(5, "Input/output error")))
    with pytest.raises(error) as raised:
        directory.start()
    assert str(raised.value) == f"{what} {tmp_path} cannot be watched: Input/output error"
    assert directory._watch._observer is None
    monkeypatch.setattr(directory, "_scan", scan(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        directory.start()
    assert directory._watch._observer is None


def test_only_a_directory_is_followed(tmp_path):
    (tmp_path / "file").touch()
    for name, why in (("file", "Not a directory"), ("none", "No such file or directory")):
        with pytest.raises(DeviceManagerError) as raised:
            Followed(tmp_path / name).start()
        assert str(raised.value) == f"test directory {tmp_path / name}: {why}"


def test_failed_thread_start_ends_watch(tmp_path, monkeypatch):
    directory = Followed(tmp_path)
    start = threading.Thread.start

    def fail_for_worker(self):
        if self is directory._worker:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", fail_for_worker)
    with pytest.raises(RuntimeError, match=r"^can't start new thread"):
        directory.start()
    assert directory._watch._observer is None
    directory.stop()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Change(ChangeKind.MOVED, "..data_tmp", "..data"), True),
        (Change(ChangeKind.CREATED, "..data"), True),
        (Change(ChangeKind.CREATED, "data"), False),
        (Change(ChangeKind.DELETED, ""), False),
    ],
)
def test_update_of_mounted_configmap_replaces_data(change, expected):
    assert is_pivot(change) is expected


def test_links_are_complete_at_once(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("absent")
    assert [is_complete_at_once(tmp_path / name) for name in ("file", "link", "absent")] == [
        False,
        True,
        False,
    ]
    (tmp_path / "hard").hardlink_to(tmp_path / "file")
    assert is_complete_at_once(tmp_path / "hard")
    assert is_complete_at_once(tmp_path / "file")


def test_followed_path_must_be_a_directory(tmp_path):
    check_directory(tmp_path, "x", ValueError)
    (tmp_path / "file").touch()
    with pytest.raises(KeyError, match=f"claims directory {tmp_path}/file: Not a directory"):
        check_directory(tmp_path / "file", "claims directory", KeyError)
    with pytest.raises(
        KeyError, match=f"claims directory {tmp_path}/none: No such file or directory"
    ):
        check_directory(tmp_path / "none", "claims directory", KeyError)


def test_changes_have_the_names_of_inotify():
    assert [kind.value for kind in ChangeKind] == [
        "created", "modified", "closed", "moved", "deleted", "attrib",
    ]  # fmt: skip
    assert Change(ChangeKind.CREATED, "a").new_name == ""
