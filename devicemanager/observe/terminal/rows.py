"""Rows of a pane: its items, and how one item becomes a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Generic, TypeVar

import attrs
from rich.text import Text

from devicemanager.observe.terminal.text import UNICODE, Glyphs

__all__ = ["CLUSTER_PANES", "NODE_PANES", "LogLine", "Pane", "Rows", "Shown"]

T = TypeVar("T")


class Pane(StrEnum):
    """A part of the screen."""

    DEVICES = "devices"
    HOLDERS = "holders"
    PLUGINS = "plugins"
    PODS = "pods"
    EVENTS = "events"
    NODES = "nodes"
    RESOURCES = "resources"


NODE_PANES: Final = (Pane.DEVICES, Pane.HOLDERS, Pane.PLUGINS, Pane.PODS, Pane.EVENTS)
"""Panes of one node, in the order of their keys."""
CLUSTER_PANES: Final = (Pane.NODES, Pane.RESOURCES, Pane.EVENTS)
"""Panes of a cluster, in the order of their keys."""


@attrs.frozen
class LogLine:
    """One line of the log."""

    time: float
    """Seconds since the epoch."""
    text: str
    is_warning: bool = False


@attrs.frozen
class Shown:
    """Inputs of the rows other than the view."""

    lines: Sequence[LogLine] | None = None
    """Oldest first; None if there is no event source."""
    now: float = 0.0
    """Seconds since the epoch, for the duration of calls in progress."""
    glyphs: Glyphs = UNICODE
    whole: bool = False
    """True if the pane fills the screen."""


@attrs.frozen
class Rows(Generic[T]):
    """Rows of a pane. Only those on the screen are rendered."""

    items: Sequence[T]
    words: Callable[[T], str]
    """Returns the text of an item that the filter searches."""
    line: Callable[[T, int], Text]
    """Renders an item in at most the given number of cells."""

    def __len__(self) -> int:
        return len(self.items)

    def containing(self, text: str) -> Rows[T]:
        """Return the rows that contain the text, ignoring case."""
        if not text:
            return self
        wanted = text.lower()
        matching = [item for item in self.items if wanted in self.words(item).lower()]
        return attrs.evolve(self, items=matching)

    def window(self, first: int, height: int, width: int) -> list[Text]:
        """Render at most ``height`` rows, starting at row ``first``."""
        # The only place that renders rows: the cost is that of the screen, not of the node.
        return [self.line(item, width) for item in self.items[first : first + height]]
