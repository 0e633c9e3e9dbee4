"""Rows of the panes for DRA: drivers with their slices, and ResourceClaims with their devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from rich.text import Text

from devicemanager.core.dra.report import (
    ClaimDevice,
    ClaimState,
    DriverInstance,
    ResourceClaimInfo,
    ResourceSliceInfo,
)
from devicemanager.observe.terminal.rows import Rows, Shown
from devicemanager.observe.terminal.text import Glyphs, column, joined, safe
from devicemanager.observe.view import NodeView

__all__ = ["claims", "drivers"]

_DriverRow = DriverInstance | ResourceSliceInfo
_ClaimRow = ResourceClaimInfo | ClaimDevice
_STATES = {ClaimState.PREPARED: "green", ClaimState.NOT_USED: "dim"}


def drivers(view: NodeView, shown: Shown, _: int) -> Rows[_DriverRow]:
    """Return the rows of driver instances, then those of ResourceSlices."""
    rows: list[_DriverRow] = [*view.dra.drivers, *view.dra.slices]
    return Rows(rows, _driver_words, lambda row, width: _driver_line(row, shown.glyphs, width))


def _driver_words(row: _DriverRow) -> str:
    if isinstance(row, DriverInstance):
        return f"{row.driver} {row.endpoint} {_connection(row)}"
    return f"{row.name} {row.driver} {row.pool} {row.nodes} {' '.join(row.devices)}"


def _connection(driver: DriverInstance) -> str:
    return "connected" if driver.connected else "disconnected"


def _driver_line(row: _DriverRow, glyphs: Glyphs, width: int) -> Text:
    name = max(width // 3, 8)
    if isinstance(row, DriverInstance):
        health = f", health {row.health_service}" if row.health_service else ""
        return joined(
            [
                column(row.driver, name, "bold", glyphs),
                " ",
                column(PurePath(row.endpoint).name, 18, "dim", glyphs),
                " ",
                Text(_connection(row), "green" if row.connected else "bold red"),
                safe(f"  {row.service}{health}"),
            ],
            width,
            glyphs,
        )
    # A ResourceSlice has either devices or counter sets, never both.
    number = len(row.devices or row.counter_sets)
    found = f"{number} {'device' if row.devices else 'counter set'}{'' if number == 1 else 's'}"
    return joined(
        [
            column(f"slice {row.name}", name, "", glyphs),
            " ",
            safe(f"{row.driver}/{row.pool} generation {row.generation}, {found}, {row.nodes}"),
        ],
        width,
        glyphs,
    )


def claims(view: NodeView, shown: Shown, _: int) -> Rows[_ClaimRow]:
    """Return the rows of claims. If the pane fills the screen, also return the rows of their
    devices."""
    # A claim has only the UIDs of its pods, but users know the names.
    titles = {pod.uid: pod.title for pod in view.pods}
    rows = list(_claim_rows(view, shown.whole))

    def line(row: _ClaimRow, width: int) -> Text:
        return _claim_line(row, titles, shown.glyphs, width)

    return Rows(rows, _claim_words, line)


def _claim_rows(view: NodeView, with_devices: bool) -> Iterator[_ClaimRow]:
    for claim in view.dra.claims:
        yield claim
        yield from claim.devices if with_devices else ()


def _claim_words(row: _ClaimRow) -> str:
    if isinstance(row, ClaimDevice):
        return f"{row.driver} {row.pool} {row.device} {' '.join(row.cdi_devices)}"
    return f"{row.title} {row.state} {row.text} {row.error} {' '.join(row.drivers)}"


def _claim_line(row: _ClaimRow, titles: dict[str, str], glyphs: Glyphs, width: int) -> Text:
    name = max(width // 3, 8)
    if isinstance(row, ClaimDevice):
        state = "prepared" if row.prepared else "not prepared"
        cdi = f"  {' '.join(row.cdi_devices)}" if row.cdi_devices else ""
        first = column(f"  {row.pool}/{row.device}", name, "", glyphs)
        return joined([first, " ", safe(f"{row.driver}, {state}{cdi}")], width, glyphs)
    is_done = row.state in _STATES
    text = ", ".join(f"{each.pool}/{each.device}" for each in row.devices)
    pods = ", ".join(titles.get(uid, uid) for uid in row.pods)
    details = f"{pods or 'no pod'}  {text}" if is_done else row.details
    return joined(
        [
            column(row.title, name, "bold", glyphs),
            " ",
            column(row.state.value, 14, _STATES.get(row.state, "yellow"), glyphs),
            " ",
            Text(safe(details), "" if is_done else "red"),
        ],
        width,
        glyphs,
    )
