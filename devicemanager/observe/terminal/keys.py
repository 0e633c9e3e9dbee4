"""Keys: from the bytes that a terminal sends to what the screen is to show. Pure."""

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
    " ": "hold",
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
    """What is looked at."""

    pane: Pane | None = None
    """The one that has the screen for itself; None shows all."""
    offset: int = 0
    """The first row of that pane that is shown; of events, how many of the latest are not."""
    filter: str = ""
    typing: bool = False
    """Whether keys go into the filter."""
    held: bool = False
    """Whether the picture stands still."""
    help: bool = False
    quit: bool = False


def keys(data: bytes) -> Iterator[str]:
    """The keys of one read from the terminal: a name, or a character. What is no key that we
    know is ``unknown``."""
    text = data.decode("utf-8", "replace")
    while text:
        length = _sequence_length(text) if text[0] == _ESCAPE else 1
        if text[0] != _ESCAPE:
            yield text[0]
        else:
            yield "escape" if length == 1 else _SEQUENCES.get(text[1:length], "unknown")
        text = text[length:]


def _sequence_length(text: str) -> int:
    """How many characters at its beginning are one key."""
    if len(text) < 2 or text[1] not in "[O":
        return 1
    if text[1] == "O":
        return min(len(text), 3)
    for number, character in enumerate(text[2:], 3):
        if "@" <= character <= "~":
            return number
    return len(text)


def pressed(
    state: ScreenState, key: str, page: int, last: int, panes: Sequence[Pane] = NODE_PANES
) -> ScreenState:
    """The state after a key. A screen has ``page`` rows; ``last`` is the greatest offset; the
    keys 1, 2 and so on are those of the ``panes``."""
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
        case "hold":
            return attrs.evolve(state, held=not state.held)
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
        step = -step
    offset = min(state.offset, last) + step
    return attrs.evolve(state, offset=min(max(offset, 0), last))


def _typed(state: ScreenState, key: str) -> ScreenState:
    match key:
        case "\r" | "\n":
            return attrs.evolve(state, typing=False)
        case "escape":
            return attrs.evolve(state, typing=False, filter="")
        case "\x7f" | "\b":
            return attrs.evolve(state, filter=state.filter[:-1])
    if len(key) == 1 and key.isprintable() and len(state.filter) < _LONGEST_FILTER:
        return attrs.evolve(state, filter=state.filter + key)
    return state
