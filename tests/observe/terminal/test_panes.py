"""Rows of the panes for plugins, pods and events: their texts, styles and widths."""

from __future__ import annotations

import time

import attrs
import pytest
from rich.text import Text

from devicemanager.observe.terminal.panes import rows
from devicemanager.observe.terminal.rows import LogLine, Pane, Shown
from devicemanager.observe.view import (
    ContainerInfo,
    ContainerKind,
    LastCall,
    NodeView,
    Pending,
    PluginView,
    PodInfo,
    Stream,
)

NOON = time.mktime((2026, 1, 2, 12, 34, 56, 0, 0, -1))
CALL = LastCall(1, NOON, "Allocate", "OK", "", 0.0126)
PLUGIN = PluginView("vendor.com/gpu", "gpu.sock", Stream.SERVING, 1, False, False, (CALL,))


def parts(line: Text) -> list[tuple[str, str]]:
    """Return the texts of a line with their styles; texts without one are left out if blank."""
    found, at = [], 0
    for span in sorted(line.spans):
        found.append((line.plain[at : span.start].strip(), ""))
        found.append((line.plain[span.start : span.end].strip(), str(span.style)))
        at = span.end
    found.append((line.plain[at:].strip(), ""))
    return [(text, style) for text, style in found if text]


def drawn(pane: Pane, view: NodeView, width: int = 120, **shown: object) -> list[Text]:
    found = rows(pane, view, Shown(**shown), width)
    return found.window(0, len(found), width)


def plugin_parts(plugin: PluginView, **shown: object) -> list[tuple[str, str]]:
    (line,) = drawn(Pane.PLUGINS, NodeView(1, "here", plugins=(plugin,)), **shown)
    return parts(line)


@pytest.mark.parametrize(
    ("calls", "doing"),
    [
        ((), ("no call yet", "dim")),
        ((CALL,), ("12:34:56 Allocate 13 ms", "")),
        ((attrs.evolve(CALL, stream_message=7),), ("12:34:56 list 7", "")),
        ((attrs.evolve(CALL, stream_message=0),), ("12:34:56 list 0", "")),
        (
            (CALL, attrs.evolve(CALL, code="Internal", message="bro\x1bken", stream_message=7)),
            ("12:34:56 Allocate Internal: bro\\x1bken", "bold red"),
        ),
        (
            (attrs.evolve(CALL, code="Internal"), attrs.evolve(CALL, rpc="Al\x1bl")),
            ("12:34:56 Al\\x1bl 13 ms", ""),
        ),
    ],
)
def test_plugin_row_shows_the_last_call(calls, doing):
    assert plugin_parts(attrs.evolve(PLUGIN, calls=calls)) == [
        ("vendor.com/gpu", "bold"),
        ("gpu.sock", "dim"),
        ("serving", "green"),
        doing,
    ]


def test_plugin_row_shows_the_oldest_call_in_progress():
    waits = (Pending(100.0, "Allocate"), Pending(101.0, "PreStartContainer"))
    busy = attrs.evolve(PLUGIN, in_progress=waits)
    assert plugin_parts(busy, now=103.0)[-1] == ("Allocate for 3 s", "bold yellow")


@pytest.mark.parametrize(
    ("stream", "style"),
    [
        (Stream.SERVING, "green"),
        (Stream.STANDBY, "cyan"),
        (Stream.ENDED, "magenta"),
        (Stream.AWAITED, "magenta"),
    ],
)
def test_plugin_row_has_a_style_for_each_stream(stream, style):
    assert plugin_parts(attrs.evolve(PLUGIN, stream=stream))[2] == (stream.value, style)


@pytest.mark.parametrize(
    ("width", "endpoint", "at"),
    [(60, 8, 42), (64, 8, 42), (67, 9, 43), (100, 20, 54), (120, 26, 60)],
)
def test_columns_of_a_plugin_row(width, endpoint, at):
    """A third of the width that the other columns leave is for the socket, and at least 8 cells."""
    plugin = attrs.evolve(PLUGIN, resource="r" * 99, endpoint="e" * 99, calls=())
    (line,) = drawn(Pane.PLUGINS, NodeView(1, "here", plugins=(plugin,)), width)
    resource, socket, *_ = line.plain.split()
    assert (len(resource), len(socket)) == (23, endpoint)
    assert line.plain.index("no call yet") == at - 1


@pytest.mark.parametrize("text", ["VENDOR.com/gpu", "gpu.sock", "serving"])
def test_plugins_are_found_by_their_words(text):
    found = rows(Pane.PLUGINS, NodeView(1, "here", plugins=(PLUGIN,)), Shown(), 80)
    assert len(found.containing(text)) == 1
    assert len(found.containing("Allocate")) == 0


def test_view_without_plugins_has_no_rows():
    assert drawn(Pane.PLUGINS, NodeView(1, "here", plugins=None)) == []


# -- pods ------------------------------------------------------------------------------------

POD = PodInfo(uid="u", name="p", namespace="ns")
GPUS = ContainerInfo(name="main", devices={"vendor.com/gpu": ("a", "b")})


def pod_lines(*pods: PodInfo, width: int = 90, **shown: object) -> list[list[tuple[str, str]]]:
    return [parts(line) for line in drawn(Pane.PODS, NodeView(1, "h", pods=pods), width, **shown)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [("no devices", "dim")]),
        ({"phase": "Running"}, [("Running", "green"), ("no devices", "dim")]),
        ({"phase": "Succeeded"}, [("Succeeded", "cyan"), ("no devices", "dim")]),
        ({"phase": "Pending"}, [("Pending", "yellow"), ("no devices", "dim")]),
        ({"phase": "Failed"}, [("Failed", "bold red"), ("no devices", "dim")]),
        ({"phase": "Running", "deleting": True}, [("Deleting", "yellow"), ("no devices", "dim")]),
        ({"reason": "Evicted"}, [("Evicted", "red")]),
        ({"reason": "Evicted", "message": "no\x1b"}, [("Evicted: no\\x1b", "red")]),
        ({"message": "unused"}, [("no devices", "dim")]),
        ({"containers": (GPUS,)}, [("gpu 2: a,b", "")]),
    ],
)
def test_pod_row_shows_phase_and_reason_or_devices(fields, expected):
    assert pod_lines(attrs.evolve(POD, **fields)) == [[("ns/p", "bold"), *expected]]


def test_pod_row_lists_each_device_once_by_resource():
    containers = (
        ContainerInfo(name="a", devices={"v/nic": ("n",), "v/gpu": ("a",)}),
        ContainerInfo(name="b", devices={"v/gpu": ("b", "a")}, claim_devices={"card": ("pool/x",)}),
    )
    init = (ContainerInfo(name="i", kind=ContainerKind.INIT, devices={"v/gpu": ("i",)}),)
    pod = attrs.evolve(POD, containers=containers, init_containers=init)
    (((_, _), (text, _)),) = pod_lines(pod)
    claim, gpu, nic = text.split("  ")
    assert (claim, nic) == ("claim card pool/x", "nic n")
    assert sorted(gpu.removeprefix("gpu 3: ").split(",")) == ["a", "b", "i"]


@pytest.mark.parametrize(("count", "shown"), [(32, 32), (33, 32)])
def test_pod_row_has_at_most_32_device_ids(count, shown):
    ids = tuple(f"d{number}" for number in range(count))
    pod = attrs.evolve(POD, containers=(ContainerInfo(name="a", devices={"v/gpu": ids}),))
    (((_, _), (text, _)),) = pod_lines(pod, width=999)
    assert text.startswith(f"gpu {count}: d0,d1,")
    assert text.count(",") == shown - 1


def test_long_names_in_a_pod_row_are_cut():
    devices = {"v/" + "r" * 99: ("d" * 99,)}
    pod = attrs.evolve(POD, containers=(ContainerInfo(name="a", devices=devices),))
    (((_, _), (text, _)),) = pod_lines(pod, width=999)
    assert text == f"{'r' * 80} {'d' * 80}"


def test_pods_are_newest_first_if_their_age_is_known():
    pods = (POD, attrs.evolve(POD, name="q", uid="v"))
    for events, names in ((None, ["ns/p", "ns/q"]), ((), ["ns/q", "ns/p"])):
        view = NodeView(1, "here", pods=pods, events=events)
        assert [parts(line)[0][0] for line in drawn(Pane.PODS, view)] == names


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (ContainerInfo(name="c"), [("c", "")]),
        (ContainerInfo(name="c", kind=ContainerKind.INIT), [("c (init)", "")]),
        (ContainerInfo(name="c", kind=ContainerKind.SIDECAR), [("c (sidecar)", "")]),
        (ContainerInfo(name="c", state="running"), [("c", ""), ("running", "dim")]),
        (
            ContainerInfo(name="c", state="terminated", exit_code=0),
            [("c", ""), ("exit 0", "dim")],
        ),
        (
            ContainerInfo(
                name="c",
                state="waiting",
                devices={"v/gpu": ("a",)},
                restart_count=2,
                reason="Crash",
                message="no\x1b",
            ),
            [("c", ""), ("waiting", "dim"), ("gpu a  restarted 2 times  Crash no\\x1b", "")],
        ),
        (ContainerInfo(name="c", reason="Crash"), [("c  Crash", "")]),
        (ContainerInfo(name="c", message="unused"), [("c", "")]),
        (
            ContainerInfo(name="c", state="running", restart_count=1),
            [("c", ""), ("running", "dim"), ("restarted 1 times", "")],
        ),
    ],
)
def test_container_row_of_a_pane_that_fills_the_screen(container, expected):
    pod = attrs.evolve(POD, containers=(container,))
    head, row = pod_lines(pod, whole=True)
    assert head[0] == ("ns/p", "bold")
    assert [(" ".join(text.split()), style) for text, style in row] == [
        (" ".join(text.split()), style) for text, style in expected
    ]
    assert len(pod_lines(pod)) == 1


@pytest.mark.parametrize(("width", "name"), [(90, 30), (20, 8), (24, 8), (27, 9)])
def test_first_column_of_pods_has_a_third_of_the_width(width, name):
    pod = attrs.evolve(
        POD,
        name="p" * 99,
        phase="Running",
        containers=(ContainerInfo(name="c" * 99, state="running"),),
    )
    for line in drawn(Pane.PODS, NodeView(1, "h", pods=(pod,)), width, whole=True):
        assert line.plain[name - 1] != " " and line.plain[name : name + 4].lower() == " run"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("ns/p", 1),
        ("failed", 1),
        ("evicted", 1),
        ("disk full", 1),
        ("gpu 2: a,b", 2),
        ("main", 1),
        ("waiting", 1),
        ("Crash", 1),
        ("unknown", 0),
    ],
)
def test_pods_and_containers_are_found_by_their_words(text, count):
    main = attrs.evolve(GPUS, state="waiting", reason="Crash")
    side = ContainerInfo(name="side")
    pod = attrs.evolve(
        POD, phase="Failed", reason="Evicted", message="disk full", containers=(main, side)
    )
    pods = (pod, attrs.evolve(POD, name="q"))
    found = rows(Pane.PODS, NodeView(1, "h", pods=pods), Shown(whole=True), 80)
    assert len(found.containing(text)) == count


# -- events ----------------------------------------------------------------------------------


def test_event_row_has_time_and_text():
    lines = (LogLine(NOON, "fi\x1bne"), LogLine(NOON + 1, "bad", is_warning=True))
    found = [parts(line) for line in drawn(Pane.EVENTS, NodeView(1, "h"), lines=lines)]
    assert found == [
        [("12:34:56", "dim"), ("fi\\x1bne", "")],
        [("12:34:57", "dim"), ("bad", "bold yellow")],
    ]
    assert drawn(Pane.EVENTS, NodeView(1, "h"), lines=None) == []
    log = rows(Pane.EVENTS, NodeView(1, "h"), Shown(lines), 80)
    assert [line.text for line in log.containing("BAD").items] == ["bad"]
