"""A recording that is read: which plugins registered, and what each was asked and said."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import attrs

from devicemanager.io.safe_read import FileRejected, read_regular
from devicemanager.plugin.recording.calls import OK, SCHEMA, RecordedCall, call_from_line
from devicemanager.plugin.recording.errors import RecordingError
from devicemanager.plugin.recording.messages import LIST_AND_WATCH, REGISTER

__all__ = ["RecordedRegistration", "RecordedStream", "Recording"]

MAX_SIZE = 512 << 20
"""The most that a recording may have."""


@attrs.frozen
class RecordedStream:
    """One ListAndWatch stream."""

    lists: tuple[RecordedCall, ...]
    end: RecordedCall | None
    """How it ended; None if the recorder was killed before."""


@attrs.frozen
class RecordedRegistration:
    """One Register of a plugin, and all that came of it."""

    register: RecordedCall
    calls: tuple[RecordedCall, ...]
    """The kubelet's unary calls, in the order in which they ended."""
    streams: tuple[RecordedStream, ...]
    """The list streams, in the order in which they were opened."""

    @property
    def resource(self) -> str:
        """The resource that was registered."""
        return self.register.resource


@attrs.frozen
class Recording:
    """What a file holds."""

    path: Path
    kubelet_dir: str
    """The plugin directory of the kubelet, on the machine where it was recorded."""
    time: float
    """When it began: seconds since the epoch."""
    calls: tuple[RecordedCall, ...]
    """Every call, list, and end of a stream, in the order of their numbers."""
    is_truncated: bool = False
    """Whether the last line is not whole, as a recorder that was killed leaves it."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of at most 512 MiB. Raises RecordingError with the line that is wrong."""
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
        """The same of a file's contents; errors name the path."""
        where = Path(path)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise RecordingError(f"cannot read {where}: it is not text") from error
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
        """The resources that were registered, in the order of their first registration."""
        found = sorted(self._registers(), key=lambda call: call.registration)
        return tuple(dict.fromkeys(call.resource for call in found if call.resource))

    def registrations(self, resource: str) -> tuple[RecordedRegistration, ...]:
        """The registrations of a resource that the kubelet took, in their order; if there was
        none, those that it rejected."""
        found = [
            self._registration(call)
            for call in sorted(self._registers(), key=lambda call: call.registration)
            if call.resource == resource
        ]
        return tuple([each for each in found if each.register.code == OK] or found)

    def _registers(self) -> Iterator[RecordedCall]:
        return (call for call in self.calls if call.rpc == REGISTER)

    def _registration(self, register: RecordedCall) -> RecordedRegistration:
        mine = [
            call
            for call in self.calls
            if call.registration == register.registration and call.rpc != REGISTER
        ]
        streams: dict[int | None, list[RecordedCall]] = {}
        for call in mine:
            if call.rpc == LIST_AND_WATCH:
                streams.setdefault(call.stream, []).append(call)
        unary = tuple(call for call in mine if call.rpc != LIST_AND_WATCH)
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
        what = f"schema is {schema!r:.200}" if schema else "there is no schema in its first line"
        raise RecordingError(f"{path} is no recording of this version ({SCHEMA}): {what}")
    return header


def _began(path: Path, header: dict[str, Any]) -> float:
    try:
        return float(header.get("time", 0))
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordingError(f"{path}:1: time is no number of seconds") from error


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
        raise RecordingError(f"{path}:{number}: nested too deeply to be a call") from error
    if not isinstance(data, dict):
        raise RecordingError(f"{path}:{number}: not a JSON object")
    return data
