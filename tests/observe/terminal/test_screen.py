"""The screen: its contents, and that it fits for any view."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.observe.terminal import panes
from devicemanager.observe.terminal.keys import ScreenState
from devicemanager.observe.terminal.rows import NODE_PANES, LogLine, Pane, Shown
from devicemanager.observe.terminal.screen import draw, whole
from devicemanager.observe.terminal.text import ASCII, UNICODE
from devicemanager.observe.view import ContainerInfo, NodeView, Pending, PodInfo
from devicemanager.observe.view.values import Stream
from tests.helpers import devices
from tests.node import Node
from tests.observe.terminal import views
from tests.observe.terminal.views import LINES, assert_fits, texts
from tests.observe.view.fake_node import view_of

SIZES = [(80, 24), (200, 60)]
VIEWS = [views.small, views.large, views.hostile]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("pane", [None, *NODE_PANES])
def test_every_pane_fits_the_screen(size, view, pane) -> None:
    assert_fits(texts(view(), pane, size), *size)


@given(
    st.sampled_from(VIEWS),
    st.sampled_from([None, *NODE_PANES]),
    st.integers(1, 220),
    st.integers(1, 70),
    st.integers(0, 20_000),
    st.sampled_from(["", "gpu", "\x1b", "no such thing"]),
    st.booleans(),
)
def test_screen_fits_any_size_offset_and_filter(view, pane, width, height, offset, filter_, help_):
    shown = texts(view(), pane, (width, height), offset=offset, filter=filter_, help=help_)
    assert_fits(shown, width, height)


def test_device_strips_show_states_by_resource_and_numa_node() -> None:
    lines = texts(views.small())
    assert lines[2].split() == ["vendor.com/gpu", "NUMA", "0", "■■□□", "2■", "2□"]
    assert lines[3].split() == ["NUMA", "1", "□▲□□", "3□", "1▲"]
    assert lines[4].split() == ["vendor.com/nic", "■□", "1■", "1□"]
    assert "■ 3 allocated  □ 6 free  ▲ 1 unhealthy" in lines[1]


def test_overview_shows_plugins_pods_and_events() -> None:
    lines = texts(views.small(), lines=(LogLine(0.0, "ready; Ctrl-C stops"),))
    text = "\n".join(lines)
    assert "kubelet 1.37  topology restricted/container" in lines[0]
    assert "gpu.sock" in text and "serving" in text
    assert "default/train" in text and "gpu 2: gpu-0,gpu-1  nic nic-0" in text
    assert "default/greedy" in text and "TopologyAffinityError" in text
    assert "ready; Ctrl-C stops" in text
    assert lines[-1].split()[:4] == ["0", "all", "1", "devices"]


def test_ten_thousand_devices_are_a_proportional_bar() -> None:
    line = texts(views.large())[2]
    assert line.endswith("1500■ 3500□")
    allocated, free = line.count("■") - 1, line.count("□") - 1
    assert (allocated, free) == (8, 18)  # of 26 cells


def test_single_unhealthy_device_of_ten_thousand_has_a_cell() -> None:
    node = Node()
    rows = [
        *devices(*(f"d{number:05}" for number in range(9999))),
        attrs.evolve(devices("z")[0], health="Bad"),
    ]
    node.plugin(rows)
    (line,) = texts(view_of(node).refresh())[2:3]
    assert line.count("▲") == 2  # a cell and the count


def test_single_pane_has_a_cell_for_each_device() -> None:
    lines = texts(views.large(), Pane.DEVICES)
    assert "slice-00000" in lines[2] and lines[2].count("■") + lines[2].count("□") == 26
    assert " 1-21 of 386 " in lines[1]
    assert "slice-0" in texts(views.large(), Pane.DEVICES, offset=1 << 40)[-2]


def test_holders_pane_has_a_row_for_each_device() -> None:
    lines = texts(views.small(), Pane.HOLDERS)
    assert lines[2].split() == [
        "vendor.com/gpu",
        "gpu-0",
        "■",
        "allocated",
        "0",
        "default/train",
        "main",
    ]
    assert lines[7].split() == ["vendor.com/gpu", "gpu-5", "▲", "unhealthy", "1", "Overheated"]


def test_filter_shows_matching_rows() -> None:
    lines = texts(views.large(), Pane.HOLDERS, filter="POD-17 ")
    assert " 10 of" not in lines[1]
    assert sum("default/pod-17" in line for line in lines) == 10
    assert "only 'POD-17 '" in lines[-1]
    assert "nothing contains 'zz'" in texts(views.small(), Pane.PODS, filter="zz")[2]


def test_pods_pane_shows_containers() -> None:
    lines = texts(views.small(), Pane.PODS)
    (container,) = [line for line in lines if line.startswith("  main")]
    assert container.split() == ["main", "running", "gpu", "2:", "gpu-0,gpu-1", "nic", "nic-0"]


def test_container_rows_show_exit_and_waiting_reason() -> None:
    containers = (
        ContainerInfo(name="a", state="terminated", exit_code=3, reason="Error", restart_count=2),
        ContainerInfo(name="b", state="waiting", reason="CrashLoopBackOff", message="back-off 10s"),
        ContainerInfo(name="c", claim_devices={"card": ("pool/a",)}),
    )
    view = NodeView(
        1,
        "here",
        pods=(PodInfo(uid="u", name="p", namespace="ns", deleting=True, containers=containers),),
    )
    lines = texts(view, Pane.PODS)
    assert lines[2].split() == ["ns/p", "Deleting", "claim", "card", "pool/a"]
    assert lines[3].split() == ["a", "exit", "3", "restarted", "2", "times", "Error"]
    assert lines[4].split() == ["b", "waiting", "CrashLoopBackOff", "back-off", "10s"]


def test_call_in_progress_shows_its_duration() -> None:
    (plugin, _) = views.small().plugins
    called = attrs.evolve(plugin, in_progress=(Pending(100.0, "Allocate"),))
    view = attrs.evolve(views.small(), plugins=(called,))
    # The clock of this program can be behind that of the kubelet.
    for now, seconds in ((103.2, 3), (100.0, 0), (99.0, 0)):
        drawn = draw(view, ScreenState(Pane.PLUGINS), 80, 24, Shown((), now=now))
        assert drawn.lines[2].plain.endswith(f"Allocate for {seconds} s")


def test_events_pane_scrolls_from_newest_event() -> None:
    lines = tuple(LogLine(0.0, f"event {number}") for number in range(100))
    assert texts(views.small(), Pane.EVENTS, lines=lines)[-2].endswith("event 99")
    assert texts(views.small(), Pane.EVENTS, lines=lines, offset=10)[-2].endswith("event 89")
    assert texts(views.small(), Pane.EVENTS, lines=lines, offset=1000)[2].endswith("event 0")


def test_overview_shows_newest_events_and_pods() -> None:
    lines = texts(
        views.large(), lines=tuple(LogLine(0.0, f"event {number}") for number in range(100))
    )
    assert lines[-2].endswith("event 99")
    titles = [line.split()[0] for line in lines if line.startswith("default/")]
    assert titles[:2] == ["default/pod-299", "default/pod-298"]


def test_help_shows_keys_and_states() -> None:
    text = "\n".join(texts(views.small(), help=True))
    for word in ("devices", "holders", "Tab", "PageUp", "space", "Ctrl-Z", "□ free", "✗ gone"):
        assert word in text


def test_notice_has_a_separate_line() -> None:
    drawn = draw(views.small(), ScreenState(), 80, 24, Shown(()), "waiting for the pods")
    assert drawn.lines[1].plain.strip() == "waiting for the pods"
    assert len(drawn.lines) == 24


def test_help_names_the_pane_that_key_0_leaves_out() -> None:
    line = texts(views.small(), help=True)[1]
    assert line.rstrip() == " 0            all panes except holders; Escape also removes the filter"
    assert not any("Holders" in each for each in texts(views.small(), size=(80, 60)))


def test_help_shows_about_lines() -> None:
    about = ["page: http://127.0.0.1:10255/", *views.HOSTILE]
    drawn = draw(views.small(), ScreenState(help=True), 80, 24, Shown(()), "", about)
    assert any("page: http://127" in line.plain for line in drawn.lines)
    address = f"page: http://127.0.0.1:10255/#token={'x' * 60}y"
    drawn = draw(views.small(), ScreenState(help=True), 80, 24, Shown(()), "", [address])
    assert address in "".join(line.plain[1:79] for line in drawn.lines)
    drawn = draw(views.small(), ScreenState(help=True), 80, 24, Shown(()), "", about)
    assert_fits([line.plain for line in drawn.lines], 80, 24)


def test_missing_panes_are_omitted_with_notes() -> None:
    view = attrs.evolve(views.small(), plugins=None, notes=("Plugins are not listed.",))
    lines = texts(view, lines=None)
    assert "Plugins are not listed." in "\n".join(lines)
    assert "plugins" not in lines[-1] and "events" not in lines[-1]


def test_wide_screen_has_two_columns() -> None:
    lines = texts(views.small(), size=(200, 60))
    assert "Devices" in lines[1] and "Pods" in lines[1]


def test_ascii_glyphs_make_screen_ascii() -> None:
    for pane in (None, *NODE_PANES):
        drawn = draw(views.small(), ScreenState(pane=pane), 80, 24, Shown(LINES[:1], glyphs=ASCII))
        assert all(line.plain.isascii() for line in drawn.lines)


def test_whole_renders_all_rows() -> None:
    lines = [line.plain for line in whole(views.large(), 80, UNICODE)]
    assert sum(line.startswith("default/pod-") for line in lines) == 300


def test_empty_panes_show_a_text() -> None:
    text = "\n".join(texts(NodeView(0, "here", plugins=()), lines=()))
    for words in ("no plugin has registered", "none has registered", "none yet"):
        assert words in text


def test_styles_of_phases_and_streams() -> None:
    """Green and cyan are for what works; rich ignores a style that it does not know."""
    assert panes.PHASES == {
        "Running": "green",
        "Succeeded": "cyan",
        "Pending": "yellow",
        "Failed": "bold red",
    }
    assert panes._STREAMS == {Stream.SERVING: "green", Stream.STANDBY: "cyan"}
