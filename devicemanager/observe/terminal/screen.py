"""Render the whole screen as lines. Pure functions; they work for any size of the screen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Protocol, TypeAlias

import attrs
from rich.text import Text

from devicemanager.observe.terminal.cluster_subject import ClusterSubject
from devicemanager.observe.terminal.keys import ScreenState
from devicemanager.observe.terminal.node_subject import NodeSubject
from devicemanager.observe.terminal.rows import Pane, Rows, Shown
from devicemanager.observe.terminal.text import Glyphs, joined, safe
from devicemanager.observe.view import ClusterView, NodeView

__all__ = ["Screen", "View", "draw", "whole"]

# Width from which the overview has two columns.
_WIDE = 150

View: TypeAlias = NodeView | ClusterView
"""Data that the screen shows: the view of one node or the view of a cluster."""

_HELP = """\
Tab          next pane; Shift-Tab: previous pane
up down k j  scroll by a row; PageUp PageDown b f: a page; Home End g G: to the end
/            show only rows that contain the typed text; Enter: done
space        pause or resume
q            quit, like Ctrl-C; Ctrl-Z suspends until `fg`
"""
_ALL = "0            all panes{others}; Escape also removes the filter\n"


class Subject(Protocol):
    """Content of the screen for a view: its panes, with their titles and rows."""

    @property
    def panes(self) -> Sequence[Pane]:
        """Panes in the order of their number keys."""

    @property
    def columns(self) -> Sequence[Sequence[Pane]]:
        """Panes of the overview, as one sequence per column. A narrow screen shows all panes in one
        column."""

    @property
    def notes(self) -> Sequence[str]:
        """Lines that say what the source of the view does not report."""

    @property
    def help(self) -> str:
        """Help for the number keys of the panes, one line per key."""

    def is_available(self, pane: Pane, shown: Shown) -> bool:
        """True if the pane can be shown. False if the view's source does not report the content of
        the pane. Also False for the DRA panes of a node without drivers, claims and slices."""

    def header(self) -> Text:
        """Return the first line of the screen."""

    def legend(self, glyphs: Glyphs) -> Text:
        """Return the line that explains the glyphs. It is shown below the help."""

    def title(self, pane: Pane, glyphs: Glyphs) -> Text:
        """Return the text to show after a pane's name, such as device counts. It is empty or ends
        with a space."""

    def rows(self, pane: Pane, shown: Shown, width: int) -> Rows[Any]:
        """Return the rows of a pane that is ``width`` cells wide."""

    def none(self, pane: Pane) -> str:
        """Return the text to show in a pane without rows."""


def _subject(view: View) -> Subject:
    return NodeSubject(view) if isinstance(view, NodeView) else ClusterSubject(view)


@attrs.frozen
class Screen:
    """The lines of the screen, and how far it can be scrolled."""

    lines: tuple[Text, ...]
    """One line for each row of the screen; no line is wider than the screen."""
    page: int = 1
    """Number of rows that PageDown scrolls."""
    last: int = 0
    """Greatest possible scroll position of the selected pane (``ScreenState.offset``)."""
    panes: Sequence[Pane] = ()
    """Panes in the order of their number keys."""


def draw(
    view: View,
    state: ScreenState,
    width: int,
    height: int,
    shown: Shown,
    notice: str = "",
    about: Sequence[str] = (),
) -> Screen:
    """Render a screen of ``width`` cells and ``height`` rows.

    ``notice`` is a message of the program for the second line. ``about`` are lines to show below
    the help, such as the addresses of servers.
    """
    subject = _subject(view)
    head = [_header(subject, state, width, shown.glyphs)]
    if notice:
        head.append(joined([Text(f" {safe(notice)}", "bold yellow")], width, shown.glyphs))
    body = max(height - len(head) - 1, 0)
    last = 0
    if state.help:
        middle = _help(subject, about, shown.glyphs, width)
    elif state.pane is not None:
        middle, last = _alone(subject, state, width, body, shown)
    elif width >= _WIDE and len(subject.columns) == 2:
        middle = _two_columns(subject, width, body, shown)
    else:
        middle = _stacked(_panes(subject, shown, _overview(subject), width), width, body, shown)
    # Notes are shown only if there is room for them in addition to all rows.
    if not state.help and len(middle) + len(subject.notes) < body:
        middle += [Text(), *_notes(subject, width, shown.glyphs)]
    lines = [*head, *middle[:body]]
    # Fill up to ``height`` lines, so that the line with the keys is at the bottom.
    lines += [Text()] * (height - 1 - len(lines))
    lines.append(_keys_line(subject, state, width, shown))
    # One row of the body is the title of the pane. At least 1, so that PageDown always moves.
    return Screen(tuple(lines[:height]), max(body - 1, 1), last, subject.panes)


def _overview(subject: Subject) -> list[Pane]:
    return [pane for column in subject.columns for pane in column]


# -- first and last line -------------------------------------------------------------------


def _header(subject: Subject, state: ScreenState, width: int, glyphs: Glyphs) -> Text:
    line = subject.header()
    if state.paused:
        line.append("  paused", "bold yellow")
    line = joined([line], width, glyphs)
    line.pad_right(max(width - line.cell_len, 0))
    # Padded first, so that the reversed background reaches the edge of the screen.
    line.stylize("reverse")
    return line


def _keys_line(subject: Subject, state: ScreenState, width: int, shown: Shown) -> Text:
    glyphs = shown.glyphs
    if state.typing:
        return joined([Text(" /", "bold"), safe(state.filter), Text("_", "blink")], width, glyphs)
    line = Text(" ")
    for number, pane in enumerate([None, *subject.panes]):
        if pane is not None and not subject.is_available(pane, shown):
            continue
        style = "bold reverse" if pane is state.pane else "bold"
        line.append(str(number), style).append(f" {pane or 'all'} ", "")
    keys = f"{glyphs.arrows} / filter ? help q quit"
    if state.filter:
        keys = f"only {safe(state.filter)!r} (Esc) {keys}"
    return joined([line, Text(keys, "dim")], width, glyphs)


def _help(subject: Subject, about: Sequence[str], glyphs: Glyphs, width: int) -> list[Text]:
    # A pane can show the same objects as another one, with more details.
    overview = _overview(subject)
    others = [pane for pane in subject.panes if pane not in overview]
    text = _ALL.format(others=f" except {', '.join(others)}" if others else "")
    text += subject.help + _HELP
    return [
        *(joined([f" {line}"], width, glyphs) for line in text.splitlines()),
        joined([subject.legend(glyphs)], width, glyphs),
        Text(),
        *(line for text in about for line in _folded(text, width)),
        *_notes(subject, width, glyphs),
    ]


def _folded(text: str, width: int) -> list[Text]:
    """Return a text on as many lines as it needs, because a cut address would be useless."""
    text, room = safe(text), max(width - 2, 1)
    return [
        joined([f" {text[start : start + room]}"], width) for start in range(0, len(text), room)
    ]


def _notes(subject: Subject, width: int, glyphs: Glyphs) -> list[Text]:
    return [joined([Text(f" {safe(note)}", "dim")], width, glyphs) for note in subject.notes]


# -- panes ---------------------------------------------------------------------------------


@attrs.frozen
class _Placed:
    subject: Subject
    pane: Pane
    rows: Rows[object]


def _panes(subject: Subject, shown: Shown, panes: Sequence[Pane], width: int) -> list[_Placed]:
    return [
        _Placed(subject, pane, subject.rows(pane, shown, width))
        for pane in panes
        if subject.is_available(pane, shown)
    ]


def _stacked(panes: Sequence[_Placed], width: int, height: int, shown: Shown) -> list[Text]:
    """Render panes one above the other, each with a title line."""
    lines: list[Text] = []
    for placed, share in zip(
        panes, _shares([len(each.rows) for each in panes], height), strict=True
    ):
        if share:
            lines += _pane(placed, width, share, shown)
    return lines


def _shares(wanted: Sequence[int], height: int) -> list[int]:
    """Divide ``height`` rows among panes. ``wanted`` has the number of rows of each pane, without
    its title.

    A pane gets at most as many rows as it needs, and panes that need more get equal shares.
    """
    shares = [0] * len(wanted)
    # Each pane gets one row at a time. The number of rows is small, so this is fast enough.
    while height > 0:
        # A pane needs a row for its title, and one for a text even if it has no rows.
        hungry = [number for number, rows in enumerate(wanted) if shares[number] < max(rows, 1) + 1]
        if not hungry:
            break
        # If fewer rows than panes are left, the first panes get them.
        for number in hungry[:height]:
            shares[number] += 1
        height -= min(len(hungry), height)
    return shares


def _pane(placed: _Placed, width: int, height: int, shown: Shown) -> list[Text]:
    subject, pane, its_rows = placed.subject, placed.pane, placed.rows
    count, room = len(its_rows), height - 1
    hidden = count - room
    # Events are sorted oldest first, and the newest are shown.
    first = max(hidden, 0) if pane is Pane.EVENTS else 0
    more = f" {hidden} more" if hidden > 0 else ""
    title = _title(subject, pane, width, shown.glyphs, more)
    lines = its_rows.window(first, room, width)
    if not count and room:
        lines = [joined([Text(subject.none(pane), "dim")], width, shown.glyphs)]
    return [title, *lines]


def _title(subject: Subject, pane: Pane, width: int, glyphs: Glyphs, more: str) -> Text:
    line = Text(f"{glyphs.line} ", "blue").append(f"{pane.value.capitalize()} ", "bold blue")
    line.append_text(subject.title(pane, glyphs))
    line.append(f"{more.strip()} " if more else "", "dim")
    line = joined([line], width, glyphs)
    return line.append(glyphs.line * max(width - line.cell_len, 0), "blue")


def _alone(
    subject: Subject, state: ScreenState, width: int, height: int, shown: Shown
) -> tuple[list[Text], int]:
    """Render only the selected pane. Return its lines and its greatest possible offset."""
    pane = state.pane
    assert pane is not None
    room = max(height - 1, 0)
    its_rows = subject.rows(pane, attrs.evolve(shown, whole=True), width)
    its_rows = its_rows.containing(state.filter)
    count = len(its_rows)
    last = max(count - room, 0)
    offset = min(state.offset, last)
    # The offset of events counts from the end, so that the newest events are visible at 0.
    first = last - offset if pane is Pane.EVENTS else offset
    where = f" {first + 1}-{min(first + room, count)} of {count}" if count > room > 0 else ""
    title = _title(subject, pane, width, shown.glyphs, where)
    lines = its_rows.window(first, room, width)
    if not count:
        none = f" nothing contains {safe(state.filter)!r}" if state.filter else subject.none(pane)
        lines = [joined([Text(none, "dim")], width, shown.glyphs)]
    return [title, *lines], last


def _two_columns(subject: Subject, width: int, height: int, shown: Shown) -> list[Text]:
    left_width = width // 2 - 1
    right_width = width - left_width - 2
    columns = [
        _stacked(_panes(subject, shown, panes, its_width), its_width, height, shown)
        for panes, its_width in zip(subject.columns, (left_width, right_width), strict=True)
    ]
    lines = []
    for left, right in zip_longest(*columns, fillvalue=Text()):
        # Copied before it is padded, because ``fillvalue`` is one object for all missing lines.
        line = left.copy()
        line.pad_right(max(left_width + 2 - line.cell_len, 0))
        lines.append(line.append_text(right))
    return lines


def whole(view: NodeView, width: int, glyphs: Glyphs) -> list[Text]:
    """Render all rows of the panes of the overview, for output to a file or a pipe."""
    subject, shown = _subject(view), Shown(glyphs=glyphs)
    lines = [Text(safe(view.source), "bold")]
    for placed in _panes(subject, shown, _overview(subject), width):
        lines += _pane(placed, width, max(len(placed.rows), 1) + 1, shown)
    return [*lines, *_notes(subject, width, glyphs)]
