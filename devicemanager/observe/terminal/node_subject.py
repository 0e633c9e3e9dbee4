"""The panes of one node's screen: devices, holders, plugins, pods, events, DRA drivers, claims."""

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
2 holders    a row for each device: state, NUMA nodes, pod and container
3 plugins    their ListAndWatch streams, and calls in progress or the last call
4 pods       pods and their containers
5 events     latest events, newest last
6 drivers    instances of DRA drivers, and ResourceSlices
7 claims     ResourceClaims with their devices, and what they wait for
"""
_NONE: Final = {
    Pane.DEVICES: " none: no plugin has registered a resource",
    Pane.HOLDERS: " none: no plugin has registered a resource",
    Pane.PLUGINS: " none has registered",
    Pane.PODS: " none",
    Pane.EVENTS: " none yet",
    Pane.DRIVERS: " none has registered",
    Pane.CLAIMS: " none",
}


@attrs.frozen
class NodeSubject:
    """Content of the screen for one node. ``screen.Subject`` documents the members."""

    view: NodeView
    panes: ClassVar[Sequence[Pane]] = NODE_PANES
    columns: ClassVar[Sequence[Sequence[Pane]]] = (
        (Pane.DEVICES, Pane.PLUGINS, Pane.DRIVERS),
        (Pane.PODS, Pane.CLAIMS, Pane.EVENTS),
    )
    help: ClassVar[str] = _HELP

    @property
    def notes(self) -> Sequence[str]:
        return self.view.notes

    def is_available(self, pane: Pane, shown: Shown) -> bool:
        if pane is Pane.PLUGINS:
            return self.view.plugins is not None
        if pane in (Pane.DRIVERS, Pane.CLAIMS):
            # Most nodes have no DRA driver, and need the room for other panes.
            dra = self.view.dra
            return bool(dra.drivers or dra.claims or dra.slices)
        return pane is not Pane.EVENTS or shown.lines is not None

    def header(self) -> Text:
        view = self.view
        # Views from PodResources have no node name, so their source is shown instead.
        parts = [f" {safe(view.name)}" if view.name else f" {safe(view.source)}"]
        if view.kubelet_version:
            parts.append(f"kubelet {safe(view.kubelet_version)}")
        if view.policy:
            parts.append(f"topology {safe(view.policy)}/{safe(view.scope)}")
        line = Text("  ".join(parts), "bold")
        if not view.serving:
            line.append("  stopped", "bold red")
        return line

    def legend(self, glyphs: Glyphs) -> Text:
        legend = Text(" ")
        for state in DeviceState:
            legend.append(f"{glyphs.states[state]} {state.label}  ", STYLES[state])
        return legend

    def title(self, pane: Pane, glyphs: Glyphs) -> Text:
        view = self.view
        if pane in (Pane.DEVICES, Pane.HOLDERS):
            states = [resource.states for resource in view.resources]
            return counted((), glyphs, *states, words=True).append(" ")
        if pane is Pane.PODS and view.pods:
            return Text(f"{len(view.pods)} ", "blue")
        return Text()

    def rows(self, pane: Pane, shown: Shown, width: int) -> Rows[Any]:
        return rows_of(pane, self.view, shown, width)

    def none(self, pane: Pane) -> str:
        return _NONE[pane]
