"""String functions: version 2 of CEL's strings extension, except ``format``."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

from devicemanager.claims.cel.limits import check_size
from devicemanager.claims.cel.values import CelError

_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_QUOTED = str.maketrans(
    {
        "\a": r"\a",
        "\b": r"\b",
        "\f": r"\f",
        "\n": r"\n",
        "\r": r"\r",
        "\t": r"\t",
        "\v": r"\v",
        "\\": r"\\",
        '"': r"\"",
    }
)


def _in_range(text: str, index: int) -> int:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return index


def _char_at(text: str, index: int) -> str:
    return text[_in_range(text, index) : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    return text.find(part, offset) if part else min(offset, len(text))


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_from(text: str, part: str, offset: int) -> int:
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    if not part:
        return min(offset, len(text))
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old)
    check_size(len(text) + (found if count < 0 else min(found, count)) * len(new))
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    chars = list(text)
    if 0 < count < len(chars):
        return [*chars[: count - 1], text[count - 1 :]]
    return chars


def _substring(text: str, start: int) -> str:
    return text[_in_range(text, start) :]


def _substring_range(text: str, start: int, end: int) -> str:
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    return text[_in_range(text, start) : _in_range(text, end)]


def _join(parts: list[str], separator: str = "") -> str:
    for part in parts:
        if not isinstance(part, str):
            raise CelError(f"join: invalid input: {part}")
    check_size(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def _unbounded(search: Callable[[str, str, int], int]) -> Callable[[str, str, int], int]:
    """Wrap ``search``: an empty substring is found at any offset, even outside the text."""
    return lambda text, part, offset: search(text, part, offset) if part else offset


IMPLEMENTATIONS_1_36: dict[str, Callable[..., Any]] = {
    "string_index_of_string_int": _unbounded(_index_of),
    "string_last_index_of_string_int": _unbounded(_last_index_from),
}
"""Functions that behave differently in Kubernetes 1.36, by overload ID.

For 1.36, they replace the functions with the same ID in ``IMPLEMENTATIONS``.
"""

IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "contains_string": lambda text, part: part in text,
    "ends_with_string": str.endswith,
    "starts_with_string": str.startswith,
    "string_char_at_int": _char_at,
    "string_index_of_string": _index_of,
    "string_index_of_string_int": _index_of,
    "string_last_index_of_string": _last_index_of,
    "string_last_index_of_string_int": _last_index_from,
    "string_lower_ascii": lambda text: text.translate(_LOWER),
    "string_upper_ascii": lambda text: text.translate(_UPPER),
    "string_replace_string_string": _replace,
    "string_replace_string_string_int": _replace,
    "string_split_string": _split,
    "string_split_string_int": _split,
    "string_substring_int": _substring,
    "string_substring_int_int": _substring_range,
    "string_trim": lambda text: text.strip(_SPACES),
    "strings_quote": lambda text: f'"{text.translate(_QUOTED)}"',
    "list_join": _join,
    "list_join_string": _join,
}
