"""Messages to pages as server-sent events. The latest messages are stored for pages that
reconnect."""

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
    """One or more consecutive messages to a page, encoded as server-sent events."""

    version: int
    """Version of the document after the last message."""
    data: bytes


class Frames:
    """Buffer of the latest changes, in the order of their versions."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._size = 0

    def add(self, frame: Frame) -> None:
        """Append a change. Remove the oldest changes if the buffer is too large."""
        self._frames.append(frame)
        self._size += len(frame.data)
        while len(self._frames) > _MOST or self._size > _MOST_BYTES:
            self._size -= len(self._frames.popleft().data)

    def after(self, version: int | None) -> Frame | None:
        """Return all changes after a version of the document, as one frame. Return None if
        ``version`` is None, if it has no later changes, or if some of them are no longer stored.
        """
        if version is None:
            return None
        # Without the next version, a page would miss changes.
        later = [frame for frame in self._frames if frame.version > version]
        if not later or later[0].version != version + 1:
            return None
        return Frame(later[-1].version, b"".join([frame.data for frame in later]))


def frame(
    kind: str, epoch: str, version: int, changes: Sequence[Change], events: Sequence[Event]
) -> Frame:
    """Return an encoded message of the kind ``whole`` (a whole document) or ``delta`` (changes).

    ``epoch`` identifies this server, so that a page does not resume with a version of another
    server.
    """
    message = {"changes": changes, "events": [_event(event) for event in events]}
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
    """Return a message as JSON on one line."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        # A Python string can contain a lone surrogate, which UTF-8 cannot. json escapes it.
        return json.dumps(msgspec.to_builtins(message), separators=(",", ":")).encode()
