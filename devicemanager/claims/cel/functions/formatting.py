"""``string.format``: replace clauses such as ``%d``, and check formats at compile time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from devicemanager.claims.cel import gotext
from devicemanager.claims.cel.functions.conversions import duration_to_string, timestamp_to_string
from devicemanager.claims.cel.values import (
    CelError,
    Duration,
    Map,
    Timestamp,
    TypeName,
    UInt,
    Value,
    type_name,
)

_PRECISION = 6
_CLAUSE = re.compile(r"%(?:(%)|(\.([0-9]*))?(.?))", re.DOTALL)

_FAULTS = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists,"
    " types, durations, and timestamps, was given {}",
    "d": "decimal clause can only be used on integers, was given {}",
    "f": "fixed-point clause can only be used on doubles, was given {}",
    "e": "scientific clause can only be used on doubles, was given {}",
    "b": "only integers and bools can be formatted as binary, was given {}",
    "x": "only integers, byte buffers, and strings can be formatted as hex, was given {}",
    "X": "only integers, byte buffers, and strings can be formatted as hex, was given {}",
    "o": "octal clause can only be used on integers, was given {}",
}
ACCEPTED = {
    "s": None,
    "d": ("int", "uint"),
    "f": ("double", "string"),
    "e": ("double", "string"),
    "b": ("int", "uint", "bool"),
    "x": ("int", "uint", "string", "bytes"),
    "X": ("int", "uint", "string", "bytes"),
    "o": ("int", "uint"),
}
"""Argument types that each clause of a format accepts at compile time.

The key is the letter of the clause, such as ``d`` for ``%d``. The value contains names of types;
None means all types that can be converted to text.
"""


class FormatFault(Exception):
    """Error in a format or in one of its arguments.

    ``index`` is the index of the argument; None for an error in the format itself.
    """

    def __init__(self, text: str, index: int | None = None) -> None:
        self.index = index
        super().__init__(text)


def wrong_type(letter: str, found: str, index: int | None = None) -> FormatFault:
    """Return the error for an argument of the wrong type, such as a string for the clause ``%d``.

    ``letter``: the letter of the clause. ``found``: the type of the argument.
    """
    return FormatFault(f"error during formatting: {_FAULTS[letter].format(found)}", index)


Show = Callable[[str, int, int], str]
"""Function that formats one argument of a format such as ``%.2f``.

Its parameters are the letter (``f``), the precision (2) and the index of the argument.
"""


def run(text: str, count: int, show: Show, is_checked: bool = False) -> tuple[str, int]:
    """Return a format with each clause, such as ``%d``, replaced by an argument. Also return the
    number of arguments used.

    ``text``: the format. ``count``: the number of arguments. ``show``: function that formats an
    argument. ``is_checked``: True for the compile-time check, which reports an unfinished clause
    before other errors. Raises FormatFault for an invalid clause or a missing argument.
    """
    parts: list[str] = []
    end, used = 0, 0
    for match in _CLAUSE.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        if match[1]:
            parts.append("%")
            continue
        if used >= count and match.end() == match.start() + 1 and is_checked:
            raise FormatFault("unexpected end of string")
        if used >= count:
            raise FormatFault(f"index {used} out of range")
        parts.append(show(*_clause(match), used))
        used += 1
    return "".join([*parts, text[end:]]), used


def _clause(match: re.Match[str]) -> tuple[str, int]:
    letter = match[4]
    fault = "could not parse formatting clause: "
    if match[2] is None and not letter:
        raise FormatFault("unexpected end of string")
    if not letter:
        what = "could not find end of precision specifier"
        raise FormatFault(f"{fault}error while parsing precision: {what}")
    if match[2] is not None and not match[3]:
        what = 'error while converting precision to integer: strconv.Atoi: parsing "": invalid'
        raise FormatFault(f"{fault}error while parsing precision: {what} syntax")
    if letter not in _FAULTS:
        raise FormatFault(f'{fault}unrecognized formatting clause "{letter}"')
    precision = _PRECISION if match[2] is None else int(match[3][:9])
    return letter, min(precision, 1000)


def _format(text: str, args: Sequence[Value]) -> str:
    try:
        return run(text, len(args), lambda letter, precision, index: _shown(
            args[index], letter, precision))[0]  # fmt: skip
    except FormatFault as fault:
        raise CelError(str(fault)) from None


def _shown(value: Value, letter: str, precision: int) -> str:
    shown = _WRITERS[letter](value, precision)
    if shown is None:
        raise wrong_type(letter, type_name(value))
    return shown


def _string(value: Value, _: int) -> str | None:
    if type(value) in (list, Map):
        return _literal(value)
    return _TEXTS[type(value)](value) if type(value) in _TEXTS else None


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        what = '"invalid UTF-8 in bytes, cannot convert to string"'
        raise FormatFault(
            f"error during formatting: could not convert argument {what} to string"
        ) from None


_TEXTS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: str(value).lower(),
    int: str,
    UInt: lambda value: str(int(value)),
    float: gotext.double,
    str: str,
    bytes: _decoded,
    type(None): lambda _: "null",
    Duration: duration_to_string,
    Timestamp: timestamp_to_string,
    TypeName: lambda value: value.name,
}


def _literal(value: Value) -> str:
    """Return the text of a value inside a list or map. Raises FormatFault for a value without a
    text form."""
    match value:
        case str():
            return gotext.quote(value)
        case bytes():
            return f"b{gotext.quote(_decoded(value))}"
        case float():
            shown = _fixed(value, _PRECISION) or ""
            return shown if shown[-1:].isdigit() else gotext.quote(shown)
        case Timestamp():
            return f"timestamp({gotext.quote(timestamp_to_string(value))})"
        case Duration():
            return f"duration({gotext.quote(duration_to_string(value))})"
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case Map():
            pairs = sorted((_key(key), _literal(each)) for key, each in value.items())
            return f"{{{', '.join(f'{key}:{each}' for key, each in pairs)}}}"
    if type(value) not in _TEXTS:
        raise FormatFault(f"error during formatting: no formatting function for {type_name(value)}")
    return _TEXTS[type(value)](value)


def _key(key: Value) -> str:
    if type(key) not in (str, bool, int, UInt):
        raise FormatFault(
            f"error during formatting: no formatting function for map key of type {type_name(key)}"
        )
    return _literal(key)


def _decimal(value: Value, _: int) -> str | None:
    return str(int(value)) if type(value) in (int, UInt) else None


def _as_double(value: Value) -> float | None:
    if type(value) is str and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return value if type(value) is float else None


def _special(number: float) -> str | None:
    """Return the text of an infinity or NaN as golang.org/x/text writes it; None for other
    numbers."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "∞" if number > 0 else "-∞"
    return None


def _fixed(value: Value, precision: int) -> str | None:
    number = _as_double(value)
    return None if number is None else _special(number) or f"{number:,.{precision}f}"


def _scientific(value: Value, precision: int) -> str | None:
    number = _as_double(value)
    if number is None:
        return None
    if special := _special(number):
        return special
    # golang.org/x/text writes an exponent in the English locale as a power of ten.
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    return f"{mantissa}\u202f\u00d7\u202f10{_superscript(f'{int(exponent):03d}')}"


def _superscript(text: str) -> str:
    return text.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _binary(value: Value, _: int) -> str | None:
    return f"{int(value):b}" if type(value) in (int, UInt, bool) else None


def _octal(value: Value, _: int) -> str | None:
    return f"{int(value):o}" if type(value) in (int, UInt) else None


def _hex(value: Value, _: int) -> str | None:
    if type(value) in (int, UInt):
        return f"{int(value):x}"
    if type(value) is str:
        return value.encode().hex()
    return value.hex() if type(value) is bytes else None


def _upper_hex(value: Value, precision: int) -> str | None:
    shown = _hex(value, precision)
    return None if shown is None else shown.upper()


_WRITERS: dict[str, Callable[[Value, int], str | None]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "x": _hex,
    "X": _upper_hex,
    "o": _octal,
}

IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {"string_format": _format}
