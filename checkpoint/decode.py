"""Decode JSON strictly enough to find damage: report duplicate keys, keep the exact text of
numbers, and find the position up to which a damaged text is valid."""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn, TypeAlias

import attrs


@attrs.frozen
class Number:
    """A number in JSON, as the exact text. Go's decoder accepts ``1`` as an integer, but rejects
    ``1.0`` and ``1e0``; only the text shows the difference."""

    text: str


@attrs.frozen
class Repeated:
    """Placeholder for a JSON object that has a duplicate key. The object's values are dropped."""

    key: str


Value: TypeAlias = object
Object: TypeAlias = dict[str, Value]


class Problem(Exception):
    """Error in the text of a checkpoint. The message does not name the file.

    ``position`` is the index of the character at which the JSON syntax is wrong. It is None for any
    other error, such as wrong contents.
    """

    def __init__(self, text: str, position: int | None = None) -> None:
        super().__init__(text)
        self.position = position


def decode(data: bytes) -> Value:
    """Decode JSON from bytes. Raises Problem if they are empty, not UTF-8 or not JSON."""
    if not data.strip():
        raise Problem("the file is empty" if not data else "the file is blank")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Problem(
            f"not UTF-8 at byte {error.start} of {len(data)}: the file is damaged"
        ) from error
    return decode_text(text)


def is_text(data: bytes) -> bool:
    """True if the bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode_text(text: str) -> Value:
    """Decode JSON from a string. Raises Problem if it is not JSON or nested too deeply."""
    try:
        value: Value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        # Some messages of json end in a preposition for the position, which comes first here.
        fault = error.msg.removesuffix(" at").removesuffix(" starting")
        raise Problem(
            f"not JSON at character {error.pos}: {fault}: the file is truncated or damaged",
            error.pos,
        ) from error
    except RecursionError as error:
        raise Problem("JSON is nested too deeply for a checkpoint: the file is damaged") from error
    return value


def decode_at(text: str, start: int) -> tuple[Value, int]:
    """Decode the JSON value at position ``start``; return the value and its end position. Raises
    Problem if the text at ``start`` is not a valid JSON value."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise Problem(error.msg, max(error.pos, start)) from error
    except (RecursionError, Problem) as error:
        raise Problem(str(error), len(text)) from error  # the position is unknown
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
    raise AssertionError("unreachable: there are fewer keys than pairs, so one key occurs twice")


def _no_constant(name: str) -> NoReturn:
    raise Problem(f"not JSON: invalid value {name}: the file is damaged")


# Python's parser accepts more than Go's: duplicate keys, NaN, and numbers of any form. These hooks
# record or reject what Go would not accept.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_int=Number,
    parse_float=Number,
    parse_constant=_no_constant,
)


# Matches a string or a bracket. A quote without a closing quote matches alone: the string has no
# end.
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{}]', re.DOTALL)
_CLOSING: Final = {"[": "]", "{": "}"}
_ELEMENTS: Final = 3
"""Nesting depth of an element of PodDeviceEntries or RegisteredDevices in the file."""


def readable_part(text: str, position: int) -> tuple[str, int]:
    """Return the readable beginning of a damaged ``text``, and the position where it ends.

    ``position`` is where the damage starts. The text is cut after the last complete entry or
    resource before ``position``. Brackets that are still open are closed, so the result is valid
    JSON. Without a complete entry or resource, the result is empty.
    """
    end, closers = 0, ""
    stack: list[str] = []
    for token in _TOKEN.finditer(text, 0, position):
        match token[0]:
            case "[" | "{" as mark:
                stack.append(_CLOSING[mark])
            case "]" | "}":
                stack.pop()  # has an item: the text before ``position`` is valid JSON
                if len(stack) <= _ELEMENTS:
                    end, closers = token.end(), "".join(reversed(stack))
            case '"':
                break
    return text[:end] + closers, end


def shown(key: str) -> str:
    """Return a JSON key in quotes for an error message. A key longer than 60 characters is cut."""
    return json.dumps(key if len(key) <= 60 else f"{key[:60]}…")
