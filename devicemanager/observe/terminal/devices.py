"""Rows of the panes ``devices`` and ``holders``.

The pane ``devices`` shows the devices of each NUMA node as a row of characters. The pane
``holders`` shows each device on its own row, with its containers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

import attrs
from rich.text import Text

from devicemanager.observe.terminal.rows import Rows, Shown
from devicemanager.observe.terminal.text import STYLES, Glyphs, column, joined, safe
from devicemanager.observe.view import DeviceState, NodeView, ResourceView

__all__ = ["cells", "counted", "holders", "shares"]

_NAME, _NODE, _COUNTS = 24, 8, 22
_COUNTED = (
    DeviceState.ALLOCATED,
    DeviceState.FREE,
    DeviceState.ALLOCATING,
    DeviceState.UNHEALTHY,
    DeviceState.GONE,
)


@attrs.frozen
class _Strip:
    """Row of cells: the devices of a resource on a NUMA node, or some of them if they are many."""

    resource: ResourceView
    node: int | None
    numbers: Sequence[int]
    is_first: bool
    """True for the first row of the resource."""
    is_part: bool


def cells(view: NodeView, shown: Shown, width: int) -> Rows[_Strip]:
    """Return rows of cells. A cell is a character that shows the state of a device.

    In the overview, each NUMA node of each resource has one row. If the row has too few cells for
    the devices, its cells show the proportions of the states. If the pane fills the screen, each
    device has a cell, and a NUMA node can have several rows.
    """
    # The overview has one line per NUMA node, so that all resources fit on a screen.
    step = _cells_width(width) if shown.whole else None
    strips = [strip for resource in view.resources for strip in _strips(resource, step)]
    return Rows(
        strips,
        lambda strip: strip.resource.name,
        lambda strip, width: _strip_line(strip, shown.glyphs, width),
    )


def _cells_width(width: int) -> int:
    return max(width - _NAME - _NODE - _COUNTS, 8)


def _strips(resource: ResourceView, most: int | None) -> Iterator[_Strip]:
    is_first = True
    # A resource without devices gets one empty row, so that the user sees the resource.
    for node, numbers in resource.layout.by_node.items() or ((None, ()),):
        # At least 1, because ``range`` rejects a step of 0.
        step = most or max(len(numbers), 1)
        for start in range(0, max(len(numbers), 1), step):
            part = numbers[start : start + step]
            yield _Strip(resource, node, part, is_first, len(numbers) > step)
            is_first = False


def _strip_line(strip: _Strip, glyphs: Glyphs, width: int) -> Text:
    resource = strip.resource
    members = _members(resource.states, strip.numbers)
    room = _cells_width(width)
    summary = counted(members, glyphs)
    if strip.is_part:  # counts of a part are misleading: show its first device
        summary = column(resource.layout.ids[strip.numbers[0]], _COUNTS - 1, "dim", glyphs)
    return joined(
        [
            column(
                resource.name if strip.is_first else "",
                _NAME - 1,
                "bold" if resource.connected else "bold magenta",
                glyphs,
            ),
            " ",
            column("" if strip.node is None else f"NUMA {strip.node}", _NODE - 1, "dim", glyphs),
            " ",
            _bar(members if len(members) <= room else _scaled(members, room), room, glyphs),
            " ",
            summary,
        ],
        width,
        glyphs,
    )


def _members(states: Sequence[DeviceState], numbers: Sequence[int]) -> Sequence[DeviceState]:
    # With a single index, ``itemgetter`` would return a value instead of a tuple.
    if len(numbers) < 2:
        return [states[number] for number in numbers]
    return itemgetter(*numbers)(states)  # type: ignore[no-any-return] # of a part of 10,000


def _bar(states: Sequence[DeviceState], width: int, glyphs: Glyphs) -> Text:
    # One style per run of equal states, because a line can have hundreds of cells.
    bar = Text()
    start = 0
    for number in range(1, len(states) + 1):
        state = states[start]
        if number == len(states) or states[number] is not state:
            bar.append(glyphs.states[state] * (number - start), STYLES[state])
            start = number
    return bar.append(" " * (width - len(states)))


def _scaled(states: Sequence[DeviceState], width: int) -> list[DeviceState]:
    """Return ``width`` cells, divided among the states in proportion to their counts."""
    counts = {state: states.count(state) for state in _COUNTED}
    return [state for state, share in shares(counts, width).items() for _ in range(share)]


def shares(counts: Mapping[DeviceState, int], width: int) -> dict[DeviceState, int]:
    """Divide ``width`` cells among the states in proportion to their counts. Return the numbers of
    cells by state.

    ``width`` must be at least the number of states with a count above 0.
    """
    present = {state: count for state, count in counts.items() if count > 0}
    if not present:
        return {}
    # Each state gets one cell first, so that one unhealthy device of 10,000 is visible.
    left, total = width - len(present), sum(present.values())
    cells_of = {state: 1 + left * count // total for state, count in present.items()}
    # Rounding leaves some cells, which the most frequent state gets.
    cells_of[max(present, key=present.__getitem__)] += width - sum(cells_of.values())
    return cells_of


def counted(
    states: Sequence[DeviceState], glyphs: Glyphs, *more: Sequence[DeviceState], words: bool = False
) -> Text:
    """Return the number of devices in each state as text, omitting states without devices.

    ``states`` has the state of each device. ``more`` has sequences of states of further devices,
    which are counted, too. ``words``: True to write the names of the states after the numbers.
    """
    parts = []
    for state in _COUNTED:
        if count := sum(each.count(state) for each in (states, *more)):
            glyph = glyphs.states[state]
            text = f"{glyph} {count} {state.label}" if words else f"{count}{glyph}"
            parts.append(Text(text, STYLES[state]))
    return Text("  " if words else " ").join(parts) if parts else Text("no devices", "dim")


# -- one by one --------------------------------------------------------------------------


@attrs.frozen
class _Device:
    resource: ResourceView
    number: int


def holders(view: NodeView, shown: Shown, _: int) -> Rows[_Device]:
    """Return a row for each device: its state, NUMA nodes, pods and containers."""
    # Computed once, because a search over 10,000 devices needs the titles of their pods.
    titles = {pod.uid: pod.title for pod in view.pods}
    return Rows(
        [
            _Device(resource, number)
            for resource in view.resources
            for number in range(len(resource.states))
        ],
        lambda item: _words(item, titles),
        lambda item, width: _device_line(item, titles, shown.glyphs, width),
    )


def _words(item: _Device, titles: Mapping[str, str]) -> str:
    resource, number = item.resource, item.number
    id_ = resource.layout.ids[number]
    return f"{resource.name} {id_} {resource.states[number].label} {_holders_text(item, titles)}"


def _holders_text(item: _Device, titles: Mapping[str, str]) -> str:
    id_ = item.resource.layout.ids[item.number]
    return ", ".join(
        f"{titles.get(holder.pod, holder.pod) or 'no pod'} {holder.container}".rstrip()
        for holder in item.resource.holders.get(id_, ())
    )


def _device_line(item: _Device, titles: Mapping[str, str], glyphs: Glyphs, width: int) -> Text:
    device = item.resource.device(item.number)
    style = STYLES[device.state]
    # Plugins may send any text as health. Show it only if it differs from the state.
    is_odd = device.state is DeviceState.UNHEALTHY and device.health != "Unhealthy"
    return joined(
        [
            column(item.resource.name, 20, "dim", glyphs),
            " ",
            column(device.id, max((width - 46) // 2, 8), "", glyphs),
            " ",
            Text(f"{glyphs.states[device.state]} {device.state.label:10} ", style),
            column(",".join(map(str, (device.numa or ())[:8])) or "-", 4, "dim", glyphs),
            " ",
            safe(_holders_text(item, titles)),
            Text(f" {safe(device.health)}" if is_odd else "", "red"),
        ],
        width,
        glyphs,
    )
