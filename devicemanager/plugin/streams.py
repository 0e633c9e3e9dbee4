"""Which list streams of a server are open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import attrs
import grpc

__all__ = ["Stream", "StreamCounts", "Streams"]


@attrs.frozen
class StreamCounts:
    """``opened`` counts all there ever were. Times are those of the monotonic clock."""

    open: int = 0
    opened: int = 0
    last_opened: float = 0.0
    last_ended: float = 0.0


class Stream:
    """One ListAndWatch call, which either side may end."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        self._ended.set()


class Streams:
    """The open streams of one server, oldest first.

    ``on_change`` must notify the streams that wait for a list, so that ended ones return.
    """

    def __init__(self, limit: int, on_change: Callable[[], None]) -> None:
        self._limit = limit
        self._on_change = on_change
        # Guards the two below.
        self._lock = threading.Lock()
        self._open: list[Stream] = []
        self._counts = StreamCounts()

    @property
    def counts(self) -> StreamCounts:
        return self._counts

    def open(self, context: grpc.ServicerContext) -> Stream:
        """Record a new stream. If there are too many, end the oldest, which is dead if the
        kubelet is the only peer."""
        stream = Stream()
        with self._lock:
            self._open.append(stream)
            living = [known for known in self._open if not known.ended()]
            if len(living) > self._limit:
                living[0].end()
            self._counts = attrs.evolve(
                self._counts,
                open=len(self._open),
                opened=self._counts.opened + 1,
                last_opened=time.monotonic(),
            )
        if not context.add_callback(lambda: self._close(stream)):
            self._close(stream)
        self._on_change()
        return stream

    def end_all(self) -> None:
        with self._lock:
            streams = list(self._open)
        for stream in streams:
            stream.end()
        self._on_change()

    def _close(self, stream: Stream) -> None:
        stream.end()
        with self._lock:
            if stream in self._open:
                self._open.remove(stream)
                self._counts = attrs.evolve(
                    self._counts, open=len(self._open), last_ended=time.monotonic()
                )
        self._on_change()
