"""Messages to pages as server-sent events, and those that are kept for who was away."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import attrs
import msgspec

from devicemanager.events.stream import Event
from devicemanager.observe.web.page.deltas import Change

__all__ = ["Frame", "Frames", "frame"]

_MOST: Final = 256
_MOST_BYTES: Final = 8 << 20


@attrs.frozen
class Frame:
    """One message, or several."""

    version: int
    """Of the document that a page has after it."""
    data: bytes


class Frames:
    """The latest changes, one version after the other."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._size = 0

    def add(self, frame: Frame) -> None:
        """Keep a change; the oldest go."""
        self._frames.append(frame)
        self._size += len(frame.data)
        while len(self._frames) > _MOST or self._size > _MOST_BYTES:
            self._size -= len(self._frames.popleft().data)

    def after(self, version: int | None) -> Frame | None:
        """All that follows a version; None if that is not known any more, or never was."""
        if version is None:
            return None
        later = [frame for frame in self._frames if frame.version > version]
        if not later or later[0].version != version + 1:
            return None
        return Frame(later[-1].version, b"".join([frame.data for frame in later]))


def frame(
    kind: str, epoch: str, version: int, told: Sequence[Change], events: Sequence[Event]
) -> Frame:
    """``whole`` or ``delta``, with changes and events. ``epoch`` tells this server from any
    other, so that nobody goes on with what another one has said."""
    message = {"changes": told, "events": [_event(event) for event in events]}
    head = f"id: {epoch}-{version}\nevent: {kind}\ndata: ".encode()
    return Frame(version, head + _encoded(message) + b"\n\n")


def _event(event: Event) -> dict[str, Any]:
    return {
        "number": event.number,
        "time": event.time,
        "kind": event.kind.value,
        "message": event.message,
        "warning": event.is_warning,
        "resource": event.resource,
        "pod": event.pod,
    }


def _encoded(message: Any) -> bytes:
    """JSON on one line. Half a surrogate pair, which Python's texts may have, becomes an
    escape, as no UTF-8 has it."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(message), separators=(",", ":")).encode()
