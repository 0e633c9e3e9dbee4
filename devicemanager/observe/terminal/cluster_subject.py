"""The live view of a cluster: its panes for nodes, resources and events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import attrs
from rich.text import Text

from devicemanager.observe.terminal.devices import shares
from devicemanager.observe.terminal.panes import PHASES, events
from devicemanager.observe.terminal.rows import CLUSTER_PANES, Pane, Rows, Shown
from devicemanager.observe.terminal.text import STYLES, Glyphs, column, joined, safe
from devicemanager.observe.view import ClusterNodeView, ClusterView, DeviceState, ResourceTotals

__all__ = ["ClusterSubject"]

_HELP: Final = """\
1 nodes      state, allocated devices and pods of each node, and its latest problem
2 resources  device totals of all nodes
3 events     latest events, newest last
"""
_NONE: Final = {
    Pane.NODES: " none has joined yet",
    Pane.RESOURCES: " none",
    Pane.EVENTS: " none yet",
}
_STATES: Final = {"Ready": "green", "NotReady": "bold red", "silent": "magenta"}
_BAR: Final = 24
_GAP: Final = "  "


@attrs.frozen
class ClusterSubject:
    """Content of the screen for a cluster. ``screen.Subject`` documents the members."""

    view: ClusterView
    panes: ClassVar[Sequence[Pane]] = CLUSTER_PANES
    columns: ClassVar[Sequence[Sequence[Pane]]] = ((Pane.RESOURCES, Pane.NODES, Pane.EVENTS),)
    help: ClassVar[str] = _HELP

    @property
    def notes(self) -> Sequence[str]:
        return self.view.notes

    def is_available(self, pane: Pane, shown: Shown) -> bool:
        return pane is not Pane.EVENTS or shown.lines is not None

    def header(self) -> Text:
        view = self.view
        pods: Counter[str] = Counter()
        for node in view.nodes:
            pods.update(dict(node.pods))
        parts = [
            f" {safe(view.source)}",
            "1 node" if len(view.nodes) == 1 else f"{len(view.nodes)} nodes",
        ]
        parts += [_phase(phase, count) for phase, count in sorted(pods.items())]
        return Text("  ".join(parts), "bold")

    def legend(self, glyphs: Glyphs) -> Text:
        legend = Text(" devices of a node: allocated/allocatable  ")
        unhealthy = DeviceState.UNHEALTHY
        return legend.append(f"{glyphs.states[unhealthy]} not allocatable", STYLES[unhealthy])

    def title(self, pane: Pane, glyphs: Glyphs) -> Text:
        title = Text()
        if pane is Pane.NODES:
            # In the order of ``_STATES``, so that the counts keep their order when they change.
            states = Counter(_state(node) for node in self.view.nodes)
            for state, style in _STATES.items():
                if count := states[state]:
                    title.append(f"{count} {state} ", style)
        return title

    def rows(self, pane: Pane, shown: Shown, width: int) -> Rows[Any]:
        match pane:
            case Pane.NODES:
                # Widths for all nodes, so that the columns do not move while the user scrolls.
                columns = _Columns.of(self.view, width)
                return Rows(
                    self.view.nodes,
                    _node_words,
                    lambda node, width: _node_line(node, columns, shown.glyphs, width),
                )
            case Pane.RESOURCES:
                return Rows(
                    self.view.resources,
                    lambda each: each.name,
                    lambda each, width: _resource_line(each, shown.glyphs, width),
                )
        return events(shown)

    def none(self, pane: Pane) -> str:
        return _NONE[pane]


def _state(node: ClusterNodeView) -> str:
    if node.silent:
        return "silent"
    return "Ready" if node.ready else "NotReady"


def _node_words(node: ClusterNodeView) -> str:
    resources = " ".join(each.name for each in node.resources)
    pods = " ".join(phase for phase, _ in node.pods)
    problems = " ".join(node.problems)
    return f"{node.name} {_state(node)} {resources} {pods} {problems} {node.rejection}"


@attrs.frozen
class _Columns:
    """Widths of a node row's columns, in cells."""

    name: int
    devices: int
    pods: int

    @classmethod
    def of(cls, view: ClusterView, width: int) -> _Columns:
        """Return widths that fit the content of all rows, at most a quarter of the line for each
        column."""
        # The rest of the line is for the problems, which are the most important part.
        nodes, most = view.nodes, max(width // 4, 8)
        return cls(
            min(max((len(node.name) for node in nodes), default=0), most),
            min(max((len(_devices(node)) for node in nodes), default=0), most),
            min(max((len(_pods(node)) for node in nodes), default=0), most),
        )


def _devices(node: ClusterNodeView) -> str:
    # Each glyph takes one cell, so ``x`` stands for any of them in this measurement.
    return _GAP.join(_counts(each) + _unavailable(each, "x") for each in node.resources)


def _pods(node: ClusterNodeView) -> str:
    return _GAP.join(_phase(phase, count) for phase, count in node.pods)


def _phase(phase: str, count: int) -> str:
    return f"{count} {safe(phase, 40).lower()}"


def _node_line(node: ClusterNodeView, columns: _Columns, glyphs: Glyphs, width: int) -> Text:
    state, unhealthy = _state(node), DeviceState.UNHEALTHY
    devices = Text(_GAP).join(
        Text(_counts(each)).append(_unavailable(each, glyphs.states[unhealthy]), STYLES[unhealthy])
        for each in node.resources
    )
    pods = Text(_GAP).join(
        Text(_phase(phase, count), PHASES.get(phase, "yellow")) for phase, count in node.pods
    )
    problems = [safe(each) for each in node.problems]
    problems += [f"rejected {safe(node.rejection)}"] if node.rejection else []
    return joined(
        [
            column(node.name, columns.name, "bold", glyphs),
            _GAP,
            column(state, 8, _STATES[state], glyphs),
            _GAP,
            _padded(devices, columns.devices, glyphs),
            _GAP,
            _padded(pods, columns.pods, glyphs),
            _GAP,
            Text("; ".join(problems), "yellow" if node.problems else "dim"),
        ],
        width,
        glyphs,
    )


def _counts(totals: ResourceTotals) -> str:
    """Return the allocated and allocatable devices of a resource, as in ``gpu 3/8``."""
    return f"{safe(totals.name.rpartition('/')[2], 40)} {totals.held}/{totals.allocatable}"


def _unavailable(totals: ResourceTotals, glyph: str) -> str:
    """Return the number of devices that are not allocatable, with a glyph; empty for 0."""
    unavailable = totals.capacity - totals.allocatable
    return f" {unavailable}{glyph}" if unavailable else ""


def _padded(text: Text, width: int, glyphs: Glyphs) -> Text:
    line = joined([text], width, glyphs)
    line.pad_right(max(width - line.cell_len, 0))
    return line


def _resource_line(totals: ResourceTotals, glyphs: Glyphs, width: int) -> Text:
    # Allocated devices can outnumber allocatable ones after devices have failed.
    unavailable = max(totals.capacity - totals.allocatable, 0)
    counts = {
        DeviceState.ALLOCATED: totals.held,
        DeviceState.FREE: max(totals.allocatable - totals.held, 0),
        DeviceState.UNHEALTHY: unavailable,
    }
    # At least one cell for each state, even if the text after the bar is then cut.
    room = min(_BAR, max(width - 60, len(counts)))
    bar = Text()
    for state, share in shares(counts, room).items():
        bar.append(glyphs.states[state] * share, STYLES[state])
    bar.pad_right(max(room - bar.cell_len, 0))
    text = f"{totals.held} allocated of {totals.allocatable} allocatable"
    if unavailable:
        text += f", {unavailable} not allocatable"
    return joined([column(totals.name, 24, "bold", glyphs), " ", bar, " ", text], width, glyphs)
