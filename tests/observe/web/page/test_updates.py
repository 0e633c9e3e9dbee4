"""One look for all pages, and each message made once."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from devicemanager.events.stream import Event, EventKind
from devicemanager.observe.web.page.updates import Updates

AT = ("t", "")


class FakeNode:
    """A document that a test writes, and how often it was looked at."""

    def __init__(self):
        self.row = 0
        self.looks = 0
        self.happened = []
        self.callbacks = []
        self.failures = []
        self.broken = False

    def refresh(self):
        self.looks += 1
        if self.broken:
            raise RuntimeError("broken")
        return {AT: {"row": self.row, "same": "same"}}

    def events(self):
        return tuple(self.happened)

    def subscribe(self, callback):
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def failed(self, error):
        self.failures.append(error)

    def change(self, row, times=1):
        self.row = row
        for _ in range(times):
            number = len(self.happened) + 1
            self.happened.append(Event(0.0, EventKind.DEVICES_UPDATED, str(row), number=number))
        for callback in list(self.callbacks):
            callback()


def read(message):
    """The kind, the id and the data of each server-sent event in it."""
    found = []
    for block in message.decode().strip("\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields["event"], fields["id"], json.loads(fields["data"])))
    return found


def rows(data):
    return [change[2] for change in data["changes"]]


def played(play):
    """Run ``play(node, updates)`` on a loop, with a deadline."""

    async def all_of_it():
        node = FakeNode()
        updates = Updates(node, pause=0.0)
        try:
            async with asyncio.timeout(30):
                return await play(node, updates)
        finally:
            updates.close()

    return asyncio.run(all_of_it())


def test_first_comes_the_whole_and_then_what_changes():
    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as messages:
            [(kind, _, data)] = read(await anext(messages))
            assert (kind, rows(data)) == ("whole", [[["row", 0], ["same", "same"]]])
            node.change(1)
            [(kind, _, data)] = read(await anext(messages))
            assert (kind, rows(data)) == ("delta", [[["row", 1]]])
            assert [event["message"] for event in data["events"]] == ["1"]

    played(play)


def test_a_page_that_was_away_is_told_what_it_missed():
    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as stays:
            [(_, seen, _)] = read(await anext(stays))
            for row in (1, 2):
                node.change(row)
                await anext(stays)
            async with contextlib.aclosing(updates.messages(seen)) as back:
                told = read(await anext(back))
            assert [(kind, rows(data)) for kind, _, data in told] == [
                ("delta", [[["row", 1]]]),
                ("delta", [[["row", 2]]]),
            ]

    played(play)


@pytest.mark.parametrize("since", ["", "nonsense", "00000000-1", "-", "x-99999999999999999999"])
def test_a_page_of_another_server_gets_the_whole(since):
    async def play(node, updates):
        async with contextlib.aclosing(updates.messages(since)) as messages:
            [(kind, _, _)] = read(await anext(messages))
            assert kind == "whole"

    played(play)


def test_who_was_away_for_too_long_gets_the_whole(monkeypatch):
    monkeypatch.setattr("devicemanager.observe.web.page.frames._MOST", 2)

    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as stays:
            [(_, seen, _)] = read(await anext(stays))
            for row in range(1, 5):
                node.change(row)
                await anext(stays)
            async with contextlib.aclosing(updates.messages(seen)) as back:
                [(kind, _, data)] = read(await anext(back))
            assert (kind, rows(data)[0][0]) == ("whole", ["row", 4])

    played(play)


def test_a_hundred_pages_cost_one_look_and_one_message():
    async def play(node, updates):
        async with contextlib.AsyncExitStack() as stack:
            pages = [updates.messages() for _ in range(100)]
            for page in pages:
                stack.push_async_callback(page.aclose)
            firsts = await asyncio.gather(*(anext(page) for page in pages))
            assert len({id(first) for first in firsts}) == 1
            looks = node.looks
            node.change(1, times=500)
            nexts = await asyncio.gather(*(anext(page) for page in pages))
            assert len({id(one) for one in nexts}) == 1
            assert node.looks - looks <= 2  # a burst is one look, or it came into two
            assert len(read(nexts[0])[-1][2]["events"]) == 200

    played(play)


def test_nobody_is_looking_while_no_page_is_open():
    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as messages:
            await anext(messages)
            assert len(node.callbacks) == 1
        while node.callbacks:  # until the task that looks has ended
            await asyncio.sleep(0)
        looks = node.looks
        node.change(1)
        await asyncio.sleep(0)
        assert node.looks == looks
        async with contextlib.aclosing(updates.messages()) as messages:
            assert rows(read(await anext(messages))[0][2])[0][0] == ["row", 1]

    played(play)


def test_a_look_that_fails_is_told_once_and_tried_again(monkeypatch):
    monkeypatch.setattr("devicemanager.observe.web.page.updates._LONGEST_PAUSE", 0.0)

    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as messages:
            await anext(messages)
            node.broken, looks = True, node.looks
            while node.looks < looks + 3:
                node.change(1)
                await asyncio.sleep(0.001)
            node.broken = False
            node.change(2)
            assert rows(read(await anext(messages))[0][2]) == [[["row", 2]]]
            assert len(node.failures) == 1

    played(play)


def test_the_end_of_the_server_ends_every_stream():
    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as messages:
            await anext(messages)
            updates.close()
            assert await anext(messages, None) is None

    played(play)


def test_half_a_surrogate_pair_breaks_no_message():
    async def play(node, updates):
        node.row = "\ud800<"
        async with contextlib.aclosing(updates.messages()) as messages:
            [(_, _, data)] = read(await anext(messages))
            assert rows(data)[0][0] == ["row", "\ud800<"]

    played(play)


def test_silence_is_broken_by_a_comment(monkeypatch):
    monkeypatch.setattr("devicemanager.observe.web.page.updates.KEEP_ALIVE", 0.0)

    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as messages:
            async for message in messages:
                if message == b": \n\n":
                    return

    played(play)
