"""The suite's calls to plugins, and their lines in the timeline."""

from __future__ import annotations

import re
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import grpc
import pytest

from devicemanager.conformance.client import CallFailed, ListStream, PluginClient
from devicemanager.conformance.observations import Timeline


class Calls:
    """Call log with a stream that began before the time 7, and one that began later."""

    in_progress = tuple(
        SimpleNamespace(time=time, rpc="ListAndWatch", resource="r", plugin=f"p{time}")
        for time in (6.5, 7.5)
    )

    def __call__(self, since: None) -> list[Any]:
        return []


def test_timeline_has_only_what_began_with_the_check() -> None:
    kubelet: Any = SimpleNamespace(
        calls=Calls(),
        clock=SimpleNamespace(time=lambda: 7.0),
        events=SimpleNamespace(recent=list),
        mark=lambda: None,
    )
    timeline = Timeline(kubelet, [])
    timeline.step("later", 8.0)
    lines = [(line.time, line.text) for line in timeline.lines()]
    assert lines == [(0.5, "ListAndWatch r (p7.5): in progress"), (1.0, "later")]


class Mute:
    """Stream without messages, until it is cancelled."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> None:
        assert self._cancelled.wait(10)
        raise grpc.RpcError("cancelled")

    def cancel(self) -> None:
        self._cancelled.set()


def test_next_times_out_without_a_device_list() -> None:
    with pytest.raises(
        CallFailed, match=r"^ListAndWatch failed with UNKNOWN: no device list within 0.01 s"
    ):
        ListStream(Mute()).next(0.01)


def test_next_fails_when_the_plugin_ends_the_stream() -> None:
    with pytest.raises(
        CallFailed, match=r"^ListAndWatch failed with UNKNOWN: the plugin ended the stream"
    ):
        ListStream(iter(())).next()


def test_each_call_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    client = PluginClient(Path("/nowhere/plugin.sock"), lines.append)

    def allocate(request: object, **options: object) -> str:
        if len(lines) == 1:
            raise grpc.RpcError("no")
        return "response"

    monkeypatch.setattr(client, "_stub", SimpleNamespace(Allocate=allocate))
    ids = [f"d{number}" for number in range(10)]
    with closing(client):
        client.allocate(ids[:1], ids[1:2])
        with pytest.raises(CallFailed):
            client.allocate(ids)
    assert [re.sub(r"\d\.\d+", "#", line) for line in lines] == [
        "call Allocate d0, d1: OK after # s",
        f"call Allocate {', '.join(ids[:8])} and 2 more: UNKNOWN: no after # s",
    ]
