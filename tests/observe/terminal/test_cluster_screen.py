"""The screen of a cluster: its rows, and that everything fits."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.observe.terminal.keys import ScreenState, keys, pressed
from devicemanager.observe.terminal.rows import CLUSTER_PANES, LogLine, Pane, Shown
from devicemanager.observe.terminal.screen import draw
from devicemanager.observe.terminal.text import ASCII, UNICODE
from devicemanager.observe.view import ClusterNodeView, ClusterView, ResourceTotals
from tests.observe.terminal.views import HOSTILE, LINES, assert_fits, texts

GPU = "vendor.com/gpu"


def node(name: str = "virtual-0", **changes: object) -> ClusterNodeView:
    view = ClusterNodeView(
        name,
        ready=True,
        problems=(),
        silent=False,
        resources=(ResourceTotals(GPU, 8, 8, 3),),
        pods=(("Running", 3),),
        rejection="",
    )
    return attrs.evolve(view, **changes)


def small() -> ClusterView:
    nodes = (
        node(),
        node(
            "virtual-1",
            resources=(ResourceTotals(GPU, 8, 6, 6), ResourceTotals("vendor.com/nic", 2, 2, 0)),
            pods=(("Failed", 2), ("Running", 6)),
            rejection="ml/wide TopologyAffinityError: Resources cannot be allocated",
        ),
        node("virtual-2", ready=False, problems=("the fan is off",), pods=()),
        node("virtual-3", silent=True),
    )
    totals = (ResourceTotals(GPU, 32, 30, 15), ResourceTotals("vendor.com/nic", 2, 2, 0))
    return ClusterView("https://cluster", nodes, totals)


def hostile() -> ClusterView:
    nodes = tuple(
        node(
            text,
            problems=(text, text * 20),
            resources=(ResourceTotals(f"{text}/{text}", 8, 6, 3),) * 3,
            pods=((text, 3), ("Failed", 100_000)),
            rejection=text,
        )
        for text in HOSTILE
    )
    totals = tuple(ResourceTotals(text, 1 << 40, 1 << 39, 1) for text in HOSTILE)
    return ClusterView(HOSTILE[0], nodes, totals, notes=HOSTILE)


def empty() -> ClusterView:
    return ClusterView("https://cluster", (), ())


@given(
    st.sampled_from([small, hostile, empty]),
    st.sampled_from([None, *CLUSTER_PANES]),
    st.integers(1, 220),
    st.integers(1, 70),
    st.integers(0, 20_000),
    st.sampled_from(["", "gpu", "\x1b", "no such thing"]),
    st.booleans(),
)
def test_screen_fits_any_size_offset_and_filter(view, pane, width, height, offset, filter_, help_):
    shown = texts(view(), pane, (width, height), offset=offset, filter=filter_, help=help_)
    assert_fits(shown, width, height)


def test_cluster_screen_has_a_row_for_each_node() -> None:
    lines = texts(small(), size=(120, 24), lines=(LogLine(0.0, "ready; Ctrl-C leaves"),))
    assert lines[0].split() == ["https://cluster", "4", "nodes", "2", "failed", "12", "running"]
    assert lines[2].endswith(" 15 allocated of 30 allocatable, 2 not allocatable")
    assert (lines[2].count("■"), lines[2].count("□"), lines[2].count("▲")) == (12, 10, 2)
    assert lines[4].startswith("─ Nodes 2 Ready 1 NotReady 1 silent ─")
    found = [" ".join(line.split()) for line in lines[5:9]]
    assert found == [
        "virtual-0 Ready gpu 3/8 3 running",
        "virtual-1 Ready gpu 6/6 2▲ nic 0/2 2 failed 6 running rejected ml/wide "
        "TopologyAffinityError: Resources cannot…",
        "virtual-2 NotReady gpu 3/8 the fan is off",
        "virtual-3 silent gpu 3/8 3 running",
    ]
    starts = [line.index("gpu") for line in lines[5:9]]
    assert len(set(starts)) == 1
    assert "ready; Ctrl-C leaves" in "\n".join(lines)


def test_rare_state_has_a_cell() -> None:
    view = ClusterView("here", (), (ResourceTotals(GPU, 10_000, 9_999, 1),))
    line = texts(view)[2]
    assert (line.count("■"), line.count("▲")) == (1, 1)


def test_empty_cluster_screen_shows_texts() -> None:
    lines = "\n".join(texts(empty(), lines=()))
    assert " none has joined yet" in lines and " none yet" in lines
    assert "3 events" in lines and "4 " not in lines.splitlines()[-1]
    assert "3 events" not in "\n".join(texts(empty(), lines=None))


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("notready", ["virtual-2"]),
        ("topologyaffinity", ["virtual-1"]),
        ("nic", ["virtual-1"]),
        ("fan", ["virtual-2"]),
        ("failed", ["virtual-1"]),
    ],
)
def test_filter_finds_nodes_by_state_problem_and_resource(wanted, names) -> None:
    lines = texts(small(), Pane.NODES, filter=wanted)
    assert [line.split()[0] for line in lines[2:-1] if line.strip()] == names


def test_number_keys_select_cluster_panes() -> None:
    state = ScreenState()
    for key, pane in (("1", Pane.NODES), ("2", Pane.RESOURCES), ("3", Pane.EVENTS)):
        assert pressed(state, key, 5, 0, CLUSTER_PANES).pane is pane
    assert pressed(state, "4", 5, 0, CLUSTER_PANES).pane is None
    for wanted in (*CLUSTER_PANES, None):
        (key,) = keys(b"\t")
        state = pressed(state, key, 5, 0, CLUSTER_PANES)
        assert state.pane is wanted
    assert draw(small(), state, 80, 24, Shown(LINES)).panes == CLUSTER_PANES


def test_ascii_glyphs_make_cluster_screen_ascii() -> None:
    drawn = draw(small(), ScreenState(help=True), 80, 24, Shown(glyphs=ASCII))
    text = "\n".join(line.plain for line in drawn.lines)
    assert text.isascii() and "! not allocatable" in text
    drawn = draw(small(), ScreenState(), 80, 24, Shown(glyphs=ASCII))
    assert "gpu 6/6 2!" in "\n".join(line.plain for line in drawn.lines)
    assert UNICODE is not ASCII
