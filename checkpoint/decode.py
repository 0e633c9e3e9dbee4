"""From bytes to JSON values, each with what is wrong with it kept at its place."""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn, TypeAlias

import attrs

__all__ = [
    "Number",
    "Object",
    "Problem",
    "Repeated",
    "Value",
    "decode",
    "decode_at",
    "decode_text",
    "readable_part",
    "shown",
]


@attrs.frozen
class Number:
    """A JSON number, kept as text: Go takes 1.0 or 1e3 for no integer."""

    text: str


@attrs.frozen
class Repeated:
    """An object in which a key stands twice. Nothing of it is used."""

    key: str


Value: TypeAlias = object
Object: TypeAlias = dict[str, Value]


class Problem(Exception):
    """What is wrong, before it is known in which file. ``position`` is the character up to
    which the text is JSON; None if the trouble is not one of JSON's grammar."""

    def __init__(self, text: str, position: int | None = None) -> None:
        super().__init__(text)
        self.position = position


def decode(data: bytes) -> Value:
    """The JSON value in ``data``. Raises Problem."""
    if not data.strip():
        raise Problem("the file is empty" if not data else "the file is blank")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Problem(
            f"not UTF-8 at byte {error.start} of {len(data)}: the file is damaged"
        ) from error
    return decode_text(text)


def decode_text(text: str) -> Value:
    """The JSON value in ``text``. Raises Problem."""
    try:
        value: Value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        # Some of the texts end so that a place can follow, which stands before them here.
        fault = error.msg.removesuffix(" at").removesuffix(" starting")
        raise Problem(
            f"not JSON at character {error.pos}: {fault}: the file is cut off or damaged",
            error.pos,
        ) from error
    except RecursionError as error:
        raise Problem("nested too deeply to be a checkpoint") from error
    return value


def decode_at(text: str, start: int) -> tuple[Value, int]:
    """The JSON value that begins at ``start``, and where it ends. Raises Problem, whose
    position is there in any case."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise Problem(error.msg, max(error.pos, start)) from error
    except (RecursionError, Problem) as error:
        raise Problem(str(error), len(text)) from error  # who knows how far it came
    return value, end


def _pairs(pairs: list[tuple[str, Value]]) -> Object | Repeated:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return Repeated(key)
        seen.add(key)
    raise AssertionError("some key stands twice")


def _no_constant(name: str) -> NoReturn:
    raise Problem(f"not JSON: {name} is no value")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_int=Number,
    parse_float=Number,
    parse_constant=_no_constant,
)


# A text, or a mark that opens or closes a list or an object; a lone quote opens a text that
# has no end.
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{}]', re.DOTALL)
_CLOSING: Final = {"[": "]", "{": "}"}
_ELEMENTS: Final = 3
"""How deep an element of PodDeviceEntries or of RegisteredDevices lies: in Data's list or
object."""


def readable_part(text: str, position: int) -> tuple[str, int]:
    """What stands before ``position``, up to the last whole entry or resource, with all that
    is open closed: JSON again, unless there was nothing whole. And where that ends."""
    end, closers = 0, ""
    stack: list[str] = []
    for token in _TOKEN.finditer(text, 0, position):
        match token[0]:
            case "[" | "{" as mark:
                stack.append(_CLOSING[mark])
            case "]" | "}":
                stack.pop()  # opened before: up to here the text is JSON
                if len(stack) <= _ELEMENTS:
                    end, closers = token.end(), "".join(reversed(stack))
            case '"':
                break
    return text[:end] + closers, end


def shown(key: str) -> str:
    """A key as it is quoted in an error, cut where it is long."""
    return json.dumps(key if len(key) <= 60 else f"{key[:60]}…")
