"""Decode JSON without losing what is wrong with it: duplicate keys, exact number texts, and
the position up to which a damaged text is valid."""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn, TypeAlias

import attrs


@attrs.frozen
class Number:
    """A JSON number as text, because Go rejects 1.0 or 1e3 as an integer."""

    text: str


@attrs.frozen
class Repeated:
    """An object with a duplicate key; its values are not used."""

    key: str


Value: TypeAlias = object
Object: TypeAlias = dict[str, Value]


class Problem(Exception):
    """A problem in a file whose name is not known here.

    ``position`` is the character up to which the text is valid JSON; None if the problem is
    not the syntax.
    """

    def __init__(self, text: str, position: int | None = None) -> None:
        super().__init__(text)
        self.position = position


def decode(data: bytes) -> Value:
    """Decode JSON from bytes. Raises Problem."""
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
    """Decode JSON from text. Raises Problem."""
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
        raise Problem("nested too deeply to be a checkpoint") from error
    return value


def decode_at(text: str, start: int) -> tuple[Value, int]:
    """Decode the JSON value at ``start``; return it and its end. Raises Problem with a
    position."""
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
    raise AssertionError("a key is a duplicate")


def _no_constant(name: str) -> NoReturn:
    raise Problem(f"not JSON: invalid value {name}")


# Python's parser accepts more than Go's: duplicate keys, NaN, and numbers of any form. The hooks
# record or reject these instead of hiding them.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_int=Number,
    parse_float=Number,
    parse_constant=_no_constant,
)


# A string, or a bracket. A lone quote starts a string without an end.
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{}]', re.DOTALL)
_CLOSING: Final = {"[": "]", "{": "}"}
_ELEMENTS: Final = 3
"""Nesting depth of an element of PodDeviceEntries or RegisteredDevices."""


def readable_part(text: str, position: int) -> tuple[str, int]:
    """Return the part of ``text`` before ``position`` that is complete, and where it ends.

    It is cut after the last complete entry or resource. Then open brackets are closed, which
    makes it valid JSON. Without a complete element, the part is empty.
    """
    end, closers = 0, ""
    stack: list[str] = []
    for token in _TOKEN.finditer(text, 0, position):
        match token[0]:
            case "[" | "{" as mark:
                stack.append(_CLOSING[mark])
            case "]" | "}":
                stack.pop()  # never empty: up to ``position`` the text is valid JSON
                if len(stack) <= _ELEMENTS:
                    end, closers = token.end(), "".join(reversed(stack))
            case '"':
                break
    return text[:end] + closers, end


def shown(key: str) -> str:
    """Quote a key for an error message, shortened if it is long."""
    return json.dumps(key if len(key) <= 60 else f"{key[:60]}…")
