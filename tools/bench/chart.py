"""Draw growth curves as SVG: the cost of an admission by the number of devices and pods."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from tools.bench.model import Row

_WIDTH, _HEIGHT, _GAP = 380, 260, 70
_LEFT, _TOP = 60, 50
_OURS: Final = "#1f5fa8"
_FLOOR: Final = "#9a9a9a"

Point = tuple[float, float]


@attrs.frozen
class _Panel:
    """Diagram with logarithmic axes. The x axis is the number of devices, which equals the number
    of pods."""

    title: str
    curves: Sequence[tuple[str, str, Sequence[Point]]]
    """Name, colour and points of each curve."""
    left: int

    def text(self) -> Iterable[str]:
        xs = [x for _, _, points in self.curves for x, _ in points]
        ys = [y for _, _, points in self.curves for _, y in points]
        across = _scale(min(xs), max(xs), self.left, self.left + _WIDTH)
        low, high = 10 ** math.floor(math.log10(min(ys))), 10 ** math.ceil(math.log10(max(ys)))
        up = _scale(low, high, _TOP + _HEIGHT, _TOP)
        yield _text(self.left, _TOP - 14, self.title, weight="bold")
        yield from self._grid(sorted(set(xs)), across, _ticks(low, high), up)
        for number, (name, colour, points) in enumerate(self.curves):
            path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            for x, y in points:
                yield f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{colour}"/>'
            yield _text(self.left + 10, _TOP + 18 + 16 * number, name, colour=colour)

    def _grid(
        self,
        xs: Sequence[float],
        across: Callable[[float], float],
        ys: Sequence[float],
        up: Callable[[float], float],
    ) -> Iterable[str]:
        for y in ys:
            yield (
                f'<line x1="{self.left}" x2="{self.left + _WIDTH}" y1="{up(y):.1f}" '
                f'y2="{up(y):.1f}" stroke="#e0e0e0"/>'
            )
            yield _text(self.left - 6, up(y) + 4, f"{y:g}", anchor="end")
        for x in xs:
            yield _text(across(x), _TOP + _HEIGHT + 18, f"{x:,.0f}", anchor="middle")
        yield _text(
            self.left + _WIDTH / 2,
            _TOP + _HEIGHT + 38,
            "devices, and as many pods",
            anchor="middle",
        )


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    """Return a function that maps ``low`` to ``begin`` and ``high`` to ``end`` logarithmically. If
    ``low`` equals ``high``, it returns ``begin``."""
    # With only one value, the logarithm is 0; use 1 instead.
    span = math.log(high / low) or 1.0
    return lambda value: begin + (end - begin) * math.log(value / low) / span


def _ticks(low: float, high: float) -> list[float]:
    decades = range(round(math.log10(low)), round(math.log10(high)) + 1)
    every = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
    return [value for value in every if low <= value <= high * 1.001]


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#333", weight: str = ""
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{bold}>{text}</text>'
    )


def growth(rows: Iterable[Row]) -> str:
    """Return the SVG of the growth curves. Rows whose numbers of pods and devices differ are
    skipped."""
    points = sorted(
        (row for row in rows if row.devices and row.devices == row.pods and row.baseline),
        key=lambda row: row.devices or 0,
    )
    width, height = 2 * (_WIDTH + _GAP) + 20, _TOP + _HEIGHT + 60
    body = [line for panel in _panels(points) for line in panel.text()] if points else []
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *body,
            "</svg>\n",
        )
    )


def _panels(rows: Sequence[Row]) -> list[_Panel]:
    def curve(value: Callable[[Row], float | None]) -> list[Point]:
        return [(row.devices or 0, value(row) or 0.0) for row in rows]

    return [
        _Panel(
            "time of an admission (ms, median)",
            [
                ("mock kubelet", _OURS, curve(lambda row: row.p50)),
                ("one Allocate and one durable write", _FLOOR, curve(lambda row: row.baseline)),
            ],
            _LEFT,
        ),
        _Panel(
            "pods admitted per second",
            [("mock kubelet", _OURS, curve(lambda row: row.per_second))],
            _LEFT + _WIDTH + _GAP,
        ),
    ]
