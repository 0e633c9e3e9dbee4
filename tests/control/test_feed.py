"""Feeds encode each entry once, and send large ones one by one."""

import asyncio

import attrs

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
