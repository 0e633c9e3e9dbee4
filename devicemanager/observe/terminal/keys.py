"""Compute the new state of the screen from the bytes that a terminal sends. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from devicemanager.observe.terminal.rows import NODE_PANES, Pane

__all__ = ["ScreenState", "keys", "pressed"]

_ESCAPE = "\x1b"
_SEQUENCES: Mapping[str, str] = {
    "[A": "up",
    "[B": "down",
    "OA": "up",
    "OB": "down",
    "[5~": "page-up",
    "[6~": "page-down",
    "[H": "home",
    "[F": "end",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
    "[Z": "back-tab",
}
_NAMES: Mapping[str, str] = {
    "k": "up",
    "j": "down",
    "b": "page-up",
    "f": "page-down",
    " ": "pause",
    "g": "home",
    "G": "end",
    "\t": "tab",
    "q": "quit",
    "?": "help",
    "h": "help",
    "/": "filter",
    "0": "all",
}
_LONGEST_FILTER = 60


@attrs.frozen
class ScreenState:
    """State of the screen: pane, scroll position, filter, pause, help and quit.

    ``pressed`` returns the new state after a key is pressed.
    """

    pane: Pane | None = None
    """The pane that fills the screen; None for the overview, which shows several panes."""
    offset: int = 0
    """Number of hidden rows above the visible rows. In the pane of events, number of hidden rows
    below the visible rows."""
    filter: str = ""
    typing: bool = False
    """True while the user types the filter."""
    paused: bool = False
    """True while the view is not updated."""
    help: bool = False
    quit: bool = False


def keys(data: bytes) -> Iterator[str]:
    """Yield the pressed keys. ``data`` has the bytes that ``Terminal.read`` returned.

    A key is a character, or a name such as ``up``. An unknown escape sequence has the name
    ``unknown``.
    """
    # An escape sequence is assumed to arrive in one read, so a lone escape is the Escape key.
    text = data.decode("utf-8", "replace")
    while text:
        length = _sequence_length(text) if text[0] == _ESCAPE else 1
        if text[0] != _ESCAPE:
            yield text[0]
        else:
            yield "escape" if length == 1 else _SEQUENCES.get(text[1:length], "unknown")
        text = text[length:]


def _sequence_length(text: str) -> int:
    """Return the number of characters of the first key in a text that starts with an escape."""
    if len(text) < 2 or text[1] not in "[O":
        return 1
    # An SS3 sequence always has exactly one more character.
    if text[1] == "O":
        return min(len(text), 3)
    # A CSI sequence ends with the first character in this range (ECMA-48).
    for number, character in enumerate(text[2:], 3):
        if "@" <= character <= "~":
            return number
    return len(text)


def pressed(
    state: ScreenState, key: str, page: int, last: int, panes: Sequence[Pane] = NODE_PANES
) -> ScreenState:
    """Return the state of the screen after a key is pressed. ``page`` is the number of rows that
    PageDown scrolls. ``last`` is the greatest possible offset. The keys 1, 2, … select one of the
    ``panes``."""
    # Checked first, because letters are not commands while the user types a filter.
    if state.typing:
        return _typed(state, key)
    if state.help:
        return attrs.evolve(state, help=False, quit=key == "q")
    if len(key) == 1 and key in "123456789"[: len(panes)]:
        return attrs.evolve(state, pane=panes[int(key) - 1], offset=0)
    match _NAMES.get(key, key):
        case "quit":
            return attrs.evolve(state, quit=True)
        case "help":
            return attrs.evolve(state, help=True)
        case "pause":
            return attrs.evolve(state, paused=not state.paused)
        case "filter":
            return attrs.evolve(state, typing=True, filter="", offset=0)
        case "all":
            return attrs.evolve(state, pane=None, offset=0)
        case "escape":
            return attrs.evolve(state, pane=None, offset=0, filter="")
        case "tab":
            return attrs.evolve(state, pane=_next(state.pane, 1, panes), offset=0)
        case "back-tab":
            return attrs.evolve(state, pane=_next(state.pane, -1, panes), offset=0)
        case name:
            return _scrolled(state, name, page, last)


def _next(pane: Pane | None, step: int, panes: Sequence[Pane]) -> Pane | None:
    order: list[Pane | None] = [None, *panes]
    return order[(order.index(pane) + step) % len(order)]


def _scrolled(state: ScreenState, key: str, page: int, last: int) -> ScreenState:
    down = {"up": -1, "down": 1, "page-up": -page, "page-down": page, "home": -last, "end": last}
    step = down.get(key, 0)
    if state.pane is Pane.EVENTS:
        # Counted from the end, so that new events do not move the visible rows.
        step = -step
    # The list may have become shorter since the offset was set.
    offset = min(state.offset, last) + step
    return attrs.evolve(state, offset=min(max(offset, 0), last))


def _typed(state: ScreenState, key: str) -> ScreenState:
    match key:
        # Enter sends a carriage return, which some terminal modes convert to a line feed.
        case "\r" | "\n":
            return attrs.evolve(state, typing=False)
        case "escape":
            return attrs.evolve(state, typing=False, filter="")
        # Terminals send one or the other for Backspace.
        case "\x7f" | "\b":
            return attrs.evolve(state, filter=state.filter[:-1])
    if len(key) == 1 and key.isprintable() and len(state.filter) < _LONGEST_FILTER:
        return attrs.evolve(state, filter=state.filter + key)
    return state
