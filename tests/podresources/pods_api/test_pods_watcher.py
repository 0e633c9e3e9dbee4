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
    watcher = Watcher()
    events = [b"%d" % number for number in range(100)]
    assert all(watcher.put(EventType.MODIFIED, event) for event in events)
    assert not watcher.put(EventType.MODIFIED, b"one too many")
    assert [pod for _, pod in watcher] == events


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
