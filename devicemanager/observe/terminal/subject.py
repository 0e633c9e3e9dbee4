"""What a screen shows: the parts in which pictures differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rich.text import Text

from devicemanager.observe.terminal.rows import Pane, Rows, Shown
from devicemanager.observe.terminal.text import Glyphs

__all__ = ["Subject"]


class Subject(Protocol):
    """One picture, as far as a screen has to know it."""

    @property
    def panes(self) -> Sequence[Pane]:
        """In the order of their keys."""

    @property
    def columns(self) -> Sequence[Sequence[Pane]]:
        """The panes that are seen at once, by the column where there is room for several."""

    @property
    def notes(self) -> Sequence[str]:
        """What the picture's source cannot tell."""

    @property
    def help(self) -> str:
        """A line for the key of each pane."""

    def is_told(self, pane: Pane, shown: Shown) -> bool:
        """Whether the source tells of what the pane shows."""

    def header(self) -> Text:
        """The first line."""

    def legend(self, glyphs: Glyphs) -> Text:
        """What the shapes mean; below the help."""

    def title(self, pane: Pane, glyphs: Glyphs) -> Text:
        """What stands behind the name of a pane; empty, or with a space at its end."""

    def rows(self, pane: Pane, shown: Shown, width: int) -> Rows[Any]:
        """The rows of a pane that is so many cells wide."""

    def none(self, pane: Pane) -> str:
        """What is said in place of rows."""
