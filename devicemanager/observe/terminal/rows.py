"""Rows of a pane: the items, and the function that renders an item as a line."""

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
    """Name of a pane: a part of the screen that lists objects of one kind."""

    DEVICES = "devices"
    HOLDERS = "holders"
    PLUGINS = "plugins"
    PODS = "pods"
    EVENTS = "events"
    DRIVERS = "drivers"
    CLAIMS = "claims"
    NODES = "nodes"
    RESOURCES = "resources"


NODE_PANES: Final = (
    Pane.DEVICES,
    Pane.HOLDERS,
    Pane.PLUGINS,
    Pane.PODS,
    Pane.EVENTS,
    Pane.DRIVERS,
    Pane.CLAIMS,
)
"""Panes of one node. The keys 1, 2, … select them in this order."""
CLUSTER_PANES: Final = (Pane.NODES, Pane.RESOURCES, Pane.EVENTS)
"""Panes of a cluster. The keys 1, 2, … select them in this order."""


@attrs.frozen
class LogLine:
    """A line of the event log."""

    time: float
    """Seconds since the epoch."""
    text: str
    is_warning: bool = False


@attrs.frozen
class Shown:
    """Data that rows show in addition to the view: log lines, the time and glyphs."""

    lines: Sequence[LogLine] | None = None
    """Lines of the event log, oldest first; None if the view has no event log."""
    now: float = 0.0
    """Current time in seconds since the epoch, to compute how long a call has been in progress."""
    glyphs: Glyphs = UNICODE
    whole: bool = False
    """True if the pane fills the screen."""


@attrs.frozen
class Rows(Generic[T]):
    """Rows of a pane. Only the rows on the screen are rendered."""

    items: Sequence[T]
    words: Callable[[T], str]
    """Function that returns the text of an item. The filter searches this text."""
    line: Callable[[T, int], Text]
    """Function that renders an item as a line of at most the given number of cells."""

    def __len__(self) -> int:
        return len(self.items)

    def containing(self, text: str) -> Rows[T]:
        """Return the rows whose text contains ``text``, ignoring case."""
        # Without a filter, no texts are built, because a node can have 10,000 devices.
        if not text:
            return self
        wanted = text.lower()
        matching = [item for item in self.items if wanted in self.words(item).lower()]
        return attrs.evolve(self, items=matching)

    def window(self, first: int, height: int, width: int) -> list[Text]:
        """Return at most ``height`` rendered rows, starting at row number ``first``."""
        # Only this method renders rows, so the cost depends on the screen and not on the node.
        return [self.line(item, width) for item in self.items[first : first + height]]
