"""The bounded queue of a watch."""

from __future__ import annotations

import threading

from podresources.pods_api import EventType, Watcher


def test_events_come_in_order_until_the_queue_is_closed() -> None:
    watcher = Watcher()
    assert watcher.put(EventType.ADDED, b"1") and watcher.put(EventType.DELETED, b"2")
    watcher.close()
    assert watcher.put(EventType.ADDED, b"3")  # dropped, but the queue was not full
    assert list(watcher) == [(EventType.ADDED, b"1"), (EventType.DELETED, b"2")]
    assert list(watcher) == []


def test_queue_holds_a_hundred_events_and_is_closed_by_the_next() -> None:
    now = [0.0]
    watcher = Watcher(lambda: now[0])
    now[0] = 5.0
    events = [b"%d" % number for number in range(100)]
    assert all(watcher.put(EventType.MODIFIED, event) for event in events)
    now[0] = 6.0
    assert not watcher.put(EventType.MODIFIED, b"one too many")
    assert watcher.put(EventType.MODIFIED, b"nothing is waiting for this one")
    assert [pod for _, pod in watcher] == events


def test_reader_that_takes_events_can_be_behind_by_more() -> None:
    now = [0.0]
    watcher = Watcher(lambda: now[0])
    # After a long time without events.
    now[0] = 100.0
    assert all(watcher.put(EventType.MODIFIED, b"") for _ in range(500))
    now[0] = 100.875
    next(iter(watcher))
    now[0] = 101.75
    assert watcher.put(EventType.MODIFIED, b"")
    now[0] = 101.875
    assert not watcher.put(EventType.MODIFIED, b"")


def test_large_events_are_bounded_by_32_mib() -> None:
    watcher = Watcher(lambda: 0.0)
    large = bytes(1 << 18)
    assert all(watcher.put(EventType.MODIFIED, large) for _ in range(128))
    next(iter(watcher))
    assert watcher.put(EventType.MODIFIED, large)
    assert not watcher.put(EventType.MODIFIED, b"")


def test_reader_waits_for_events_and_for_the_end() -> None:
    watcher = Watcher()
    read: list[bytes] = []
    first = threading.Event()

    def reader() -> None:
        for _, pod in watcher:
            read.append(pod)
            first.set()

    thread = threading.Thread(target=reader, daemon=True)
    thread.start()
    watcher.put(EventType.ADDED, b"1")
    assert first.wait(10)
    watcher.close()
    thread.join(10)
    assert not thread.is_alive() and read == [b"1"]
