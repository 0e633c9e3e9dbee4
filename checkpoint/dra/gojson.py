"""Compute the error message of Go's ``json.Unmarshal`` for a text that is not JSON.

Follows the state machine of encoding/json/scanner.go. The functions are only called for a damaged
file, so exactness matters more than speed. Nested values do not cause recursion.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_MAX_DEPTH: Final = 10_000
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_HEX: Final = b"0123456789abcdefABCDEF"
_END: Final = "unexpected end of JSON input"
_LITERALS: Final = {b"t": b"true", b"f": b"false", b"n": b"null"}


class _Fault(Exception):
    """Error of a text that is not JSON. The message is Go's."""


class _Open(NamedTuple):
    """Object or list that is not closed yet."""

    is_object: bool


def syntax_error(data: bytes) -> str | None:
    """Return Go's error message for ``data``; None if it is valid JSON."""
    try:
        _scan(data)
    except _Fault as fault:
        return str(fault)
    return None


def _scan(data: bytes) -> None:
    at = 0
    stack: list[_Open] = []
    empty = False  # True directly after an opening bracket
    while True:
        at = _blank(data, at)
        if empty and data[at : at + 1] == (b"}" if stack[-1].is_object else b"]"):
            at, empty = at + 1, False
            stack.pop()
        else:
            if stack and stack[-1].is_object:
                at = _key(data, at)
            empty = data[at : at + 1] in (b"{", b"[")
            if empty:
                stack.append(_Open(data[at : at + 1] == b"{"))
                if len(stack) > _MAX_DEPTH:
                    raise _Fault("exceeded max depth")
                at += 1
                continue
            at = _scalar(data, at)
        at = _blank(data, at)
        while stack:
            closing, where = (
                (b"}", "after object key:value pair")
                if stack[-1].is_object
                else (b"]", "after array element")
            )
            char = _char(data, at)
            if char == b",":
                at += 1
                break
            if char != closing:
                raise _invalid(char, where)
            stack.pop()
            at = _blank(data, at + 1)
        else:
            if at < len(data):
                raise _invalid(data[at : at + 1], "after top-level value")
            return


def _key(data: bytes, at: int) -> int:
    char = _char(data, at)
    if char != b'"':
        raise _invalid(char, "looking for beginning of object key string")
    at = _blank(data, _string(data, at))
    char = _char(data, at)
    if char != b":":
        raise _invalid(char, "after object key")
    return _blank(data, at + 1)


def _scalar(data: bytes, at: int) -> int:
    char = _char(data, at)
    if char == b'"':
        return _string(data, at)
    if char in _LITERALS:
        literal = _LITERALS[char]
        for place in range(1, len(literal)):
            found, wanted = _inside(data, at + place), literal[place : place + 1]
            if found != wanted:
                where = f"in literal {literal.decode()} (expecting {_quoted(wanted)})"
                raise _invalid(found, where)
        return at + len(literal)
    if char == b"-" or char.isdigit():
        return _number(data, at)
    raise _invalid(char, "looking for beginning of value")


def _number(data: bytes, at: int) -> int:
    if data[at : at + 1] == b"-":
        at += 1
        if not (char := _inside(data, at)).isdigit():
            raise _invalid(char, "in numeric literal")
    # After a leading 0, Go ends the number. So ``01`` is reported as an invalid character after a
    # complete value, not as a bad number.
    at = at + 1 if data[at : at + 1] == b"0" else _digits(data, at)
    if data[at : at + 1] == b".":
        at += 1
        if not (char := _inside(data, at)).isdigit():
            raise _invalid(char, "after decimal point in numeric literal")
        at = _digits(data, at)
    if data[at : at + 1] in (b"e", b"E"):
        at += 1
        if _inside(data, at) in (b"+", b"-"):
            at += 1
        if not (char := _inside(data, at)).isdigit():
            raise _invalid(char, "in exponent of numeric literal")
        at = _digits(data, at)
    return at


def _digits(data: bytes, at: int) -> int:
    while data[at : at + 1].isdigit():
        at += 1
    return at


def _string(data: bytes, at: int) -> int:
    at += 1
    while True:
        found = _PLAIN.match(data, at)
        at = found.end() if found else at
        char = _char(data, at)
        at += 1
        if char == b'"':
            return at
        if char != b"\\":
            raise _invalid(char, "in string literal")
        char = _inside(data, at)
        at += 1
        if char == b"u":
            for place in range(4):
                digit = _inside(data, at + place)
                if digit not in _HEX:
                    raise _invalid(digit, "in \\u hexadecimal character escape")
            at += 4
        elif char not in b'bfnrt\\/"':
            raise _invalid(char, "in string escape code")


def _blank(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _char(data: bytes, at: int) -> bytes:
    if at >= len(data):
        raise _Fault(_END)
    return data[at : at + 1]


def _inside(data: bytes, at: int) -> bytes:
    """Return the byte at a position inside a token, or a space if the text ends before it."""
    # Go appends a space to detect a text that ends inside a token (``scanner.eof``).
    return data[at : at + 1] or b" "


def _invalid(char: bytes, where: str) -> _Fault:
    return _Fault(f"invalid character {_quoted(char)} {where}")


_ESCAPES: Final = {
    "'": r"'\''",
    "\\": r"'\\'",
    "\a": r"'\a'",
    "\b": r"'\b'",
    "\f": r"'\f'",
    "\n": r"'\n'",
    "\r": r"'\r'",
    "\t": r"'\t'",
    "\v": r"'\v'",
}


def _quoted(char: bytes) -> str:
    # Go treats the byte as a code point.
    text = chr(char[0])
    if text in _ESCAPES:
        return _ESCAPES[text]
    if text.isprintable():
        return f"'{text}'"
    return f"'\\x{char[0]:02x}'" if char[0] < 0x80 else f"'\\u{char[0]:04x}'"
