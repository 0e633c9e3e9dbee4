"""Directory watches, with new observers and with observers reused from other watches."""

import logging
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from watchdog import events
from watchdog.observers.inotify import InotifyObserver
from watchdog.utils import BaseThread

from devicemanager.io import watch as io_watch
from devicemanager.io.watch import Change, ChangeKind, DirectoryWatch

PATIENCE = 15.0

pytestmark = pytest.mark.usefixtures("no_idle_observers")


class Changes:
    """Queue of the changes that a watch has reported."""

    def __init__(self) -> None:
        self._seen: queue.SimpleQueue[Change] = queue.SimpleQueue()
        self.add = self._seen.put

    def until(self, expected: Change) -> list[Change]:
        """Wait for a change; return those reported before it."""
        seen = []
        while (change := self._seen.get(timeout=PATIENCE)) != expected:
            seen.append(change)
        return seen


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture(params=["new", "reused"])
def observer_before(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Run the test with a new observer, and with one that has watched another directory."""
    if request.param == "new":
        yield
        return
    with io_watch.observers.enabled():
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        watch = DirectoryWatch(elsewhere, lambda _: None)
        watch.start()
        (elsewhere / "a").touch()
        watch.stop()
        yield


with_both_observers = pytest.mark.usefixtures("observer_before")


def created(name: str) -> Change:
    return Change(ChangeKind.CREATED, name)


@with_both_observers
def test_each_kind_of_change_is_reported_with_names(tmp_path: Path, changes: Changes) -> None:
    watched, outside = tmp_path / "watched", tmp_path / "outside"
    watched.mkdir()
    outside.mkdir()
    watch = DirectoryWatch(watched, changes.add)
    watch.start()
    try:
        (watched / "a").write_text("1")
        changes.until(created("a"))
        changes.until(Change(ChangeKind.CLOSED, "a"))
        (watched / "a").rename(watched / "b")
        changes.until(Change(ChangeKind.MOVED, "a", "b"))
        (watched / "b").rename(outside / "b")
        changes.until(Change(ChangeKind.MOVED, "b", ""))
        (outside / "b").rename(watched / "c")
        changes.until(Change(ChangeKind.MOVED, "", "c"))
        (watched / "c").unlink()
        changes.until(Change(ChangeKind.DELETED, "c"))
    finally:
        watch.stop()


@with_both_observers
def test_other_kinds_and_directories_are_not_reported(tmp_path: Path, changes: Changes) -> None:
    watch = DirectoryWatch(tmp_path, changes.add, [ChangeKind.CREATED])
    watch.start()
    try:
        (tmp_path / "below").mkdir()
        (tmp_path / "below" / "deep").touch()
        (tmp_path / "first").write_text("written, closed")
        (tmp_path / "last").touch()
        assert changes.until(created("last")) == [created("first")]
    finally:
        watch.stop()


def test_link_to_directory_is_followed(tmp_path: Path, changes: Changes) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    watch = DirectoryWatch(tmp_path / "link", changes.add)
    watch.start()
    try:
        assert not watch.ensure()
        (tmp_path / "real" / "a").touch()
        changes.until(created("a"))
    finally:
        watch.stop()


@with_both_observers
def test_ensure_follows_recreated_directory(tmp_path: Path, changes: Changes) -> None:
    """Covers a reused inode: the new directory gets it if no other file was created."""
    plugins = tmp_path / "plugins"
    watch = DirectoryWatch(plugins, changes.add)
    try:
        assert not watch.ensure()
        for _ in range(3):
            plugins.mkdir()
            assert watch.ensure()
            assert not watch.ensure()
            (plugins / "kubelet.sock").touch()
            changes.until(created("kubelet.sock"))
            (plugins / "kubelet.sock").unlink()
            plugins.rmdir()
            changes.until(Change(ChangeKind.DELETED, ""))
    finally:
        watch.stop()


@with_both_observers
def test_no_change_is_reported_after_stop(tmp_path: Path, changes: Changes) -> None:
    watch = DirectoryWatch(tmp_path, changes.add)
    assert watch.ensure()
    watch.stop()
    watch.stop()
    (tmp_path / "unseen").touch()
    assert watch.ensure()
    (tmp_path / "seen").touch()
    try:
        assert changes.until(created("seen")) == []
    finally:
        watch.stop()


@with_both_observers
def test_start_raises_reason(tmp_path: Path, changes: Changes) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryWatch(tmp_path / "absent", changes.add).start()


def test_exception_in_handler_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    again = threading.Event()

    def handle(change: Change) -> None:
        if change.name == "good":
            again.set()
        raise ValueError(f"cannot handle {change.name}")

    watch = DirectoryWatch(tmp_path, handle, [ChangeKind.CREATED])
    watch.start()
    (tmp_path / "bad").touch()
    (tmp_path / "good").touch()
    assert again.wait(PATIENCE)
    watch.stop()
    assert "cannot handle bad" in caplog.text


@pytest.mark.parametrize("where", ["__init__", "start"])
def test_ensure_logs_missing_inotify_once(
    tmp_path: Path,
    changes: Changes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    """Depending on its version, watchdog creates the inotify instance in either place."""

    def exhausted(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(InotifyObserver, where, exhausted)
    watch = DirectoryWatch(tmp_path, changes.add)
    assert not watch.ensure()
    assert not watch.ensure()
    assert caplog.text.count("polling it instead") == 1
    with pytest.raises(OSError, match=r"^\[Errno 24\] Too many open files"):
        watch.start()
    monkeypatch.undo()
    assert watch.ensure()
    watch.stop()


@with_both_observers
def test_forked_child_does_not_end_its_parents_watch(tmp_path: Path, changes: Changes) -> None:
    watch = DirectoryWatch(tmp_path, changes.add)
    watch.start()
    try:
        child = os.fork()
        if not child:
            # The child shares the parent's inotify descriptor, but none of its threads.
            watch.stop()
            watch.stop()
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        (tmp_path / "a").touch()
        changes.until(created("a"))
    finally:
        watch.stop()


@with_both_observers
def test_forked_child_can_watch(tmp_path: Path, changes: Changes) -> None:
    watch = DirectoryWatch(tmp_path, changes.add)
    watch.start()
    try:
        child = os.fork()
        if not child:
            if watch.ensure():
                (tmp_path / "a").touch()
                changes.until(created("a"))
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0) == (child, 0)
    finally:
        watch.stop()


@with_both_observers
def test_attributes_have_an_event_of_their_own_since_watchdog_7(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class FileAttribEvent(events.FileSystemEvent):
        pass

    attributes = {ChangeKind.ATTRIBUTES}
    monkeypatch.setattr(events, "FileAttribEvent", FileAttribEvent, raising=False)
    assert io_watch._filter(attributes) == [events.DirDeletedEvent, FileAttribEvent]
    monkeypatch.delattr(events, "FileAttribEvent")
    assert io_watch._filter(attributes) == [events.DirDeletedEvent, events.FileModifiedEvent]


def test_stop_during_events_logs_nothing(
    tmp_path: Path, changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    """watchdog logs an error if an event arrives while it stops; the watch suppresses it."""
    done = threading.Event()

    def disturb() -> None:
        while not done.is_set():
            (tmp_path / "a").touch()
            (tmp_path / "a").unlink()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        for _ in range(30):
            watch = DirectoryWatch(tmp_path, changes.add)
            watch.start()
            changes.until(created("a"))
            watch.stop()
    finally:
        done.set()
        disturber.join()
    assert [record.getMessage() for record in caplog.records] == []
    # Errors of an emitter that is not stopping are still logged.
    logging.getLogger("watchdog.observers.inotify").error("queue_events() called when idle")
    assert "called when idle" in caplog.text


def watching() -> set[threading.Thread]:
    """Return the running threads of watchdog."""
    return {each for each in threading.enumerate() if isinstance(each, BaseThread)}


def watches(places: list[Path], changes: Changes) -> list[DirectoryWatch]:
    """Start a watch on each directory."""
    started = [DirectoryWatch(place, changes.add) for place in places]
    for watch in started:
        watch.start()
    return started


def test_pool_reuses_up_to_two_idle_observers(tmp_path: Path, changes: Changes) -> None:
    places = [tmp_path / str(number) for number in range(3)]
    for place in places:
        place.mkdir()
    before = watching()
    with io_watch.observers.enabled():
        with io_watch.observers.enabled():
            for watch in watches(places, changes):
                watch.stop()
        idle = watching() - before
        pooled = {each for each in idle if isinstance(each, InotifyObserver)}
        assert len(pooled) == 2
        again = watches(places[:2], changes)
        assert {each for each in watching() - before if isinstance(each, InotifyObserver)} == pooled
        (places[1] / "a").touch()
        changes.until(created("a"))
        for watch in again:
            watch.stop()
    assert watching() <= before


def test_stopped_watch_gets_no_changes_of_its_observers_next_watch(
    tmp_path: Path, changes: Changes
) -> None:
    """Covers the same directory, with changes immediately before and after the stop."""
    with io_watch.observers.enabled():
        for number in range(30):
            changes_before: list[Change] = []
            before = DirectoryWatch(tmp_path, changes_before.append)
            before.start()
            (tmp_path / f"before-{number}").touch()
            before.stop()
            until_then = len(changes_before)
            (after,) = watches([tmp_path], changes)
            (tmp_path / f"after-{number}").touch()
            changes.until(created(f"after-{number}"))
            after.stop()
            assert len(changes_before) == until_then


def test_failed_start_leaves_pooled_observer_usable(tmp_path: Path, changes: Changes) -> None:
    before = watching()
    with io_watch.observers.enabled():
        (watch,) = watches([tmp_path], changes)
        watch.stop()
        with pytest.raises(FileNotFoundError):
            DirectoryWatch(tmp_path / "absent", changes.add).start()
        (watch,) = watches([tmp_path], changes)
        (tmp_path / "a").touch()
        changes.until(created("a"))
        watch.stop()
        assert len([each for each in watching() - before if isinstance(each, InotifyObserver)]) == 1


def test_observers_end_if_pooling_is_disabled(tmp_path: Path, changes: Changes) -> None:
    before = watching()
    (watch,) = watches([tmp_path], changes)
    watch.stop()
    assert watching() <= before
