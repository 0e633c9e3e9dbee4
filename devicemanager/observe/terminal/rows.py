"""Rows of a pane: what there is to show, and how one of it becomes a line."""

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
"""Of one node, in the order of their keys."""
CLUSTER_PANES: Final = (Pane.NODES, Pane.RESOURCES, Pane.EVENTS)
"""Of the nodes in a cluster."""


@attrs.frozen
class LogLine:
    """Something that happened."""

    time: float
    """Seconds since the epoch."""
    text: str
    is_warning: bool = False


@attrs.frozen
class Shown:
    """What rows are made of besides the picture."""

    lines: Sequence[LogLine] | None = None
    """The latest last. None: nobody tells any."""
    now: float = 0.0
    """Seconds since the epoch, for what is going on."""
    glyphs: Glyphs = UNICODE
    whole: bool = False
    """Whether the pane has the screen for itself."""


@attrs.frozen
class Rows(Generic[T]):
    """The rows of a pane. Only those on the screen are made."""

    items: Sequence[T]
    words: Callable[[T], str]
    """What a filter looks at."""
    line: Callable[[T, int], Text]
    """One of them in at most so many cells."""

    def __len__(self) -> int:
        return len(self.items)

    def containing(self, text: str) -> Rows[T]:
        """Those that contain the text, whatever the case."""
        if not text:
            return self
        wanted = text.lower()
        found = [item for item in self.items if wanted in self.words(item).lower()]
        return attrs.evolve(self, items=found)

    def window(self, first: int, height: int, width: int) -> list[Text]:
        """At most ``height`` lines from row ``first`` on."""
        return [self.line(item, width) for item in self.items[first : first + height]]
