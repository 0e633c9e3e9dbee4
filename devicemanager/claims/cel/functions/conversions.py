"""Conversions such as ``int('1')``, and the parts of timestamps and durations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from devicemanager.claims.cel import gotext
from devicemanager.claims.cel.functions.arithmetic import (
    EARLIEST,
    LATEST,
    SECOND,
    checked_int,
    checked_uint,
)
from devicemanager.claims.cel.limits import NoAnswer
from devicemanager.claims.cel.values import (
    CelError,
    Duration,
    Timestamp,
    UInt,
    Value,
    type_name,
)

_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,30})\Z")
"""Matches an integer. Those that do not match are larger than 64-bit integers."""
_DOUBLE = re.compile(
    r"[+-]?(?:(?:[0-9_]+\.?[0-9_]*|\.[0-9_]+)(?:e[+-]?[0-9_]+)?|inf(?:inity)?|nan)\Z", re.I
)
_HEX_DOUBLE = re.compile(r"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)p[+-]?[0-9]+\Z", re.I)
_MISPLACED = re.compile(r"(?<![0-9])_|_(?![0-9])")
"""Matches an underscore that is not between two digits."""
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")
_DURATION_PART = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})([.,][0-9]+)?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))\Z"
)


def _fails(value: Value, target: str) -> CelError:
    return CelError(f"type conversion error from '{type_name(value)}' to '{target}'")


def _identity(value: Value) -> Value:
    return value


def _parse_integer(text: str) -> int | None:
    match = _INTEGER.match(text)
    return int(match[1] + match[2]) if match else None


def string_to_int(text: str) -> int:
    """Evaluate ``int('1')``. Raises CelError if the text is not a 64-bit integer."""
    number = _parse_integer(text)
    if number is None or not -(2**63) <= number < 2**63:
        raise _fails(text, "int")
    return number


def _string_to_uint(text: str) -> UInt:
    number = None if text[:1] in ("+", "-") else _parse_integer(text)
    if number is None or number >= 2**64:
        raise _fails(text, "uint")
    return UInt(number)


def string_to_double(text: str) -> float:
    """Evaluate ``double('1.5')``. Raises CelError if the text is not a number, or is too large."""
    number = _double(text)
    if number is None:
        raise _fails(text, "double")
    if math.isinf(number) and not text.lower().lstrip("+-").startswith("inf"):
        raise _fails(text, "double")
    return number


def _double(text: str) -> float | None:
    try:
        if _HEX_DOUBLE.match(text):
            return float.fromhex(text)
        is_number = _DOUBLE.match(text) and not _MISPLACED.search(text)
        return float(text.replace("_", "")) if is_number else None
    except (OverflowError, ValueError):
        return None


def _string_to_bool(text: str) -> bool:
    if text not in _TRUE + _FALSE:
        raise _fails(text, "bool")
    return text in _TRUE


def _double_to_int(number: float) -> int:
    # Doubles at the int64 limits are rejected: a double cannot represent them exactly.
    if not -(2.0**63) < number < 2.0**63:
        raise CelError("integer overflow")
    return checked_int(int(number))


def _double_to_uint(number: float) -> UInt:
    if not 0 <= number < 2.0**64:
        raise CelError("unsigned integer overflow")
    return checked_uint(int(number))


def _bytes_to_string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def string_to_duration(text: str) -> Duration:
    """Evaluate ``duration('1h30m')`` (``time.ParseDuration``). Raises CelError for an invalid
    duration."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text.startswith(("-", "+")) else text
    if rest == "0":
        return Duration(0)
    total, end = 0, 0
    while end < len(rest):
        match = _DURATION_PART.match(rest, end)
        if match is None or not (match[1] or match[3]):
            raise _fails(text, "google.protobuf.Duration")
        # More digits are too large in any unit.
        whole = int(match[1].lstrip("0")[:20] or "0")
        total += whole * _UNITS[match[4]] + _fraction(match[3] or "", _UNITS[match[4]])
        end = match.end()
    if not rest or total > 2**63 - (sign > 0):
        raise _fails(text, "google.protobuf.Duration")
    return Duration(sign * total)


def _fraction(digits: str, unit: int) -> int:
    """Return the nanoseconds of a fraction of a unit, with Go's rounding and its limit of digits
    (``time.leadingFraction``)."""
    number, scale = 0, 1.0
    for digit in digits:
        longer = 10 * number + int(digit)
        if longer > 2**63:
            break
        number, scale = longer, 10 * scale
    return int(number * (unit / scale))


def _int_to_duration(number: int) -> Duration:
    # The overload is declared, but cel-go does not implement it.
    raise _fails(number, "google.protobuf.Duration")


def duration_to_string(duration: Duration) -> str:
    """Evaluate ``string(duration)``."""
    # Go divides only the fraction (``Duration.Seconds``), so the sum can be inexact.
    seconds, nanos = divmod(abs(duration.nanos), SECOND)
    number = math.copysign(seconds + nanos / SECOND, duration.nanos)
    return gotext.plain_double(number) + "s"


def string_to_timestamp(text: str) -> Timestamp:
    """Evaluate ``timestamp('2024-01-02T03:04:05Z')`` (RFC 3339). Raises CelError for an invalid
    timestamp."""
    match = _TIMESTAMP.match(text)
    if match is None:
        raise _fails(text, "google.protobuf.Timestamp")
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    offset = 0
    if match[8]:
        hours, minutes = int(match[9]), int(match[10])
        if hours > 24 or minutes >= 60:
            raise _fails(text, "google.protobuf.Timestamp")
        offset = (hours * 3600 + minutes * 60) * (-1 if match[8] == "-" else 1)
    try:
        # Go's calendar has a year 0, but timestamps start with year 1.
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise _fails(text, "google.protobuf.Timestamp") from None
    seconds = int((moment - _EPOCH).total_seconds()) - offset
    if not EARLIEST <= seconds <= LATEST:
        raise CelError("timestamp overflow")
    fraction = (match[7] or ".")[1:10].ljust(9, "0")
    return Timestamp(seconds * SECOND + int(fraction), offset)


def _int_to_timestamp(seconds: int) -> Timestamp:
    if not EARLIEST <= seconds <= LATEST:
        raise CelError("timestamp overflow")
    return Timestamp(seconds * SECOND)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _local(stamp: Timestamp, zone: str) -> datetime:
    """Return the local time of a timestamp in a time zone, such as ``Europe/Berlin`` or ``-03:30``.
    Raises CelError for an unknown zone."""
    if ":" in zone:
        return _shifted(stamp, 60 * _offset(zone))
    try:
        return _shifted(stamp, 0).astimezone(_zone(zone))
    except OverflowError:
        raise NoAnswer(_YEARS) from None


_YEARS = "not supported: a local time outside of the years 1 to 9999"


def _shifted(stamp: Timestamp, offset: int) -> datetime:
    """Return the local time of a timestamp at an offset from UTC, in seconds. Raises NoAnswer
    outside of the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(seconds=stamp.nanos // SECOND + offset)
    except OverflowError:
        raise NoAnswer(_YEARS) from None


def timestamp_to_string(stamp: Timestamp) -> str:
    """Evaluate ``string(timestamp)``."""
    moment = _shifted(stamp, stamp.offset)
    fraction = f"{stamp.nanos % SECOND:09d}".rstrip("0")
    zone = "Z"
    if stamp.offset:
        minutes = abs(stamp.offset) // 60
        zone = f"{'-' if stamp.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    text = f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}"
    return f"{text}{'.' if fraction else ''}{fraction}{zone}"


def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise CelError(f"unknown time zone {name}") from None


def _offset(name: str) -> int:
    hours_text, _, minutes_text = name.partition(":")
    numbers = [_parse_integer(text) for text in (hours_text, minutes_text)]
    for number, text in zip(numbers, (hours_text, minutes_text), strict=True):
        if number is None:
            raise CelError(f"strconv.Atoi: parsing {gotext.quote(text)}: invalid syntax")
    hours, minutes = numbers[0] or 0, numbers[1] or 0
    return hours * 60 + (-minutes if name.startswith("-") else minutes)


_PARTS: dict[str, Callable[[datetime], int]] = {
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.month - 1,
    "day_of_year": lambda moment: moment.timetuple().tm_yday - 1,
    "day_of_month": lambda moment: moment.day - 1,
    "day_of_month_1_based": lambda moment: moment.day,
    "day_of_week": lambda moment: moment.isoweekday() % 7,
    "hours": lambda moment: moment.hour,
    "minutes": lambda moment: moment.minute,
    "seconds": lambda moment: moment.second,
}


def _part(of: Callable[[datetime], int]) -> Callable[..., int]:
    return lambda stamp, zone="UTC": of(_local(stamp, zone))


def _milliseconds(stamp: Timestamp, zone: str = "UTC") -> int:
    _local(stamp, zone)
    return stamp.nanos % SECOND // 10**6


def _whole(unit: int) -> Callable[[Duration], int]:
    def count(duration: Duration) -> int:
        number = abs(duration.nanos) // unit
        return -number if duration.nanos < 0 else number

    return count


def _decimal(number: int) -> str:
    return str(int(number))


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(
        (
            "bool_to_bool",
            "bytes_to_bytes",
            "double_to_double",
            "duration_to_duration",
            "to_dyn",
            "int64_to_int64",
            "string_to_string",
            "timestamp_to_timestamp",
            "uint64_to_uint64",
        ),
        _identity,
    ),
    "string_to_bool": _string_to_bool,
    "string_to_bytes": str.encode,
    "int64_to_double": float,
    "string_to_double": string_to_double,
    "uint64_to_double": float,
    "int64_to_duration": _int_to_duration,
    "string_to_duration": string_to_duration,
    "double_to_int64": _double_to_int,
    "duration_to_int64": lambda duration: duration.nanos,
    "string_to_int64": string_to_int,
    "timestamp_to_int64": lambda stamp: stamp.nanos // SECOND,
    "uint64_to_int64": lambda number: checked_int(int(number)),
    "bool_to_string": lambda value: str(value).lower(),
    "bytes_to_string": _bytes_to_string,
    "double_to_string": gotext.double,
    "duration_to_string": duration_to_string,
    "int64_to_string": _decimal,
    "timestamp_to_string": timestamp_to_string,
    "uint64_to_string": _decimal,
    "int64_to_timestamp": _int_to_timestamp,
    "string_to_timestamp": string_to_timestamp,
    "double_to_uint64": _double_to_uint,
    "int64_to_uint64": checked_uint,
    "string_to_uint64": _string_to_uint,
    "duration_to_hours": _whole(3600 * SECOND),
    "duration_to_minutes": _whole(60 * SECOND),
    "duration_to_seconds": _whole(SECOND),
    "duration_to_milliseconds": _whole(10**6),
    **{f"timestamp_to_{name}": _part(of) for name, of in _PARTS.items()},
    **{f"timestamp_to_{name}_with_tz": _part(of) for name, of in _PARTS.items()},
    "timestamp_to_milliseconds": _milliseconds,
    "timestamp_to_milliseconds_with_tz": _milliseconds,
}
