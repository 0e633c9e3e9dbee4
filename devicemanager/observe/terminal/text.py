"""Texts that take exactly the cells that they are given, whatever they contain.

Names and messages are what plugins and manifests wrote. On a screen of rows and columns it is
not enough that they cannot steer the terminal: no character may take another width than we
count, join with the one before it, or turn the order of its line around.
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
_LAST_PLAIN = 0xFFFF
"""Beyond it are mostly emoji, of whose width terminals have different opinions."""


@attrs.frozen
class Glyphs:
    """The characters of one terminal. States differ by shape, not by colour alone."""

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
    """The first ``longest`` characters, with escapes for whatever does not stay in its cell."""
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
    """``text`` in at most ``width`` cells. Of an id that is too long begin and end stay, since
    it is the end in which ids of one resource differ."""
    if width <= 0:
        return ""
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
    """``text`` in exactly ``width`` cells."""
    return Text(set_cell_size(shortened(text, width, glyphs), max(width, 0)), style)


def joined(parts: Iterable[Text | str], width: int, glyphs: Glyphs = UNICODE) -> Text:
    """The parts, which are safe already, as one line of at most ``width`` cells."""
    line = Text(no_wrap=True, end="")
    for part in parts:
        line.append(part)
    if line.cell_len > width:
        line.truncate(max(width - 1, 0))
        if width > 0:
            line.append(glyphs.ellipsis)
    return line
