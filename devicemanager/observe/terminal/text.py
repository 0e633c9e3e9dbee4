"""Texts that fill exactly the given cells, even if their content is hostile.

Names and messages come from plugins and manifests. It is not enough that they cannot control
the terminal. In rows and columns no character may be wider than we count, combine with the one
before it, or reverse the order of its line. Such characters are shown as escapes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping

import attrs
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from devicemanager.observe.view import DeviceState

__all__ = ["ASCII", "STYLES", "UNICODE", "Glyphs", "column", "joined", "safe", "shortened"]

_RIGHT_TO_LEFT = {"R", "AL", "AN"}
# Above it are mostly emoji, whose width differs between terminals.
_LAST_PLAIN = 0xFFFF


@attrs.frozen
class Glyphs:
    """Characters for one terminal. States differ in shape, not only in colour."""

    states: Mapping[DeviceState, str]
    ellipsis: str
    line: str
    arrows: str


UNICODE = Glyphs(
    {
        DeviceState.FREE: "□",
        DeviceState.ALLOCATED: "■",
        DeviceState.ALLOCATING: "◐",
        DeviceState.UNHEALTHY: "▲",
        DeviceState.GONE: "✗",
    },
    "…",
    "─",
    "↑↓",
)
ASCII = Glyphs(
    {
        DeviceState.FREE: ".",
        DeviceState.ALLOCATED: "#",
        DeviceState.ALLOCATING: "~",
        DeviceState.UNHEALTHY: "!",
        DeviceState.GONE: "x",
    },
    "~",
    "-",
    "up/down",
)

STYLES: Mapping[DeviceState, str] = {
    DeviceState.FREE: "green",
    DeviceState.ALLOCATED: "bold cyan",
    DeviceState.ALLOCATING: "bold yellow",
    DeviceState.UNHEALTHY: "bold red",
    DeviceState.GONE: "magenta",
}


def safe(text: str, longest: int = 1000) -> str:
    """Return the first ``longest`` characters; those that do not fit one cell are escaped."""
    # Cut first: a message can have megabytes.
    text = text[:longest]
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if _is_plain(each) else _escaped(each) for each in text)


def _is_plain(character: str) -> bool:
    return (
        character.isprintable()
        and ord(character) <= _LAST_PLAIN
        and not unicodedata.category(character).startswith("M")
        and unicodedata.bidirectional(character) not in _RIGHT_TO_LEFT
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shortened(text: str, width: int, glyphs: Glyphs = UNICODE) -> str:
    """Return ``text`` in at most ``width`` cells, with an ellipsis in the middle if needed."""
    if width <= 0:
        return ""
    # The end stays because IDs of one resource differ mostly at the end.
    tail = min(width // 3, 12)
    if len(text) > 4 * width:
        text = safe(text, 2 * width) + glyphs.ellipsis + safe(text[-width:])
    else:
        text = safe(text)
    if cell_len(text) <= width:
        return text
    if not tail:
        return set_cell_size(text, width)
    end = text[-tail:]
    while cell_len(end) > tail:
        end = end[1:]
    return set_cell_size(text, width - 1 - cell_len(end)) + glyphs.ellipsis + end


def column(text: str, width: int, style: str = "", glyphs: Glyphs = UNICODE) -> Text:
    """Return ``text`` in exactly ``width`` cells."""
    return Text(set_cell_size(shortened(text, width, glyphs), max(width, 0)), style)


def joined(parts: Iterable[Text | str], width: int, glyphs: Glyphs = UNICODE) -> Text:
    """Join parts, which must be safe already, to one line of at most ``width`` cells."""
    line = Text(no_wrap=True, end="")
    for part in parts:
        line.append(part)
    if line.cell_len > width:
        # One cell less, for the ellipsis that marks a cut line.
        line.truncate(max(width - 1, 0))
        if width > 0:
            line.append(glyphs.ellipsis)
    return line
