"""What the checks of device lists and streams say about a plugin: one row per outcome."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from devicemanager.conformance import Limits
from devicemanager.conformance.checks import (
    listandwatch,
)
from devicemanager.conformance.outcomes import Failed
from protos import deviceplugin_v1beta1 as dp
from tests.conformance.recorded_run import (
    GPU,
    LIMITS,
    NIC,
    Changing,
    Client,
    Run,
    device,
    ending,
    error,
    listed,
    outcome,
)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (5.0, "pass: 5.000 s"),
        (5.1, "warn: the first device list came after 5.1 s, more than 5 s"),
    ],
)
def test_w01(seconds: float, expected: str) -> None:
    of = {GPU: [listed(duration=1.0), listed(duration=99.0)], NIC: [listed(duration=seconds)]}
    run = Run(lists=lambda resource, since: of[resource])
    run.resources = (GPU, NIC)
    assert outcome("W01", run) == expected


@pytest.mark.parametrize(
    ("ended", "serving", "is_pass"),
    [(0, True, True), (1, True, False), (0, False, False)],
)
def test_w02(ended: int, serving: bool, is_pass: bool) -> None:
    run = Run(ended_streams=lambda name: [0] * ended, is_serving=lambda name: serving)
    text = f"fail: the plugin ended the ListAndWatch stream of {GPU}"
    assert outcome("W02", run) == ("pass: None" if is_pass else text)


@pytest.mark.parametrize(
    ("id_", "devices", "expected"),
    [
        ("W03", [device("a"), device("b")], "pass: None"),
        ("W03", [device("")], f"fail: {GPU}: a device has an empty ID"),
        ("W03", [device(id_) for id_ in "bbaac"], f"fail: {GPU}: a device list contains a twice"),
        ("W04", [device("a"), device("b", "Unhealthy")], "pass: None"),
        ("W04", [device("a", "healthy")], f"fail: {GPU}: invalid health 'healthy' of device a: "
         "expected Healthy or Unhealthy"),
        ("W05", [device("x" * 63)], "pass: None"),
        ("W05", [device("x" * 64)], f"fail: {GPU}: device ID {'x' * 40}... has 64 characters, "
         "limit 63"),
        ("W05", [device("a\x07")], f"fail: {GPU}: device ID 'a\\x07' contains control characters"),
        *[("W05", [device(odd), device(",")], f"warn: {GPU}: device ID {odd!r} contains a comma or "
         "a space, or only slashes") for odd in ("a,b", "a b", "//", "/")],
        ("W05", [device("a/b")], "pass: None"),
    ],
)  # fmt: skip
def test_contents_of_device_lists(id_: str, devices: list[dp.Device], expected: str) -> None:
    run = Run(*devices, lists=lambda resource, since: [listed(*devices)])
    assert outcome(id_, run) == expected


@pytest.mark.parametrize(
    ("first", "lists", "expected"),
    [
        ([device("a")], [], "skip: needs 2 devices, the plugin has 1"),
        ([], [], "skip: needs 2 devices, the plugin has none"),
        ([device("a"), device("b")], [listed(device("b")), listed(device("a"), device("b"))],
         "pass: None"),
        ([device("a"), device("b"), device("c")], [listed(device("a"))], "fail: device b has not "
         "changed, but a device list lacks it after a change of a"),
    ],
)  # fmt: skip
def test_w06(first: list[dp.Device], lists: list[Any], expected: str) -> None:
    run = Changing(*first, lists=lambda resource, since: lists)
    run.new_list = lambda resource: dp.ListAndWatchResponse(devices=first)  # type: ignore[method-assign, assignment]
    assert outcome("W06", run) == expected
    if len(first) > 1:
        assert run.changes == ["break a", "recover a"]
        assert run.seen.count("wait 0 s") == 2


def test_w06_ignores_devices_that_failed_together() -> None:
    both = [device("a"), device("b")]
    run = Changing(*both, lists=lambda resource, since: [listed(device("a"))])
    run.new_list = lambda resource: dp.ListAndWatchResponse(devices=both[:1])  # type: ignore[method-assign, assignment]
    assert outcome("W06", run) == "pass: None"


@pytest.mark.parametrize(
    ("id_", "takes", "expected", "changes", "disproved"),
    [
        ("W07", [1.5], "pass: reported after 1.50 s", ["break a"], set()),
        ("W07", [Failed("no")], "fail: no", ["break a"], {"W07"}),
        ("W08", [0.0, 1.0, 0.0, 2.0], "pass: reported after at most 2.00 s",
         ["break a", "recover a", "break a for the second time", "recover a for the second time"],
         set()),
        ("W08", [0.0, 3.0, 0.0, 2.0], "pass: reported after at most 3.00 s", None, set()),
        ("W08", [Failed("no")], "skip W07: no", ["break a"], set()),
        ("W08", [0.0, Failed("no")], "fail: no", ["break a", "recover a"], {"W08"}),
        ("W08", [0.0, 0.0, Failed("no")], "fail: no", None, set()),
        ("W09", [0.0], "pass: None", ["break a"], set()),
        ("W09", [Failed("no")], "skip W07: no", ["break a"], set()),
    ],
)  # fmt: skip
def test_changes_of_devices(
    id_: str, takes: list[Any], expected: str, changes: Any, disproved: set[str]
) -> None:
    run = Changing(device("a"), device("b"), takes=takes)
    assert outcome(id_, run) == expected
    assert changes in (None, run.changes)
    assert run.disproved == disproved
    assert (("recover-device", "a") in run.seen) is (disproved == {"W07"})
    assert run.seen[0] == "start"


def test_w09_needs_the_device_in_the_list() -> None:
    run = Changing(device("a"))
    lists = iter([[device("a")], [device("a")], []])
    run.observed.devices = lambda resource: next(lists)
    assert outcome("W09", run) == (
        "fail: the plugin removed allocated device a from its list, expected health Unhealthy"
    )
    assert run.to_plugin.made == [("allocate", ["a"]), ("allocate", ["a"])]


@pytest.mark.parametrize(
    ("count", "idle", "expected"),
    [
        (0, 15.0, "pass: 0 device lists in 15 s"),
        (1, 15.0, "pass: 1 device list in 15 s"),
        (2, 15.0, "fail: 2 device lists in 15 s although no device changed, limit 1 per minute"),
        (2, 120.0, "pass: 2 device lists in 120 s"),
        (3, 120.0, "fail: 3 device lists in 120 s although no device changed, limit 1 per minute"),
    ],
)
def test_w12(count: int, idle: float, expected: str) -> None:
    of = {
        GPU: [listed(stream_message=1), *[listed(stream_message=2)] * count],
        NIC: [listed(stream_message=1)] * 5,
    }
    run = Run(lists=lambda resource: of[resource])
    run.resources = (GPU, NIC)
    run.limits = Limits(idle_seconds=idle)
    assert outcome("W12", run) == expected


def test_newest_health_is_that_of_the_last_list() -> None:
    def health(*lists: list[dp.Device]) -> str:
        answers = [dp.ListAndWatchResponse(devices=each) for each in lists]
        stream: Any = Client(next=[*answers, error()])
        return listandwatch._newest_health(Run(), stream, "a")

    assert health() == ""
    assert health([device("a")]) == "Healthy"
    assert health([device("a")], [device("a", "Unhealthy")]) == "Unhealthy"
    assert health([device("b")]) == "Unhealthy"
    assert health([], [device("a")]) == "Healthy"


@pytest.mark.parametrize(
    ("ended", "again", "expected"),
    [
        ([False, False], False, "pass: None"),
        ([True], False, f"skip W02: the plugin ended the ListAndWatch stream of {GPU}"),
        ([False, True], False, f"fail: the kubelet's ListAndWatch stream of {GPU} ended when a "
         "second one closed"),
        ([False, True], True, f"warn: the kubelet's ListAndWatch stream of {GPU} ended when a "
         "second one closed; the plugin registered again"),
    ],
)  # fmt: skip
def test_w11(ended: list[bool], again: bool, expected: str) -> None:
    run, left = streaming(dp.ListAndWatchResponse()), iter(ended)
    run.observed.ended_streams = lambda resource: [0] if next(left) else []
    run.registers_again = lambda since: again  # type: ignore[method-assign]
    opened: list[str] = []
    run.new_list = lambda resource, of: opened.append(f"{resource} {of}")  # type: ignore[method-assign, assignment, return-value, func-returns-value]
    assert outcome("W11", run) == expected
    assert opened == ([f"{GPU} a third stream"] if expected.startswith("pass") else [])
    assert run.seen[0] == "start" and run.seen.count("wait 0 s") == len(ended)


def test_w11_without_a_list_on_the_second_stream() -> None:
    run = streaming(error("UNKNOWN", "ListAndWatch"))
    run.observed.ended_streams = lambda resource: []
    assert outcome("W11", run) == (
        "fail: the first device list of a second stream: ListAndWatch failed with UNKNOWN: no"
    )
    assert run.disproved == {"W11"}


def streaming(*lists: Any) -> Changing:
    """Return a run whose plugin sends these lists to a second stream."""
    stream = Client(next=[*lists])
    run = Changing(device("a"), client=Client(watch=contextlib.nullcontext(stream)))
    run.limits = attrs.evolve(LIMITS, changes=4)
    return run


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ([100 << 20, 120 << 20], "pass: memory +20.0%"),
        ([100 << 20, 90 << 20], "pass: memory -10.0%"),
        ([100 << 20, (120 << 20) + 1], "fail: the plugin's memory grew by 20% during 4 device "
         "changes"),
    ],
)  # fmt: skip
def test_w13(memory: list[int], expected: str) -> None:
    run, left = streaming(dp.ListAndWatchResponse(), dp.ListAndWatchResponse()), iter(memory)
    run.plugin.usage = lambda: SimpleNamespace(memory=next(left))
    assert outcome("W13", run) == expected
    assert run.seen == ["start", "wait 0 s"]
    when = " while a second stream is open and not read"
    assert run.changes == [
        "break a",
        "recover a",
        *[f"{each} a{when}" for each in ("break", "recover", "break", "recover")],
    ]


@pytest.mark.parametrize(
    ("number", "health", "skipped"),
    [(0, "Unhealthy", True), (0, "Healthy", False), (1, "Healthy", True), (1, "Unhealthy", False)],
)
def test_w13_of_a_change_that_the_kubelet_does_not_see(
    number: int, health: str, skipped: bool
) -> None:
    lists = [dp.ListAndWatchResponse(), dp.ListAndWatchResponse(devices=[device("a", health)])]
    run = streaming(*lists, error())
    run.takes = iter([0.0, 0.0, *[0.0] * number, Failed("no")])
    run.plugin.usage = lambda: SimpleNamespace(memory=1)
    assert outcome("W13", run) == (
        "skip: the plugin sent a device list to the second stream instead of the kubelet's: it "
        "sends each list to only one stream"
        if skipped
        else "fail W08: no (the kubelet misses device changes while another stream is open and "
        "not read)"
    )


@pytest.mark.parametrize(
    ("lists", "running", "exited", "expected"),
    [
        ([["a"], [], ["n"]], True, [False, False], "pass: None"),
        ([["a"], ["a"]], True, [], "fail: the device list still has 1 healthy device 0 s after all "
         "devices were removed (removed devices stay on the node)"),
        ([["a"], []], False, [True], "fail: the plugin exited when it had no devices: exit status "
         "1 (after a race at boot, the plugin exits and its pod restarts in a loop)"),
        ([["a"], [], []], True, [False, False], "fail: the plugin works without devices, but does "
         "not list a device that is added later: no device list contains it within 0 s after "
         "add-device (a device that is added is not used until the plugin restarts)"),
        ([["a"], [], []], True, [False, True], "fail: the plugin exited after add-device: exit "
         "status 1"),
    ],
)  # fmt: skip
def test_w14(lists: list[Any], running: bool, exited: list[bool], expected: str) -> None:
    left, last = iter(lists), lists[-1]
    run = Changing(lists=lambda resource, since: [listed()])
    run.observed.devices = lambda resource: [device(id_) for id_ in next(left, last)]
    run.plugin.process.is_running = running
    exits = iter(exited)
    run.plugin = Seen(has_exited=lambda: next(exits, exited[-1]), **_without(run, "has_exited"))
    assert outcome("W14", run) == expected
    assert run.seen[:3] == ["start", "hook remove-device a", ("remove-device", "a")]
    assert ("hook add-device" in run.seen) is (len(exited) > 1)


def _without(run: Any, name: str) -> dict[str, Any]:
    return {key: value for key, value in vars(run.plugin).items() if key != name}


class Seen(SimpleNamespace):
    """Plugin whose property ``has_exited`` is a function."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return value() if name == "has_exited" else value


class Uses:
    """Resource use that has grown, or not."""

    def __init__(self, number: int, grown: bool) -> None:
        self.number, self.grown = number, grown

    def has_more_handles(self, before: Any, limits: Any) -> bool:
        return self.grown

    def __str__(self) -> str:
        return f"use {self.number}"


@pytest.mark.parametrize(
    ("grown", "waits", "expected"),
    [
        ([False], [2.0], "pass: handlers"),
        ([True, True, False], [2.0, 2.0, 2.0], "pass: handlers"),
        ([True] * 4, [2.0, 2.0, 2.0, 10.0], "fail: 4 batches of 3 streams were opened and closed; "
         "resource use after the last one: use 8; before it: use 6"),
    ],
)  # fmt: skip
def test_w15(
    grown: list[bool], waits: list[float], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, count, found = Run(), iter(range(20)), iter(grown)
    run.limits = Limits(stream_batches=4, streams=3)
    uses: list[Uses] = []

    def usage() -> Uses:
        number = next(count)
        uses.append(Uses(number, next(found) if number % 2 else False))
        return uses[-1]

    seen: list[float] = []
    opened: list[str] = []
    monkeypatch.setattr(listandwatch, "assume_new_list", lambda run: opened.append("list"))
    monkeypatch.setattr(listandwatch, "_check_handlers", lambda run: "handlers")
    run.kubelet.calls = SimpleNamespace(in_progress=[SimpleNamespace(rpc="ListAndWatch")])
    run.plugin.usage = usage
    run.settle = lambda seconds: run.seen.append(f"settle {seconds}")  # type: ignore[method-assign, assignment, misc]
    run.until = lambda condition, seconds: (  # type: ignore[method-assign]
        seen.append(seconds) or (0.1 if condition() else None)  # type: ignore[func-returns-value]
    )
    assert outcome("W15", run) == expected
    assert (seen, len(opened)) == (waits, 1 + 3 * len(waits))
    assert run.seen == ["start", "settle 0.2"]


@pytest.mark.parametrize(("streams", "closes"), [([1, 1], False), ([1, 2], True)])
def test_w15_closes_streams_of_earlier_registrations(
    streams: list[int], closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, left = Run(), iter(streams)
    run.limits = Limits(stream_batches=1)
    monkeypatch.setattr(listandwatch, "assume_new_list", lambda run: None)
    monkeypatch.setattr(listandwatch, "_check_handlers", lambda run: "handlers")
    monkeypatch.setattr(listandwatch, "_open_streams", lambda run: next(left))
    run.plugin.usage = lambda: Uses(0, False)
    run.settle = lambda seconds=1.5: run.seen.append(f"settle {seconds}")  # type: ignore[method-assign, assignment, misc]
    assert outcome("W15", run) == "pass: handlers"
    restart = ["settle 1.5", "restart the kubelet", "kubelet.restart", "wait 60 s after the "
               "restart", "settle 0.2"]  # fmt: skip
    assert run.seen == ["start", "settle 0.2", *(restart if closes else [])]


_AS_BEFORE = "threads and descriptors as before"


@pytest.mark.parametrize(
    ("is_go", "handlers", "rounds", "expected"),
    [
        (False, [], 0, _AS_BEFORE),
        (True, [None], 1, f"{_AS_BEFORE}; no stacks on SIGABRT, so no goroutines counted"),
        (True, [2], 1, "2 goroutines in ListAndWatch"),
        (True, [1], 1, "1 goroutine in ListAndWatch"),
        (True, [5, 2], 2, "2 goroutines in ListAndWatch"),
        (True, [5, 5, 0], 3, "0 goroutines in ListAndWatch"),
        (True, [5, 4, 3], 3, "1 ListAndWatch handler did not return after the end of the stream: "
         "the plugin has 3 goroutines in ListAndWatch, and 2 open streams"),
    ],
)  # fmt: skip
def test_handlers_are_counted(
    is_go: bool, handlers: list[Any], rounds: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, left = ending(Run()), iter(handlers)
    run.plugin.process.pid = 7
    run.limits = Limits(stream_end_seconds=10, streams=3)
    calls = [SimpleNamespace(rpc=rpc) for rpc in ("ListAndWatch", "Register", "ListAndWatch")]
    run.kubelet.calls = SimpleNamespace(in_progress=calls)
    run.settle = lambda seconds=None: run.seen.append(f"settle {seconds}")  # type: ignore[method-assign, assignment, misc]
    relaunch = run.relaunch
    run.relaunch = lambda after: (relaunch(after), setattr(run.plugin.process, "is_running", True))  # type: ignore[method-assign]
    run.until = lambda condition, seconds: run.seen.append(f"until {seconds:g}")  # type: ignore[method-assign]
    monkeypatch.setattr(listandwatch, "assume_new_list", lambda run: run.seen.append("list"))
    path = "devicemanager.conformance.process_checks"
    monkeypatch.setattr(f"{path}.is_go", lambda pid: is_go and pid == 7)
    monkeypatch.setattr(
        f"{path}.goroutines_in",
        lambda output, name: next(left) if name == "ListAndWatch" else None,
    )
    try:
        found = listandwatch._check_handlers(run)
    except Failed as failed:
        found = str(failed)
    assert found == expected
    abort = ["SIGABRT", "stay down", 6, "until 10"]
    again = ["relaunch after its new start", "list", "list", "list"]
    whole = [["settle None", *abort], [*again, "settle 10.0", *abort],
             [*again, "until 35", "settle None", *abort]]  # fmt: skip
    assert [str(each) for each in run.seen] == [
        str(each).replace("10.0", str(run.limits.stream_end_seconds))
        for part in whole[:rounds]
        for each in part
    ]
