"""Fit texts to a number of cells on the terminal, even if their content is hostile.

Names and messages come from plugins and manifests, so they must not control the terminal or disturb
a column. Four kinds of characters are shown as escapes: those that control the terminal, those that
can be wider than expected, those that combine with the previous character, and right-to-left ones.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping

import attrs
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from devicemanager.observe.view import DeviceState

__all__ = ["ASCII", "STYLES", "UNICODE", "Glyphs", "column", "joined", "safe", "shortened"]

# Classes of Unicode's bidirectional algorithm: letters and numbers that a terminal can reorder.
_RIGHT_TO_LEFT = {"R", "AL", "AN"}
# Characters above are mostly emoji, whose width differs between terminals.
_LAST_PLAIN = 0xFFFF


@attrs.frozen
class Glyphs:
    """Characters for one kind of terminal. Each state of a device has its own character, so states
    differ even without color."""

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
    """Return the first ``longest`` characters of a text, with unsafe characters escaped.

    Escaped are control characters, combining characters, right-to-left characters, and characters
    above U+FFFF.
    """
    # Cut first, because a message can have megabytes.
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
    """Return a text in at most ``width`` cells, with an ellipsis in the middle if it is too
    long."""
    if width <= 0:
        return ""
    # The end is kept, because IDs of one resource differ mostly at the end.
    tail = min(width // 3, 12)
    # Only the ends of a long text can be visible, so only the ends are escaped.
    if len(text) > 4 * width:
        text = safe(text, 2 * width) + glyphs.ellipsis + safe(text[-width:])
    else:
        text = safe(text)
    if cell_len(text) <= width:
        return text
    if not tail:
        return set_cell_size(text, width)
    end = text[-tail:]
    # A wide character takes two cells, so the last characters can be too wide.
    while cell_len(end) > tail:
        end = end[1:]
    return set_cell_size(text, width - 1 - cell_len(end)) + glyphs.ellipsis + end


def column(text: str, width: int, style: str = "", glyphs: Glyphs = UNICODE) -> Text:
    """Return a text in exactly ``width`` cells, shortened or padded."""
    return Text(set_cell_size(shortened(text, width, glyphs), max(width, 0)), style)


def joined(parts: Iterable[Text | str], width: int, glyphs: Glyphs = UNICODE) -> Text:
    """Join parts to one line of at most ``width`` cells. The parts must be texts that ``safe`` has
    returned."""
    line = Text(no_wrap=True, end="")
    for part in parts:
        line.append(part)
    if line.cell_len > width:
        # One cell is needed for the ellipsis that marks a cut line.
        line.truncate(max(width - 1, 0))
        if width > 0:
            line.append(glyphs.ellipsis)
    return line
