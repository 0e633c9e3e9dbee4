"""Read a recording: registrations of plugins, and the calls and ListAndWatch streams of each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import attrs

from devicemanager.io.safe_read import FileRejected, read_regular
from devicemanager.plugin.recording.calls import (
    LIST_AND_WATCH,
    OK,
    REGISTER,
    SCHEMA,
    RecordedCall,
    call_from_line,
)
from devicemanager.plugin.recording.errors import RecordingError

__all__ = ["RecordedRegistration", "RecordedStream", "Recording"]

MAX_SIZE = 512 << 20
"""Maximum size of a recording in bytes."""


@attrs.frozen
class RecordedStream:
    """One ListAndWatch stream."""

    lists: tuple[RecordedCall, ...]
    end: RecordedCall | None
    """The end of the stream; None if the recorder was killed before it."""


@attrs.frozen
class RecordedRegistration:
    """A Register call of a plugin, and all calls that followed from it."""

    register: RecordedCall
    calls: tuple[RecordedCall, ...]
    """The kubelet's unary calls, in the order in which they ended."""
    streams: tuple[RecordedStream, ...]
    """The ListAndWatch streams, in the order in which they were opened."""

    @property
    def resource(self) -> str:
        """Name of the registered resource."""
        return self.register.resource


@attrs.frozen
class Recording:
    """The content of a recording."""

    path: Path
    kubelet_dir: str
    """The kubelet's plugin directory on the machine of the recording."""
    time: float
    """Start of the recording: seconds since the epoch."""
    calls: tuple[RecordedCall, ...]
    """All calls, lists and ends of streams, sorted by number."""
    is_truncated: bool = False
    """True if the last line is incomplete, because the recorder was killed."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of at most 512 MiB. Raises RecordingError with the number of a bad line."""
        where = Path(path)
        try:
            data = read_regular(where, MAX_SIZE)
        except FileRejected as error:
            raise RecordingError(f"cannot read {where}: {error}") from error
        except OSError as error:
            raise RecordingError(f"cannot read {where}: {error.strerror}") from error
        return cls.loads(data, where)

    @classmethod
    def loads(cls, data: bytes, path: str | os.PathLike[str]) -> Self:
        """Parse the content of a file; errors name ``path``."""
        where = Path(path)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise RecordingError(f"cannot read {where}: not UTF-8 text") from error
        # After a complete last line, the last part is empty.
        *lines, last = text.split("\n")
        header = _header(where, lines)
        calls = [_call(where, number, line) for number, line in enumerate(lines[1:], start=2)]
        return cls(
            where,
            str(header.get("kubelet_dir", "")),
            _began(where, header),
            tuple(sorted(calls, key=lambda call: call.number)),
            bool(last),
        )

    @property
    def resources(self) -> tuple[str, ...]:
        """The registered resources, in the order of their first registration."""
        registers = sorted(self._registers(), key=lambda call: call.registration)
        return tuple(dict.fromkeys(call.resource for call in registers if call.resource))

    def registrations(self, resource: str) -> tuple[RecordedRegistration, ...]:
        """Return the registrations of a resource that the kubelet accepted, oldest first.

        If it accepted none, return those that it rejected.
        """
        # One Register call is one registration. Its calls and streams have the same number.
        every = [
            self._registration(call)
            for call in sorted(self._registers(), key=lambda call: call.registration)
            if call.resource == resource
        ]
        return tuple([each for each in every if each.register.code == OK] or every)

    def _registers(self) -> Iterator[RecordedCall]:
        return (call for call in self.calls if call.rpc == REGISTER)

    def _registration(self, register: RecordedCall) -> RecordedRegistration:
        following = [
            call
            for call in self.calls
            if call.registration == register.registration and call.rpc != REGISTER
        ]
        streams: dict[int | None, list[RecordedCall]] = {}
        for call in following:
            if call.rpc == LIST_AND_WATCH:
                streams.setdefault(call.stream, []).append(call)
        unary = tuple(call for call in following if call.rpc != LIST_AND_WATCH)
        return RecordedRegistration(
            register,
            unary,
            tuple(_stream(streams[key]) for key in sorted(streams, key=lambda n: n or 0)),
        )


def _stream(calls: list[RecordedCall]) -> RecordedStream:
    lists = tuple(call for call in calls if call.stream_message is not None)
    ends = [call for call in calls if call.stream_message is None]
    return RecordedStream(lists, ends[0] if ends else None)


def _header(path: Path, lines: list[str]) -> dict[str, Any]:
    header = _json(path, 1, lines[0]) if lines else {}
    schema = header.get("schema")
    if schema != SCHEMA:
        what = f"schema is {schema!r:.200}" if schema else "no schema in its first line"
        raise RecordingError(f"{path} is not a recording of this version ({SCHEMA}): {what}")
    return header


def _began(path: Path, header: dict[str, Any]) -> float:
    try:
        return float(header.get("time", 0))
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordingError(f"{path}:1: time is not a number of seconds") from error


def _call(path: Path, number: int, line: str) -> RecordedCall:
    data = _json(path, number, line)
    try:
        return call_from_line(data)
    except RecordingError as error:
        raise RecordingError(f"{path}:{number}: {error}") from error


def _json(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise RecordingError(f"{path}:{number}: not JSON: {error}") from error
    except RecursionError as error:
        raise RecordingError(f"{path}:{number}: nested too deeply for a call") from error
    if not isinstance(data, dict):
        raise RecordingError(f"{path}:{number}: not a JSON object")
    return data
