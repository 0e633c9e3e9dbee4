"""The whole screen as lines: pure, of any size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import attrs
from rich.text import Text

from devicemanager.terminal.devices import counted
from devicemanager.terminal.keys import ScreenState
from devicemanager.terminal.panes import rows
from devicemanager.terminal.rows import Pane, Rows, Shown
from devicemanager.terminal.text import STYLES, Glyphs, joined, safe
from devicemanager.view import DeviceState, NodeView

__all__ = ["Screen", "draw", "whole"]

_WIDE = 150
"""From so many cells on there are two columns."""

_OVERVIEW = (Pane.DEVICES, Pane.PLUGINS, Pane.PODS, Pane.EVENTS)

_HELP = """\
0            everything at once; Escape does the same and drops the filter
1 devices    a cell for each device, by resource and NUMA node
2 holders    device by device: its state, its NUMA nodes, who holds it
3 plugins    their streams, and what they are asked or were asked last
4 pods       with their containers
5 events     what happened, the latest at the end
Tab          the next of these; Shift-Tab the one before
up down k j  a row; PageUp PageDown b f a page; Home End g G all the way
/            shows only rows that contain what you type; Enter ends typing
space        holds the picture still, and lets it go on
q            quits, as Ctrl-C does; Ctrl-Z stops until `fg`
"""


@attrs.frozen
class Screen:
    """What is to be seen, and how far it may be scrolled."""

    lines: tuple[Text, ...]
    """As many as the screen has rows, none wider than the screen."""
    page: int = 1
    """Rows of a pane that has the screen for itself."""
    last: int = 0
    """The greatest offset."""


def draw(
    picture: NodeView,
    state: ScreenState,
    width: int,
    height: int,
    shown: Shown,
    notice: str = "",
    about: Sequence[str] = (),
) -> Screen:
    """The screen of so many cells and rows. ``notice`` is what the program itself has to say,
    such as what it waits for; ``about`` stands below the help, such as where it serves."""
    head = [_header(picture, state, width, shown.glyphs)]
    if notice:
        head.append(joined([Text(f" {safe(notice)}", "bold yellow")], width, shown.glyphs))
    body = max(height - len(head) - 1, 0)
    last = 0
    if state.help:
        middle = _help(picture, about, shown.glyphs, width)
    elif state.pane is not None:
        middle, last = _alone(picture, state, width, body, shown)
    elif width >= _WIDE:
        middle = _two_columns(picture, width, body, shown)
    else:
        middle = _stacked(_panes(picture, shown, _OVERVIEW, width), picture, width, body, shown)
    if not state.help and len(middle) + len(picture.notes) < body:
        middle += [Text(), *_notes(picture, width, shown.glyphs)]
    lines = [*head, *middle[:body]]
    lines += [Text()] * (height - 1 - len(lines))
    lines.append(_keys_line(picture, state, width, shown))
    return Screen(tuple(lines[:height]), max(body - 1, 1), last)


# -- first and last line -------------------------------------------------------------------


def _header(picture: NodeView, state: ScreenState, width: int, glyphs: Glyphs) -> Text:
    parts = [f" {safe(picture.name)}" if picture.name else f" {safe(picture.source)}"]
    if picture.kubelet_version:
        parts.append(f"kubelet {safe(picture.kubelet_version)}")
    if picture.policy:
        parts.append(f"topology {safe(picture.policy)}/{safe(picture.scope)}")
    line = Text("  ".join(parts), "bold")
    if not picture.serving:
        line.append("  stopped", "bold red")
    if state.held:
        line.append("  held still", "bold yellow")
    line = joined([line], width, glyphs)
    line.pad_right(max(width - line.cell_len, 0))
    line.stylize("reverse")
    return line


def _keys_line(picture: NodeView, state: ScreenState, width: int, shown: Shown) -> Text:
    glyphs = shown.glyphs
    if state.typing:
        return joined([Text(" /", "bold"), safe(state.filter), Text("_", "blink")], width, glyphs)
    line = Text(" ")
    for number, pane in enumerate([None, *Pane]):
        if pane is not None and not _is_told(pane, picture, shown):
            continue
        style = "bold reverse" if pane is state.pane else "bold"
        line.append(str(number), style).append(f" {pane or 'all'} ", "")
    rest = f"{glyphs.arrows} / filter ? help q quit"
    if state.filter:
        rest = f"only {safe(state.filter)!r} (Esc) {rest}"
    return joined([line, Text(rest, "dim")], width, glyphs)


def _help(picture: NodeView, about: Sequence[str], glyphs: Glyphs, width: int) -> list[Text]:
    legend = Text(" ")
    for state in DeviceState:
        legend.append(f"{glyphs.states[state]} {state}  ", STYLES[state])
    return [
        *(joined([f" {line}"], width, glyphs) for line in _HELP.splitlines()),
        joined([legend], width, glyphs),
        Text(),
        *(line for text in about for line in _folded(text, width)),
        *_notes(picture, width, glyphs),
    ]


def _folded(text: str, width: int) -> list[Text]:
    """All of a text, on as many lines as it takes: addresses are of no use if they are cut."""
    text, room = safe(text), max(width - 2, 1)
    return [
        joined([f" {text[start : start + room]}"], width) for start in range(0, len(text), room)
    ]


def _notes(picture: NodeView, width: int, glyphs: Glyphs) -> list[Text]:
    """What this source cannot tell."""
    return [joined([Text(f" {safe(note)}", "dim")], width, glyphs) for note in picture.notes]


# -- panes ---------------------------------------------------------------------------------


@attrs.frozen
class _Placed:
    pane: Pane
    rows: Rows[object]


def _is_told(pane: Pane, picture: NodeView, shown: Shown) -> bool:
    """Whether this source tells of what the pane shows."""
    if pane is Pane.PLUGINS:
        return picture.plugins is not None
    return pane is not Pane.EVENTS or shown.lines is not None


def _panes(picture: NodeView, shown: Shown, panes: Sequence[Pane], width: int) -> list[_Placed]:
    return [
        _Placed(pane, rows(pane, picture, shown, width))
        for pane in panes
        if _is_told(pane, picture, shown)
    ]


def _stacked(
    panes: Sequence[_Placed], picture: NodeView, width: int, height: int, shown: Shown
) -> list[Text]:
    """One above the other, each with a title."""
    lines: list[Text] = []
    for placed, share in zip(
        panes, _shares([len(each.rows) for each in panes], height), strict=True
    ):
        if share:
            lines += _pane(placed, picture, width, share, shown)
    return lines


def _shares(wanted: Sequence[int], height: int) -> list[int]:
    """Rows of each pane, title included: those that want little get it, the others the same."""
    shares = [0] * len(wanted)
    while height > 0:
        hungry = [number for number, rows in enumerate(wanted) if shares[number] < max(rows, 1) + 1]
        if not hungry:
            break
        for number in hungry[:height]:
            shares[number] += 1
        height -= min(len(hungry), height)
    return shares


def _pane(placed: _Placed, picture: NodeView, width: int, height: int, shown: Shown) -> list[Text]:
    pane, its_rows = placed.pane, placed.rows
    count, room = len(its_rows), height - 1
    hidden = count - room
    first = max(hidden, 0) if pane is Pane.EVENTS else 0
    more = f" {hidden} more" if hidden > 0 else ""
    title = _title(pane, picture, width, shown.glyphs, more)
    lines = its_rows.window(first, room, width)
    if not count and room:
        lines = [joined([Text(_NONE[pane], "dim")], width, shown.glyphs)]
    return [title, *lines]


_NONE = {
    Pane.DEVICES: " none: no plugin has registered a resource",
    Pane.HOLDERS: " none: no plugin has registered a resource",
    Pane.PLUGINS: " none has registered",
    Pane.PODS: " none",
    Pane.EVENTS: " none yet",
}


def _title(pane: Pane, picture: NodeView, width: int, glyphs: Glyphs, more: str) -> Text:
    line = Text(f"{glyphs.line} ", "blue").append(f"{pane.value.capitalize()} ", "bold blue")
    if pane in (Pane.DEVICES, Pane.HOLDERS):
        states = [resource.states for resource in picture.resources]
        line.append_text(counted((), glyphs, *states, words=True)).append(" ")
    elif pane is Pane.PODS and picture.pods:
        line.append(f"{len(picture.pods)} ", "blue")
    line.append(f"{more.strip()} " if more else "", "dim")
    line = joined([line], width, glyphs)
    return line.append(glyphs.line * max(width - line.cell_len, 0), "blue")


def _alone(
    picture: NodeView, state: ScreenState, width: int, height: int, shown: Shown
) -> tuple[list[Text], int]:
    """The pane that is looked at, and the greatest offset."""
    pane = state.pane
    assert pane is not None
    room = max(height - 1, 0)
    its_rows = rows(pane, picture, attrs.evolve(shown, whole=True), width)
    its_rows = its_rows.containing(state.filter)
    count = len(its_rows)
    last = max(count - room, 0)
    offset = min(state.offset, last)
    first = last - offset if pane is Pane.EVENTS else offset
    where = f" {first + 1}-{min(first + room, count)} of {count}" if count > room > 0 else ""
    title = _title(pane, picture, width, shown.glyphs, where)
    lines = its_rows.window(first, room, width)
    if not count:
        none = f" nothing contains {safe(state.filter)!r}" if state.filter else _NONE[pane]
        lines = [joined([Text(none, "dim")], width, shown.glyphs)]
    return [title, *lines], last


def _two_columns(picture: NodeView, width: int, height: int, shown: Shown) -> list[Text]:
    left_width = width // 2 - 1
    right_width = width - left_width - 2
    columns = [
        _stacked(_panes(picture, shown, panes, its_width), picture, its_width, height, shown)
        for panes, its_width in (
            ((Pane.DEVICES, Pane.PLUGINS), left_width),
            ((Pane.PODS, Pane.EVENTS), right_width),
        )
    ]
    lines = []
    for left, right in zip_longest(*columns, fillvalue=Text()):
        line = left.copy()
        line.pad_right(max(left_width + 2 - line.cell_len, 0))
        lines.append(line.append_text(right))
    return lines


def whole(picture: NodeView, width: int, glyphs: Glyphs) -> list[Text]:
    """All that there is to see, however many lines that takes; for once, not for a screen."""
    shown = Shown(glyphs=glyphs)
    lines = [Text(safe(picture.source), "bold")]
    for placed in _panes(picture, shown, _OVERVIEW, width):
        lines += _pane(placed, picture, width, max(len(placed.rows), 1) + 1, shown)
    return [*lines, *_notes(picture, width, glyphs)]
