"""Feeds encode each entry once, and send large ones one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import attrs
import pytest

from devicemanager.control.feed import Feed, Source


@attrs.frozen
class Thing:
    number: int
    size: int = 0


def source(*sizes: int) -> tuple[Source[Thing], list[int]]:
    things = [Thing(number, size) for number, size in enumerate(sizes, 1)]
    made: list[int] = []

    def line(thing: Thing) -> bytes:
        made.append(thing.number)
        return b"%d\n" % thing.number

    return (
        Source(
            lambda: len(things),
            lambda number: things[number:],
            lambda _: lambda: None,
            line,
            lambda thing: thing.size,
            lambda count, last: b"",
        ),
        made,
    )


async def read(feed: Feed[Thing]) -> list[bytes]:
    return [text async for text in feed.lines(0, follow=False, wanted=lambda batch: batch)]


def test_large_lines_come_one_by_one():
    async def texts(*sizes: int) -> list[bytes]:
        return await read(Feed(source(*sizes)[0]))

    assert asyncio.run(texts(1, 1, 1)) == [b"1\n2\n3\n"]
    assert asyncio.run(texts(2 << 20, 2 << 20, 1)) == [b"1\n", b"2\n", b"3\n"]
    assert asyncio.run(texts(1, 1, 2 << 20)) == [b"1\n2\n", b"3\n"]


def test_concurrent_readers_share_encoded_lines():
    things, made = source(*[0] * 5)

    async def together() -> list[list[bytes]]:
        feed = Feed(things)
        return await asyncio.gather(*(read(feed) for _ in range(4)))

    assert asyncio.run(together()) == [[b"1\n2\n3\n4\n5\n"]] * 4
    assert made == [1, 2, 3, 4, 5]


@attrs.define
class Live:
    """A source whose entries are their kinds."""

    entries: list[Entry] = attrs.field(factory=list)
    reads: Counter[int] = attrs.field(factory=Counter)
    callback: Callable[[Entry], None] | None = None

    def add(self, *kinds: str) -> None:
        for kind in kinds:
            self.entries.append(Entry(len(self.entries) + 1, kind))
            if self.callback is not None:
                self.callback(self.entries[-1])

    def later(self, number: int) -> list[Entry]:
        self.reads[number] += 1
        return self.entries[number:]

    def subscribe(self, callback):
        self.callback = callback
        return lambda: setattr(self, "callback", None)

    def source(self):
        return Source(
            lambda: len(self.entries),
            self.later,
            self.subscribe,
            lambda entry: f"{entry.kind}\n".encode(),
            lambda entry: 0,
            lambda count, last: b"",
            lambda entry: entry.kind,
        )


@attrs.frozen
class Entry:
    number: int
    kind: str


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_waits_are_woken_only_by_entries_of_their_kinds():
    live, asked = Live(), []

    async def waits():
        feed = Feed(live.source())

        def wanted(entry):
            asked.append(entry.number)
            return entry.number == 4

        waits = [asyncio.create_task(feed.entry(0, 600, frozenset("b"), wanted)) for _ in range(3)]
        other = asyncio.create_task(feed.entry(0, 600))
        await turns()
        live.add("a", "b", "a")
        await turns()
        assert [wait.done() for wait in waits] == [False] * 3
        assert other.done()
        live.add("b")
        await turns()
        assert [wait.done() for wait in waits] == [True] * 3
        assert asked == [2] * 3 + [4] * 3
        assert live.callback is None and feed._waiters == {}

    asyncio.run(waits())


@pytest.mark.parametrize("kind", ["", "a"])
def test_wait_sees_entries_from_before_it(kind):
    live = Live()
    live.add("a")

    async def wait():
        kinds = frozenset(filter(None, [kind]))
        await asyncio.wait_for(Feed(live.source()).entry(0, 600, kinds), 20)

    asyncio.run(wait())


def test_many_streams_get_entries_in_batches(monkeypatch):
    """All readers share one read and one text of a batch."""
    monkeypatch.setattr("devicemanager.control.feed._SENDING_SECONDS", 600.0)
    monkeypatch.setattr("devicemanager.control.feed._LONGEST_PAUSE", 600.0)
    live = Live()

    async def streams():
        feed, texts = Feed(live.source()), [[] for _ in range(5)]

        async def follow(found):
            async for text in feed.lines(0, follow=True, wanted=lambda batch: batch):
                found.append(text)

        readers = [asyncio.create_task(follow(found)) for found in texts]
        await turns()
        feed._woken_at = feed._loop.time() - 6000
        live.add("first")
        while not all(texts):
            await asyncio.sleep(0.01)
        assert live.reads[0] == 1
        for number in range(10):
            live.add(f"{number}")
            await turns()
        assert texts == [[b"first\n"]] * 5
        assert live.reads[1] == 0
        # The pause is over.
        feed._wake_streams()
        while not all(len(found) == 2 for found in texts):
            await asyncio.sleep(0.01)
        assert live.reads[1] == 1
        assert {found[1] for found in texts} == {b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"}
        assert len({id(found[1]) for found in texts}) == 1
        feed.close()
        await asyncio.wait_for(asyncio.gather(*readers), 20)

    asyncio.run(streams())
