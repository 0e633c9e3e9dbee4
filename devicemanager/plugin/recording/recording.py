"""Read a recording: registrations of plugins with their calls and ListAndWatch streams."""

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
    """One recorded ListAndWatch stream: its lists and its end."""

    lists: tuple[RecordedCall, ...]
    end: RecordedCall | None
    """Entry for the end of the stream; None if the recorder was killed before the stream ended."""


@attrs.frozen
class RecordedRegistration:
    """Recorded Register call of a plugin, with the kubelet's calls to the registered plugin."""

    register: RecordedCall
    calls: tuple[RecordedCall, ...]
    """Unary calls of the kubelet, in the order in which they ended."""
    streams: tuple[RecordedStream, ...]
    """ListAndWatch streams, in the order in which they were opened."""

    @property
    def resource(self) -> str:
        """Name of the registered resource."""
        return self.register.resource


@attrs.frozen
class Recording:
    """Content of a recording file: the calls between a kubelet and its plugins."""

    path: Path
    kubelet_dir: str
    """The kubelet's plugin directory on the node where the calls were recorded."""
    time: float
    """Start of the recording, in seconds since the epoch."""
    calls: tuple[RecordedCall, ...]
    """All calls, lists and ends of streams, sorted by number."""
    is_truncated: bool = False
    """True if the last line is incomplete, because the recorder was killed."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a recording of at most 512 MiB.

        Raises RecordingError, with the line number of an invalid line.
        """
        where = Path(path)
        try:
            data = read_regular(where, MAX_SIZE)
        except FileRejected as error:
            raise RecordingError(f"cannot read {where}: {error}") from error
        except OSError as error:
            raise RecordingError(f"{where}: {error.strerror}") from error
        return cls.loads(data, where)

    @classmethod
    def loads(cls, data: bytes, path: str | os.PathLike[str]) -> Self:
        """Parse the content of a recording.

        Raises RecordingError with ``path`` and the line number of an invalid line.
        """
        where = Path(path)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise RecordingError(f"cannot read {where}: not UTF-8 text") from error
        # `last` is empty unless the last line is incomplete.
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
        """Names of the registered resources, in the order of their first registrations."""
        registers = sorted(self._registers(), key=lambda call: call.registration)
        return tuple(dict.fromkeys(call.resource for call in registers if call.resource))

    def registrations(self, resource: str) -> tuple[RecordedRegistration, ...]:
        """Return the recorded registrations of a resource, oldest first.

        Omit rejected registrations, unless the kubelet rejected all of them.
        """
        # A registration, its calls and its streams have the same registration number.
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
        raise RecordingError(
            f"{path}:1: invalid time {header.get('time')!r:.200}: expected seconds since the epoch"
        ) from error


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
        raise RecordingError(f"{path}:{number}: JSON is nested too deeply") from error
    if not isinstance(data, dict):
        raise RecordingError(f"{path}:{number}: not a JSON object")
    return data
