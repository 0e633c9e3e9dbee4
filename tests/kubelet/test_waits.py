"""Waits for devices, events and calls, on threads and on event loops, and their reports."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from devicemanager import Event, EventKind, Expected, MockKubelet, RequestError, WaitTimeout
from devicemanager.events.calls import Mark
from devicemanager.events.calls.log import CallLog
from devicemanager.events.stream import EventStream
from devicemanager.kubelet.expectations import Watch
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest
from devicemanager.testing.fakes import FakePlugin
from tests.helpers import Counted

GPU = "vendor.com/gpu"
PATIENCE = 30.0
Log = tuple[EventStream, CallLog]


@pytest.fixture(scope="module")
def kubelet() -> Iterator[MockKubelet]:
    with (
        MockKubelet() as kubelet,
        SimulatedPlugin(
            SimulationSettings(resource_name=GPU, number_devices=2), kubelet.plugin_dir
        ),
    ):
        kubelet.wait_for_resource(GPU, 2)
        # Devices can be counted before Register is recorded, and tests select calls by a mark.
        kubelet.wait_for_call(GPU, rpc="Register", since=Mark(0, 0))
        yield kubelet


def run(kubelet: MockKubelet, name: str) -> str:
    admission = kubelet.admit(pod_manifest(name, {GPU: 1}))
    kubelet.terminate(admission.uid)
    return admission.uid


# -- what a watch collects ----------------------------------------------------------------------


def test_watch_collects_events_and_calls_in_order() -> None:
    events = EventStream(keep=2)
    calls = CallLog(events, 2, 1000)
    tap = calls.recorder(GPU, "g.sock")
    assert tap is not None
    events.publish(EventKind.STARTED, "before")
    early = tap.begin("Allocate")
    woken: list[bool] = []
    with Watch(events, calls, calls.mark(), lambda: woken.append(True)) as watch:
        assert watch.entries() == []
        early.answered(b"")
        for number in range(3):
            events.publish(EventKind.DEVICES_UPDATED, str(number))
            tap.begin("PreStartContainer").answered(b"")
        seen = [
            entry.message if isinstance(entry, Event) else entry.rpc for _, entry in watch.entries()
        ]
    later = "PreStartContainer"
    assert seen == ["Allocate", "0", later, "1", later, "2", later]
    assert len(woken) == 7
    events.publish(EventKind.STOPPED, "after")
    assert len(woken) == 7


# -- waits ---------------------------------------------------------------------------------


def test_wait_for_event_since_a_mark(kubelet: MockKubelet) -> None:
    mark = kubelet.mark()
    uid = run(kubelet, "since")
    event = kubelet.wait_for_event("admitted", since=mark, timeout=0)
    assert (event.kind, event.pod) == (EventKind.ADMITTED, uid)
    assert kubelet.wait_for_event(since=mark.event, timeout=0).number == mark.event + 1
    assert kubelet.wait_for_event(after=0, timeout=0).number == 1
    with pytest.raises(WaitTimeout, match=r"^waited 0 s for the event admitted"):
        kubelet.wait_for_event("admitted", timeout=0)


def test_wait_for_event_by_text_pod_and_predicate(kubelet: MockKubelet) -> None:
    mark = kubelet.mark()
    run(kubelet, "one")
    uid = run(kubelet, "two")
    find = kubelet.wait_for_event
    assert find("admitted", text="default/two", since=mark, timeout=0).pod == uid
    assert find(text=re.compile(r"two term.*d$"), since=mark, timeout=0).kind == "terminated"
    assert find("admitted", pod=uid, since=mark, timeout=0).pod == uid
    assert find(where=lambda event: event.pod == uid, since=mark, timeout=0).pod == uid
    with pytest.raises(
        WaitTimeout,
        match=r"^waited 0 s for the event devices-updated of vendor.com/gpu .*with 'x' where",
    ):
        find(
            "devices-updated",
            resource=GPU,
            text="x",
            where=lambda event: True,
            since=mark,
            timeout=0,
        )


def test_wait_for_event_that_happens_during_the_wait(kubelet: MockKubelet) -> None:
    thread = threading.Timer(0.01, run, (kubelet, "while"))
    mark = kubelet.mark()
    thread.start()
    assert kubelet.wait_for_event("terminated", since=mark, timeout=PATIENCE)
    call = kubelet.wait_for_call(GPU, rpc="Allocate", since=mark, timeout=PATIENCE)
    assert call.rpc == "Allocate"
    thread.join()


def test_wait_for_call_times_out(kubelet: MockKubelet) -> None:
    with pytest.raises(WaitTimeout, match=r"^waited 0 s for the call\(rpc='Allocate', code='OK'\)"):
        kubelet.wait_for_call(rpc="Allocate", code="OK", timeout=0)


def test_timeout_mentions_a_match_before_the_wait(
    kubelet: MockKubelet,
) -> None:
    run(kubelet, "early")
    advice = "it occurred before the wait began: take a mark before its cause, and pass the mark as"
    for wait in (
        lambda: kubelet.wait_for_event("admitted", timeout=0),
        lambda: kubelet.wait_for_call(rpc="Allocate", timeout=0),
        lambda: kubelet.expect(Expected.event("admitted", within=0), "rejected"),
    ):
        with pytest.raises(WaitTimeout, match=advice):
            wait()
    for wait in (
        lambda: kubelet.wait_for_event("rejected", timeout=0),
        lambda: kubelet.wait_for_event("admitted", where=lambda _: 1 / 0, timeout=0),
        lambda: kubelet.expect("started", Expected.event("started", within=0), since=Mark(0, 0)),
    ):
        with pytest.raises(WaitTimeout) as caught:
            wait()
        assert "it came before" not in str(caught.value)


@pytest.mark.parametrize(
    ("wait", "message"),
    [
        (
            lambda k: k.wait_for_resource(GPU, timeout=None),
            "^invalid timeout None: expected a number",
        ),
        (
            lambda k: k.wait_for(bool, timeout="9"),
            "invalid timeout '9': expected a number of seconds",
        ),
        (
            lambda k: k.wait_for(bool, timeout=math.nan),
            "invalid timeout nan: expected a number of seconds",
        ),
        (lambda k: k.wait_for(k.is_serving), "invalid condition True: expected a function"),
        (
            lambda k: k.wait_for_event(timeout=None),
            "invalid timeout None: expected a number of seconds",
        ),
        (lambda k: k.wait_for_event(where="x"), "invalid where 'x': expected a function"),
        (
            lambda k: k.wait_for_event(text=5),
            "invalid text 5: expected a str or a compiled pattern",
        ),
        (
            lambda k: k.wait_for_event(since="now"),
            "invalid since 'now': expected a mark or the number",
        ),
        (
            lambda k: k.wait_for_call(timeout=True),
            "invalid timeout True: expected a number of seconds",
        ),
        (lambda k: k.expect("admitted", since=1.5), "invalid since 1.5: expected a mark"),
        (
            lambda k: asyncio.run(k.wait_for_async(None)),
            "invalid condition None: expected a function",
        ),
        (
            lambda k: asyncio.run(k.wait_for_resource_async(GPU, timeout=[])),
            "invalid timeout .*: expected a number",
        ),
    ],
)
def test_invalid_arguments_are_rejected_at_once(
    wait: Callable[[MockKubelet], object], message: str, kubelet: MockKubelet
) -> None:
    with pytest.raises(RequestError, match="^" + message):
        wait(kubelet)


def test_infinite_timeout_is_accepted(kubelet: MockKubelet) -> None:
    since = kubelet.mark()
    threading.Thread(target=run, args=(kubelet, "later")).start()
    found = kubelet.wait_for_event("terminated", since=since, timeout=math.inf)
    assert found.message == "pod default/later terminated"


def test_expect_returns_the_steps(kubelet: MockKubelet) -> None:
    mark = kubelet.mark()
    uid = run(kubelet, "sequence")
    found = kubelet.expect(
        "Allocate", EventKind.ADMITTED, Expected.event(pod=uid, text="started"), since=mark
    )
    assert [each.kind if isinstance(each, Event) else each.rpc for each in found] == [
        "Allocate",
        "admitted",
        "container-started",
    ]
    assert kubelet.expect() == []
    succeeded = Expected.call(GPU, where=lambda call: call.code == "OK")
    assert kubelet.expect(succeeded, since=mark) == found[:1]


def test_expect_shows_which_steps_were_found(kubelet: MockKubelet) -> None:
    run(kubelet, "before")
    mark = kubelet.mark()
    run(kubelet, "order")
    steps = ("admitted", Expected.call(rpc="Allocate", within=0))
    with pytest.raises(WaitTimeout) as caught:
        kubelet.expect(*steps, since=mark)
    lines = str(caught.value).splitlines()
    wanted = "waited 0 s for the call(rpc='Allocate') (number 2 of 2); what did happen:"
    assert lines[0] == wanted
    start = lines.index("  -- matched from here --")
    assert lines[start - 1] == "  terminated: pod default/before terminated"
    assert re.match(r"  call \d+: Allocate vendor.com/gpu", lines[start + 1])
    assert "  admitted: pod default/order admitted   <- number 1" in lines[start:]
    assert lines[-1] == "  allocatable now: {'vendor.com/gpu': 2}"


def test_timeout_shows_calls_in_progress() -> None:
    kubelet = MockKubelet()
    tap = kubelet.calls.recorder(GPU, "g.sock")
    assert tap is not None
    tap.begin("Allocate")
    tap.begin("ListAndWatch")
    with pytest.raises(WaitTimeout) as caught:
        kubelet.wait_for_event(timeout=0)
    assert re.search(
        r"\n  nothing\n  not answered yet: Allocate vendor.com/gpu, since 0\.\d+ s$",
        str(caught.value),
    )
    kubelet.close()


def test_long_report_is_shortened_in_the_middle() -> None:
    kubelet = MockKubelet()
    for number in range(100):
        kubelet.events.publish(EventKind.DEVICES_UPDATED, f"list {number}")
    with pytest.raises(WaitTimeout) as caught:
        kubelet.wait_for_event("stopped", since=Mark(0, 0), timeout=0)
    lines = str(caught.value).splitlines()
    assert len(lines) == 1 + 1 + 20 + 1 + 20
    assert "  ... 60 more ..." in lines
    kubelet.close()


@pytest.mark.parametrize(("count", "shown"), [(40, 40), (41, 41)])
def test_report_of_up_to_40_entries_is_complete(count: int, shown: int) -> None:
    """Of 41 entries one is left out, with a line instead."""
    kubelet = MockKubelet()
    for number in range(count):
        kubelet.events.publish(EventKind.DEVICES_UPDATED, f"list {number}")
    with pytest.raises(WaitTimeout) as caught:
        kubelet.wait_for_event("stopped", since=Mark(0, 0), timeout=0)
    lines = str(caught.value).splitlines()
    assert len(lines) == 1 + 1 + shown
    assert ("  ... 1 more ..." in lines) is (count == 41)


def test_report_shows_a_few_entries_before_the_wait() -> None:
    kubelet = MockKubelet()
    for number in range(30):
        kubelet.events.publish(EventKind.DEVICES_UPDATED, f"list {number}")
    with pytest.raises(WaitTimeout) as caught:
        kubelet.wait_for_event("stopped", timeout=0)
    lines = str(caught.value).splitlines()
    assert lines[1:] == [
        *(f"  devices-updated: list {number}" for number in range(20, 30)),
        "  -- matched from here --",
    ]
    with pytest.raises(WaitTimeout) as caught:
        kubelet.wait_for(lambda: False, timeout=0, what="rain")
    lines = str(caught.value).splitlines()
    assert lines == [
        "waited 0 s for rain; what did happen:",
        *(f"  devices-updated: list {number}" for number in range(10, 30)),
    ]


def test_timeout_explains_why_devices_are_missing(tmp_path: Path) -> None:
    def why(count: int | None = 1) -> str:
        with pytest.raises(WaitTimeout) as caught:
            kubelet.wait_for_resource(GPU, count, timeout=0)
        return str(caught.value).partition("what did happen")[0]

    kubelet = MockKubelet(tmp_path / "k")
    waited = f"waited 0 s for 1 allocatable devices of {GPU}; "
    assert why() == f"{waited}the kubelet is not running; "
    with kubelet:
        assert (
            why() == f"{waited}no plugin has registered the resource on {kubelet.plugin_socket}; "
        )
        plugin = FakePlugin(GPU)
        plugin.register(kubelet.manager.plugins)
        plugin.send_list([])
        assert why() == waited
        assert why(None) == f"waited 0 s for any allocatable devices of {GPU}; "
        plugin.leave()
        assert why() == f"{waited}its plugin has disconnected; "
        kubelet.restart()
        assert why() == (
            f"{waited}its plugin has not registered on {kubelet.plugin_socket} since the restart; "
        )


@pytest.mark.parametrize("step", ["allocate", "listd"])
def test_expect_rejects_unknown_step(kubelet: MockKubelet, step: str) -> None:
    with pytest.raises(RequestError, match=f"^unknown event or RPC '{step}': use one of started"):
        kubelet.expect(step)


# -- on an event loop ----------------------------------------------------------------------


def test_asynchronous_methods_share_an_event_loop(kubelet: MockKubelet) -> None:
    async def test() -> None:
        mark = kubelet.mark()
        await kubelet.wait_for_resource_async(GPU, 2)
        waits = asyncio.gather(
            kubelet.wait_for_event_async("finished", since=mark, timeout=PATIENCE),
            kubelet.expect_async("Allocate", "admitted", since=mark),
            kubelet.wait_for_resource_async(GPU, 2, timeout=PATIENCE),
            kubelet.wait_for_async(lambda: kubelet.events.latest > mark.event, PATIENCE),
        )
        manifest = pod_manifest("loop", {GPU: 1})
        manifest["spec"]["restartPolicy"] = "Never"
        admission = await kubelet.admit_async(manifest)
        await kubelet.start_container_async(admission.uid, "main")
        assert await kubelet.finish_async(admission.uid) == "Succeeded"
        await kubelet.terminate_async(admission.uid)
        # These waits ran on the loop that did all this.
        event, found, *_ = await waits
        assert event.kind == "finished" and len(found) == 2

    asyncio.run(test())


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (
            lambda k: k.wait_for_event_async("stopped", timeout=0.01),
            r"waited 0\.01 s for the event stopped; what did",
        ),
        (
            lambda k: k.wait_for_resource_async(GPU, 9, timeout=0.01),
            r"waited 0\.01 s for 9 allocatable devices",
        ),
        (
            lambda k: k.wait_for_async(lambda: False, 0.01, "a miracle"),
            r"waited 0\.01 s for a miracle; what did",
        ),
    ],
)
def test_asynchronous_waits_time_out(
    kubelet: MockKubelet, wait: Callable[[MockKubelet], Awaitable[object]], words: str
) -> None:
    async def test() -> None:
        with pytest.raises(WaitTimeout, match="^" + words):
            await wait(kubelet)

    asyncio.run(test())


def test_cancelled_wait_unsubscribes(kubelet: MockKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        task = asyncio.create_task(kubelet.wait_for_event_async("stopped", timeout=PATIENCE))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    subscribed = Counted(kubelet.events.subscribe)
    monkeypatch.setattr(kubelet.events, "subscribe", subscribed)
    asyncio.run(test())
    assert (subscribed.calls, subscribed.open) == (1, 0)


def test_kubelet_is_an_asynchronous_context_manager() -> None:
    async def test() -> None:
        async with MockKubelet() as kubelet:
            await kubelet.restart_async()
            await kubelet.reboot_async()
            assert kubelet.plugin_socket.exists()
        assert not kubelet.root.exists()

    asyncio.run(test())
