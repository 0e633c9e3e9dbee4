"""Views to draw, and the lines that a terminal shows of them."""

from __future__ import annotations

import unicodedata
from functools import cache

from rich.cells import cell_len
from rich.style import Style

from devicemanager.core.ids import ContainerName, ResourceName
from devicemanager.core.pods import Container
from devicemanager.observe.terminal.keys import ScreenState
from devicemanager.observe.terminal.rows import LogLine, Pane, Shown
from devicemanager.observe.terminal.screen import draw
from devicemanager.observe.view import NodeView
from tests.helpers import container, device, pod
from tests.node import Node, rows
from tests.observe.view.fake_node import view_of

HOSTILE = [
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred",
    "[bold red]markup[/] :smile: [link=https://example.com]here[/link]",
    "x" * 10_000,
    "\u202egnp.exe\u2066\u2069",
    "\u05d0\u05d1\u05d2 \u0627\u0644",
    "line\r\nbreaks\ttabs\x0b\x00",
    "Z\u0351\u036b\u0343a\u0335\u0344lgo",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \ufe0f",
    "\u5e45\u306e\u5e83\u3044\u6587\u5b57",
    "",
]
"""Texts of malicious plugins, and scripts that terminals render differently."""


@cache
def small() -> NodeView:
    """Two NUMA nodes, resources with eight and two devices, a running and a rejected pod."""
    node = Node(topology_policy="restricted")
    node.plugin(rows("00001111", "gpu-", **{"gpu-5": "Overheated"}), name="gpu.sock")
    node.plugin(rows("--", "nic-"), resource="vendor.com/nic", name="nic.sock")
    node.admit(pod("train", container("main", gpu=2, nic=1)), start=True)
    node.admit(pod("greedy", gpu=9))
    return view_of(node).refresh()


@cache
def large() -> NodeView:
    """10,000 devices on two NUMA nodes, and 300 pods."""
    node = Node()
    node.plugin([device(f"slice-{number:05}", number % 2) for number in range(10_000)])
    for number in range(300):
        node.admit(pod(f"pod-{number}", gpu=10))
    return view_of(node).refresh()


@cache
def hostile() -> NodeView:
    """Every hostile text as a device ID and a health, and in all names that are accepted."""
    node = Node()
    ids = [text or "empty" for text in HOSTILE]
    node.plugin(
        [device(f"{number}{text}", 0, health=text) for number, text in enumerate(ids)],
        name=HOSTILE[0],
    )
    node.plugin(
        [device(text, 1) for text in ids], resource="vendor.com/nic", name="x" * 10_000 + "\u202e"
    )
    wants = {ResourceName("vendor.com/nic"): len(ids)}
    node.admit(pod("p", Container(ContainerName("app"), wants)), start=True)
    return view_of(node).refresh()


LINES = tuple(
    LogLine(0.0, text, is_warning=number % 2 == 0) for number, text in enumerate(HOSTILE * 20)
)


def texts(
    view: NodeView,
    pane: Pane | None = None,
    size: tuple[int, int] = (80, 24),
    lines: tuple[LogLine, ...] | None = LINES,
    **state: object,
) -> list[str]:
    """Return the lines of the screen without colours. The styles must be valid: rich ignores
    unknown ones."""
    drawn = draw(view, ScreenState(pane=pane, **state), *size, Shown(lines))
    for line in drawn.lines:
        for style in (line.style, *(span.style for span in line.spans)):
            assert isinstance(style, Style) or Style.parse(style) is not None
    return [line.plain for line in drawn.lines]


def assert_fits(lines: list[str], width: int, height: int) -> None:
    """Check that the screen has all rows, each fits, and no character leaves its cell."""
    assert len(lines) == height
    for line in lines:
        assert cell_len(line) <= width
        assert line.isprintable(), ascii(line)
        for character in line:
            assert unicodedata.bidirectional(character) not in ("R", "AL", "AN", "RLE", "RLO")
            assert not unicodedata.combining(character)
            assert ord(character) <= 0xFFFF
