"""Track the open ListAndWatch streams of a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import attrs
import grpc

__all__ = ["Stream", "StreamCounts", "Streams"]


@attrs.frozen
class StreamCounts:
    """Counts of ListAndWatch streams (open now, opened so far), and times of the latest changes.

    Times are in seconds of the monotonic clock.
    """

    open: int = 0
    opened: int = 0
    last_opened: float = 0.0
    last_ended: float = 0.0


class Stream:
    """One ListAndWatch call, which the kubelet or the plugin can end."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        self._ended.set()


class Streams:
    """Open ListAndWatch streams of one server, oldest first.

    ``on_change`` is called after each start and end of a stream. It must wake all streams that wait
    for a device list, so that the calls of ended streams return.
    """

    def __init__(self, limit: int, on_change: Callable[[], None]) -> None:
        self._limit = limit
        self._on_change = on_change
        # Guards the two fields below.
        self._lock = threading.Lock()
        self._open: list[Stream] = []
        self._counts = StreamCounts()

    @property
    def counts(self) -> StreamCounts:
        return self._counts

    def open(self, context: grpc.ServicerContext) -> Stream:
        """Add and return a new stream; end the oldest stream if there are too many.

        A kubelet opens one stream per registration, so older streams belong to dead connections.
        """
        stream = Stream()
        with self._lock:
            self._open.append(stream)
            # Ended streams stay in the list until their call returns; they do not count here.
            open_streams = [other for other in self._open if not other.ended()]
            if len(open_streams) > self._limit:
                open_streams[0].end()
            self._counts = attrs.evolve(
                self._counts,
                open=len(self._open),
                opened=self._counts.opened + 1,
                last_opened=time.monotonic(),
            )
        # The callback is not called if the RPC has already ended.
        if not context.add_callback(lambda: self._close(stream)):
            self._close(stream)
        self._on_change()
        return stream

    def end_all(self) -> None:
        # Iterate over a copy: `end` wakes the call, whose `_close` needs the lock.
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
