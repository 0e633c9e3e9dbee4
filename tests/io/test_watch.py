"""The directory watch: what it reports, and that it follows the directory, however often made;
the same with observers that other watches had before."""

import logging
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from watchdog.observers.inotify import InotifyObserver
from watchdog.utils import BaseThread

from devicemanager.io import watch as io_watch
from devicemanager.io.watch import Change, ChangeKind, DirectoryWatch

PATIENCE = 15.0

pytestmark = pytest.mark.usefixtures("no_idle_observers")


class Changes:
    """What a watch reports, waited for."""

    def __init__(self) -> None:
        self._seen: queue.SimpleQueue[Change] = queue.SimpleQueue()
        self.add = self._seen.put

    def until(self, wanted: Change) -> list[Change]:
        """What was reported before ``wanted``."""
        seen = []
        while (change := self._seen.get(timeout=PATIENCE)) != wanted:
            seen.append(change)
        return seen


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture(params=["new", "kept"])
def observer_before(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """With observers made anew, and with one that has watched another directory."""
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


twice = pytest.mark.usefixtures("observer_before")


def created(name: str) -> Change:
    return Change(ChangeKind.CREATED, name)


@twice
def test_every_kind_of_change_is_reported_with_its_names(tmp_path: Path, changes: Changes) -> None:
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


@twice
def test_only_the_kinds_asked_for_and_no_directories(tmp_path: Path, changes: Changes) -> None:
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


def test_a_link_to_a_directory_is_followed(tmp_path: Path, changes: Changes) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    watch = DirectoryWatch(tmp_path / "link", changes.add)
    watch.start()
    try:
        (tmp_path / "real" / "a").touch()
        changes.until(created("a"))
    finally:
        watch.stop()


@twice
def test_the_directory_itself_may_go_and_come(tmp_path: Path, changes: Changes) -> None:
    """Also under the same inode number, as it is when nothing else was made meanwhile."""
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


@twice
def test_after_a_stop_nothing_is_reported(tmp_path: Path, changes: Changes) -> None:
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


@twice
def test_start_says_what_is_wrong(tmp_path: Path, changes: Changes) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryWatch(tmp_path / "absent", changes.add).start()


def test_a_handler_that_raises_is_logged_and_called_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
def test_without_inotify_ensure_says_so_once(
    tmp_path: Path,
    changes: Changes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    """Releases of watchdog differ in where they need the instance."""

    def exhausted(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(InotifyObserver, where, exhausted)
    watch = DirectoryWatch(tmp_path, changes.add)
    assert not watch.ensure()
    assert not watch.ensure()
    assert caplog.text.count("polling it instead") == 1
    with pytest.raises(OSError, match="Too many open files"):
        watch.start()
    monkeypatch.undo()
    assert watch.ensure()
    watch.stop()


@twice
def test_a_forked_child_leaves_its_parents_watch_alone(tmp_path: Path, changes: Changes) -> None:
    watch = DirectoryWatch(tmp_path, changes.add)
    watch.start()
    try:
        child = os.fork()
        if not child:
            watch.stop()
            watch.stop()
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        (tmp_path / "a").touch()
        changes.until(created("a"))
    finally:
        watch.stop()


@twice
def test_a_forked_child_may_watch_by_itself(tmp_path: Path, changes: Changes) -> None:
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


@twice
def test_a_stop_beside_events_is_silent(
    tmp_path: Path, changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    """watchdog logs an error when an event comes while it is told to stop."""
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
    # What an emitter that still runs has to say is heard.
    logging.getLogger("watchdog.observers.inotify").error("queue_events() called when odd")
    assert "called when odd" in caplog.text


def watching() -> set[threading.Thread]:
    """watchdog's threads that run now."""
    return {each for each in threading.enumerate() if isinstance(each, BaseThread)}


def watches(places: list[Path], changes: Changes) -> list[DirectoryWatch]:
    """A watch of each place, started."""
    started = [DirectoryWatch(place, changes.add) for place in places]
    for watch in started:
        watch.start()
    return started


def test_two_idle_observers_are_kept_and_used_again(tmp_path: Path, changes: Changes) -> None:
    places = [tmp_path / str(number) for number in range(3)]
    for place in places:
        place.mkdir()
    before = watching()
    with io_watch.observers.enabled():
        with io_watch.observers.enabled():
            for watch in watches(places, changes):
                watch.stop()
        idle = watching() - before
        kept = {each for each in idle if isinstance(each, InotifyObserver)}
        assert len(kept) == 2
        again = watches(places[:2], changes)
        assert {each for each in watching() - before if isinstance(each, InotifyObserver)} == kept
        (places[1] / "a").touch()
        changes.until(created("a"))
        for watch in again:
            watch.stop()
    assert watching() <= before


def test_a_stopped_watch_hears_nothing_of_the_next_on_its_observer(
    tmp_path: Path, changes: Changes
) -> None:
    """Not even in the same directory, and beside events that come without a pause."""
    with io_watch.observers.enabled():
        for number in range(30):
            heard: list[Change] = []
            before = DirectoryWatch(tmp_path, heard.append)
            before.start()
            (tmp_path / f"before-{number}").touch()
            before.stop()
            until_then = len(heard)
            (after,) = watches([tmp_path], changes)
            (tmp_path / f"after-{number}").touch()
            changes.until(created(f"after-{number}"))
            after.stop()
            assert len(heard) == until_then


def test_a_failed_start_leaves_a_kept_observer_as_it_was(tmp_path: Path, changes: Changes) -> None:
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


def test_nothing_is_kept_unless_somebody_asks(tmp_path: Path, changes: Changes) -> None:
    before = watching()
    (watch,) = watches([tmp_path], changes)
    watch.stop()
    assert watching() <= before
