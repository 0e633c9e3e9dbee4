"""All pages share each reading of the node and each message."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from devicemanager.events.stream import Event, EventKind
from devicemanager.observe.web.page.updates import Updates

AT = ("t", "")


class FakeNode:
    """A node with one row that tests change; counts how often it was read."""

    def __init__(self):
        self.row = 0
        self.reads = 0
        self.happened = []
        self.callbacks = []
        self.failures = []
        self.broken = False

    def refresh(self):
        self.reads += 1
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
    """Return kind, ID and data of each server-sent event in a message."""
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


def test_stream_starts_with_whole_document_then_deltas():
    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as messages:
            [(kind, _, data)] = read(await anext(messages))
            assert (kind, rows(data)) == ("whole", [[["row", 0], ["same", "same"]]])
            node.change(1)
            [(kind, _, data)] = read(await anext(messages))
            assert (kind, rows(data)) == ("delta", [[["row", 1]]])
            assert [event["message"] for event in data["events"]] == ["1"]

    played(play)


def test_reconnecting_page_gets_missed_changes():
    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as stays:
            [(_, seen, _)] = read(await anext(stays))
            for row in (1, 2):
                node.change(row)
                await anext(stays)
            async with contextlib.aclosing(updates.messages(seen)) as back:
                missed = read(await anext(back))
            assert [(kind, rows(data)) for kind, _, data in missed] == [
                ("delta", [[["row", 1]]]),
                ("delta", [[["row", 2]]]),
            ]

    played(play)


@pytest.mark.parametrize("since", ["", "nonsense", "00000000-1", "-", "x-99999999999999999999"])
def test_page_of_another_server_gets_whole_document(since):
    async def play(node, updates):
        async with contextlib.aclosing(updates.messages(since)) as messages:
            [(kind, _, _)] = read(await anext(messages))
            assert kind == "whole"

    played(play)


def test_page_away_for_too_long_gets_whole_document(monkeypatch):
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


def test_hundred_pages_share_one_reading_and_message():
    async def play(node, updates):
        async with contextlib.AsyncExitStack() as stack:
            pages = [updates.messages() for _ in range(100)]
            for page in pages:
                stack.push_async_callback(page.aclose)
            firsts = await asyncio.gather(*(anext(page) for page in pages))
            assert len({id(first) for first in firsts}) == 1
            reads = node.reads
            node.change(1, times=500)
            nexts = await asyncio.gather(*(anext(page) for page in pages))
            assert len({id(one) for one in nexts}) == 1
            assert node.reads - reads <= 2  # two if a reading was in progress
            assert len(read(nexts[0])[-1][2]["events"]) == 200

    played(play)


def test_node_is_not_read_without_open_page():
    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as messages:
            await anext(messages)
            assert len(node.callbacks) == 1
        while node.callbacks:  # until the reading task has ended
            await asyncio.sleep(0)
        reads = node.reads
        node.change(1)
        await asyncio.sleep(0)
        assert node.reads == reads
        async with contextlib.aclosing(updates.messages()) as messages:
            assert rows(read(await anext(messages))[0][2])[0][0] == ["row", 1]

    played(play)


def test_failed_reading_is_reported_once_and_retried(monkeypatch):
    monkeypatch.setattr("devicemanager.observe.web.page.updates._LONGEST_PAUSE", 0.0)

    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as messages:
            await anext(messages)
            node.broken, reads = True, node.reads
            while node.reads < reads + 3:
                node.change(1)
                await asyncio.sleep(0.001)
            node.broken = False
            node.change(2)
            assert rows(read(await anext(messages))[0][2]) == [[["row", 2]]]
            assert len(node.failures) == 1

    played(play)


def test_close_ends_every_stream():
    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as messages:
            await anext(messages)
            updates.close()
            assert await anext(messages, None) is None

    played(play)


def test_lone_surrogate_is_escaped():
    async def play(node, updates):
        node.row = "\ud800<"
        async with contextlib.aclosing(updates.messages()) as messages:
            [(_, _, data)] = read(await anext(messages))
            assert rows(data)[0][0] == ["row", "\ud800<"]

    played(play)


def test_idle_stream_sends_comments(monkeypatch):
    monkeypatch.setattr("devicemanager.observe.web.page.updates.KEEP_ALIVE", 0.0)

    async def play(node, updates):
        async with contextlib.aclosing(updates.messages()) as messages:
            async for message in messages:
                if message == b": \n\n":
                    return

    played(play)
