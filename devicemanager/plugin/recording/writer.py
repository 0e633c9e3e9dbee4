"""Write calls, stream messages and ends of streams to a recording, a line each."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from typing import IO, Any

import attrs

from devicemanager.plugin.recording.calls import (
    REGISTER,
    SCHEMA,
    EndedBy,
    RecordedCall,
    is_stream,
    line_of,
)
from devicemanager.plugin.recording.errors import RecordingError
from devicemanager.plugin.recording.redaction import Redaction

__all__ = ["CallInProgress", "RecordingWriter", "Registered", "open_new"]

TO_PLUGIN, TO_KUBELET = "to-plugin", "to-kubelet"


def open_new(path: str | os.PathLike[str]) -> IO[str]:
    """Create a file that only its owner can read, because plugins' responses can contain secrets.

    Raises FileExistsError if the file exists, and OSError if it cannot be created.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8")


@attrs.frozen
class Registered:
    """Registration to which recorded calls belong: kubelet instance, resource and plugin."""

    kubelet: int
    registration: int
    resource: str
    plugin: str


class RecordingWriter:
    """Writer of a recording. Thread-safe.

    It writes a line for each stream message, and at the end of each call. If a line cannot be
    written, ``failed`` is called once, and no further line is written. The calls between kubelet
    and plugins are not affected.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | IO[str],
        kubelet_dir: str,
        redaction: Redaction,
        failed: Callable[[OSError], object],
    ) -> None:
        """``file`` is the path of the file that ``open`` creates, or an open text file. An open
        file belongs to the caller, and stays open."""
        self._file = file
        self._kubelet_dir = kubelet_dir
        self._redaction = redaction
        self._failed = failed
        # Guards all fields below, and the order of the lines.
        self._lock = threading.Lock()
        self._error: OSError | None = None
        self._numbers = 0
        self._streams = 0
        self._in_progress: set[CallInProgress] = set()
        self._closed = False
        self._stream: IO[str] | None = None
        # Closes the stream, unless it belongs to the caller.
        self._closing = contextlib.ExitStack()

    @property
    def error(self) -> OSError | None:
        """Error after which no further line was written; None if there was no error."""
        return self._error

    @property
    def calls(self) -> int:
        """Number of recorded entries so far: unary calls, stream messages and ends of streams."""
        return self._numbers

    def check_new(self) -> None:
        """Raise RecordingError if this writer was opened or closed before."""
        if self._stream is not None or self._closed:
            raise RecordingError("a recorder cannot be started again: create another one")

    def check_complete(self) -> None:
        """Raise RecordingError if a line could not be written."""
        if self._error is not None:
            text = self._error.strerror or self._error
            raise RecordingError(f"the recording is incomplete: {text}")

    def open(self) -> None:
        """Create the file and write its first line. Call this method before ``begin``.

        Raises RecordingError if the file exists or cannot be created.
        """
        if isinstance(self._file, (str, os.PathLike)):
            try:
                self._stream = self._closing.enter_context(open_new(self._file))
            except FileExistsError as error:
                raise RecordingError(f"{self._file} already exists: use another file") from error
            except OSError as error:
                raise RecordingError(f"cannot write {self._file}: {error.strerror}") from error
        else:
            self._stream = self._file
        header = {
            "schema": SCHEMA,
            "time": round(time.time(), 6),
            "kubelet_dir": self._kubelet_dir,
            "redact_env": list(self._redaction.patterns),
        }
        self._write(json.dumps(header))

    def begin(self, plugin: Registered, rpc: str, request: bytes) -> CallInProgress:
        """Begin to record a call, and return the object that records its responses and its end."""
        call = CallInProgress(self, plugin, rpc, request)
        with self._lock:
            if call.is_stream:
                self._streams += 1
                call.stream = self._streams
            self._in_progress.add(call)
        return call

    def close(self) -> None:
        """Write all calls in progress as ended by the recorder, and record no further call.

        Then close the file, unless it belongs to the caller.
        """
        # Iterate over a copy, because `ended` needs the lock.
        with self._lock:
            calls = sorted(self._in_progress, key=lambda call: call.started)
        for call in calls:
            call.ended("Canceled", "the recording ended", EndedBy.RECORDER)
        with self._lock:
            # Calls that begin later, while plugins are stopped, are not recorded.
            self._closed = True
        # A line that could not be written is still in the buffer, and fails again.
        with contextlib.suppress(OSError):
            self._closing.close()

    def add(self, call: CallInProgress, entry: RecordedCall, *, last: bool) -> None:
        """Write one line of a call. ``last`` is True if the line is the end of the call."""
        # Redact outside the lock: decoding a large response must not delay other calls.
        if entry.response_bytes is not None:
            response, redacted = self._redaction.apply(entry.rpc, entry.response_bytes)
            entry = attrs.evolve(entry, response_bytes=response, redacted=redacted)
        with self._lock:
            # A call can end twice: by its own end, and by `close`.
            if self._closed or call not in self._in_progress:
                return
            if last:
                self._in_progress.remove(call)
            self._numbers += 1
            self._write(line_of(attrs.evolve(entry, number=self._numbers)))

    def _write(self, line: str) -> None:
        if self._error is not None:
            return
        assert self._stream is not None, "no line is written before open"
        try:
            self._stream.write(line + "\n")
            # Flush each line, so that a killed recorder loses no call.
            self._stream.flush()
        except (OSError, ValueError) as error:
            # ValueError: the owner of the file has closed it.
            self._error = error if isinstance(error, OSError) else OSError(str(error))
            self._failed(self._error)


class CallInProgress:
    """Recorder of one call in progress. Call ``received`` for each response, then ``ended``."""

    def __init__(
        self, writer: RecordingWriter, plugin: Registered, rpc: str, request: bytes
    ) -> None:
        self._writer = writer
        self._plugin = plugin
        self._rpc = rpc
        self._request = request
        # The recording shows wall-clock time; durations use the monotonic clock.
        self._time = time.time()
        self.started = time.monotonic()
        self.is_stream = is_stream(rpc)
        self.stream: int | None = None
        self._messages = 0
        self._response: bytes | None = None

    def received(self, response: bytes) -> None:
        """Record the response of a unary call, or a message of a stream."""
        if not self.is_stream:
            self._response = response
            return
        self._messages += 1
        entry = self._entry(time.time(), response, stream_message=self._messages)
        self._writer.add(self, entry, last=False)

    def ended(self, code: str, message: str, ended_by: EndedBy) -> None:
        """Record the end of the call with its status."""
        entry = self._entry(
            self._time, self._response, code=code, message=message, ended_by=ended_by
        )
        self._writer.add(self, entry, last=True)

    def _entry(self, at: float, response: bytes | None, **fields: Any) -> RecordedCall:
        return RecordedCall(
            number=0,
            time=at,
            kubelet=self._plugin.kubelet,
            registration=self._plugin.registration,
            resource=self._plugin.resource,
            plugin=self._plugin.plugin,
            direction=TO_KUBELET if self._rpc == REGISTER else TO_PLUGIN,
            rpc=self._rpc,
            request_bytes=self._request,
            response_bytes=response,
            duration=time.monotonic() - self.started,
            stream=self.stream,
            **fields,
        )
