"""Rows of the panes for plugins, pods and events, and the function that returns the rows of any
pane."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from rich.text import Text

from devicemanager.observe.terminal import devices, dra
from devicemanager.observe.terminal.rows import LogLine, Pane, Rows, Shown
from devicemanager.observe.terminal.text import Glyphs, column, joined, safe
from devicemanager.observe.view import (
    ContainerInfo,
    ContainerKind,
    LastCall,
    NodeView,
    PluginView,
    PodInfo,
    Stream,
)

__all__ = ["PHASES", "events", "rows"]

_STREAMS = {Stream.SERVING: "green", Stream.STANDBY: "cyan"}
PHASES: Final = {"Running": "green", "Succeeded": "cyan", "Pending": "yellow", "Failed": "bold red"}
"""Text style for each phase of a pod."""
# Maximum number of device IDs in a row; more would never fit.
_MOST_IDS = 32


def rows(pane: Pane, view: NodeView, shown: Shown, width: int) -> Rows[Any]:
    """Return the rows of a pane that is ``width`` cells wide."""
    return _ROWS[pane](view, shown, width)


# -- plugins -------------------------------------------------------------------------------


def _plugins(view: NodeView, shown: Shown, _: int) -> Rows[PluginView]:
    return Rows(
        view.plugins or (),
        lambda plugin: f"{plugin.resource} {plugin.endpoint} {plugin.stream}",
        lambda plugin, width: _plugin_line(plugin, shown, width),
    )


def _plugin_line(plugin: PluginView, shown: Shown, width: int) -> Text:
    glyphs = shown.glyphs
    return joined(
        [
            column(plugin.resource, 23, "bold", glyphs),
            " ",
            column(plugin.endpoint, max((width - 40) // 3, 8), "dim", glyphs),
            " ",
            column(plugin.stream.value, 8, _STREAMS.get(plugin.stream, "magenta"), glyphs),
            _doing(plugin, shown),
        ],
        width,
        glyphs,
    )


def _doing(plugin: PluginView, shown: Shown) -> Text:
    """Return the plugin's call in progress as text. If there is none, return its last call."""
    if plugin.in_progress:
        # Show the oldest call, because users look for plugins that hang.
        call = plugin.in_progress[0]
        seconds = max(shown.now - call.time, 0.0)
        return Text(f"{call.rpc} for {seconds:.0f} s", "bold yellow")
    if not plugin.calls:
        return Text("no call yet", "dim")
    call_ = plugin.calls[-1]
    return Text(_call_text(call_), "" if call_.code == "OK" else "bold red")


def _call_text(call: LastCall) -> str:
    when = _clock(call.time)
    if call.code != "OK":
        return safe(f"{when} {call.rpc} {call.code}: {call.message}")
    if call.stream_message is not None:
        return f"{when} list {call.stream_message}"
    return f"{when} {safe(call.rpc)} {call.duration * 1000:.0f} ms"


# -- pods ----------------------------------------------------------------------------------


_PodRow = PodInfo | ContainerInfo


def _pods(view: NodeView, shown: Shown, _: int) -> Rows[_PodRow]:
    """Return the rows of pods, newest first if the order is known. If the pane fills the screen,
    also return the rows of their containers."""
    # PodResources sorts pods by name, so their age is unknown.
    pods = view.pods if view.events is None else view.pods[::-1]
    rows: Sequence[_PodRow] = pods
    if shown.whole:
        # Flat rows, so that scrolling and the filter work on one list.
        rows = list(chain.from_iterable((pod, *pod.all_containers) for pod in pods))
    return Rows(rows, _pod_words, lambda row, width: _pod_line(row, shown.glyphs, width))


def _pod_words(row: _PodRow) -> str:
    if isinstance(row, ContainerInfo):
        return f"{row.name} {_state(row)} {row.reason} {_devices_text(_devices_of(row))}"
    return f"{row.title} {_phase(row)} {row.reason} {row.message} {_pod_devices(row)}"


def _pod_line(row: _PodRow, glyphs: Glyphs, width: int) -> Text:
    name_width = max(width // 3, 8)
    if isinstance(row, ContainerInfo):
        return _container_line(row, name_width, glyphs, width)
    phase = "Deleting" if row.deleting else _phase(row)
    if row.reason:
        details = Text(safe(f"{row.reason}: {row.message}" if row.message else row.reason), "red")
    else:
        details = Text(_pod_devices(row), "" if row.devices else "dim")
    return joined(
        [
            column(row.title, name_width, "bold", glyphs),
            " ",
            column(phase, 10, PHASES.get(phase, "yellow"), glyphs) if phase else "",
            " " if phase else "",
            details,
        ],
        width,
        glyphs,
    )


def _phase(pod: PodInfo) -> str:
    return "" if pod.phase == "Unknown" else pod.phase


def _state(container: ContainerInfo) -> str:
    return "" if container.state == "unknown" else container.state


def _pod_devices(pod: PodInfo) -> str:
    """Return the pod's devices as text. A device that several containers use appears once."""
    # A dict instead of a set, because it keeps the order of the IDs.
    devices_of: dict[str, dict[str, None]] = {}
    for container in pod.all_containers:
        for name, ids in _devices_of(container).items():
            devices_of.setdefault(name, {}).update(dict.fromkeys(ids))
    return _devices_text({name: tuple(devices_of[name]) for name in sorted(devices_of)})


def _devices_of(container: ContainerInfo) -> Mapping[str, tuple[str, ...]]:
    claims = {f"claim {name}": ids for name, ids in container.claim_devices.items()}
    return {**container.devices, **claims}


def _devices_text(devices_of: Mapping[str, tuple[str, ...]]) -> str:
    parts = []
    for name, ids in devices_of.items():
        # Without the vendor's domain, more devices fit in the line.
        short = safe(name.rpartition("/")[2], 80)
        few = ",".join(safe(id_, 80) for id_ in ids[:_MOST_IDS])
        parts.append(f"{short} {len(ids)}: {few}" if len(ids) > 1 else f"{short} {few}")
    return "  ".join(parts) or "no devices"


def _container_line(container: ContainerInfo, name_width: int, glyphs: Glyphs, width: int) -> Text:
    kind = "" if container.kind is ContainerKind.APP else f" ({container.kind})"
    state = _state(container)
    if container.exit_code is not None:
        state = f"exit {container.exit_code}"
    details = [_devices_text(_devices_of(container))] if _devices_of(container) else []
    if container.restart_count:
        details.append(f"restarted {container.restart_count} times")
    if container.reason:
        details.append(safe(f"{container.reason} {container.message}".rstrip()))
    return joined(
        [
            column(f"  {container.name}{kind}", name_width, "", glyphs),
            " ",
            column(state, 10, "dim", glyphs) if state else "",
            " " if state else "",
            "  ".join(details),
        ],
        width,
        glyphs,
    )


# -- events --------------------------------------------------------------------------------


def events(shown: Shown) -> Rows[LogLine]:
    """Return the lines of the event log as rows."""
    return Rows(
        shown.lines or (),
        lambda line: line.text,
        lambda line, width: joined(
            [
                Text(_clock(line.time), "dim"),
                " ",
                Text(safe(line.text), "bold yellow" if line.is_warning else ""),
            ],
            width,
            shown.glyphs,
        ),
    )


def _clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))


_ROWS: Mapping[Pane, Callable[[NodeView, Shown, int], Rows[Any]]] = {
    Pane.DEVICES: devices.cells,
    Pane.HOLDERS: devices.holders,
    Pane.PLUGINS: _plugins,
    Pane.PODS: _pods,
    Pane.EVENTS: lambda _, shown, __: events(shown),
    Pane.DRIVERS: dra.drivers,
    Pane.CLAIMS: dra.claims,
}
