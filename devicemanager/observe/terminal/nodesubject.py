"""One node on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import attrs
from rich.text import Text

from devicemanager.observe.terminal.devices import counted
from devicemanager.observe.terminal.panes import rows as rows_of
from devicemanager.observe.terminal.rows import NODE_PANES, Pane, Rows, Shown
from devicemanager.observe.terminal.text import STYLES, Glyphs, safe
from devicemanager.observe.view import DeviceState, NodeView

__all__ = ["NodeSubject"]

_HELP: Final = """\
1 devices    a cell for each device, by resource and NUMA node
2 holders    device by device: its state, its NUMA nodes, who holds it
3 plugins    their streams, and what they are asked or were asked last
4 pods       with their containers
5 events     what happened, the latest at the end
"""
_NONE: Final = {
    Pane.DEVICES: " none: no plugin has registered a resource",
    Pane.HOLDERS: " none: no plugin has registered a resource",
    Pane.PLUGINS: " none has registered",
    Pane.PODS: " none",
    Pane.EVENTS: " none yet",
}


@attrs.frozen
class NodeSubject:
    """See ``Subject``."""

    picture: NodeView
    panes: ClassVar[Sequence[Pane]] = NODE_PANES
    columns: ClassVar[Sequence[Sequence[Pane]]] = (
        (Pane.DEVICES, Pane.PLUGINS),
        (Pane.PODS, Pane.EVENTS),
    )
    help: ClassVar[str] = _HELP

    @property
    def notes(self) -> Sequence[str]:
        return self.picture.notes

    def is_told(self, pane: Pane, shown: Shown) -> bool:
        if pane is Pane.PLUGINS:
            return self.picture.plugins is not None
        return pane is not Pane.EVENTS or shown.lines is not None

    def header(self) -> Text:
        picture = self.picture
        parts = [f" {safe(picture.name)}" if picture.name else f" {safe(picture.source)}"]
        if picture.kubelet_version:
            parts.append(f"kubelet {safe(picture.kubelet_version)}")
        if picture.policy:
            parts.append(f"topology {safe(picture.policy)}/{safe(picture.scope)}")
        line = Text("  ".join(parts), "bold")
        if not picture.serving:
            line.append("  stopped", "bold red")
        return line

    def legend(self, glyphs: Glyphs) -> Text:
        legend = Text(" ")
        for state in DeviceState:
            legend.append(f"{glyphs.states[state]} {state}  ", STYLES[state])
        return legend

    def title(self, pane: Pane, glyphs: Glyphs) -> Text:
        picture = self.picture
        if pane in (Pane.DEVICES, Pane.HOLDERS):
            states = [resource.states for resource in picture.resources]
            return counted((), glyphs, *states, words=True).append(" ")
        if pane is Pane.PODS and picture.pods:
            return Text(f"{len(picture.pods)} ", "blue")
        return Text()

    def rows(self, pane: Pane, shown: Shown, width: int) -> Rows[Any]:
        return rows_of(pane, self.picture, shown, width)

    def none(self, pane: Pane) -> str:
        return _NONE[pane]
