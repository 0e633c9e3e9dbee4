"""Injected faults of calls and lists, without a plugin."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from devicemanager.core.errors import InjectedError
from devicemanager.core.ids import ResourceName
from devicemanager.events.calls import CallLog
from devicemanager.events.stream import EventStream
from devicemanager.faults import FaultRegistry
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.registration.fault_injection import PluginFaults, not_made
from tests.timing import wait_until

GPU = ResourceName("vendor.com/gpu")


class Case:
    """A connection to a plugin on ``gpu.sock`` with these faults; it notes what happens."""

    def __init__(self, *lines: str) -> None:
        self.clock = ManualClock()
        self.registry = FaultRegistry(self.clock)
        for line in lines:
            self.registry.set(line)
        self.faults = PluginFaults(self.registry, GPU, "/plugins/gpu.sock")
        self.done: list[str] = []
        self.call = None
        self.log = CallLog(EventStream(), 10, 1000)
        recorder = self.log.recorder(GPU, "gpu.sock")
        assert recorder is not None
        self.call = recorder.begin("Allocate")

    def make(self, rpc: str = "Allocate", inside: Callable[[], None] = lambda: None) -> list[str]:
        """Make a call; return what happened, in order."""
        try:
            with self.faults.around(rpc, self.call, lambda: self.done.append("cut")):
                self.done.append("made")
                inside()
        except InjectedError as error:
            self.done.append(f"{error.code}: {error.description}")
        else:
            self.done.append("OK")
        return self.done

    def holding(self) -> int:
        return sum(state.holding for state in self.registry.list())


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ("fail-call:code=INTERNAL,text=no", ["Internal: no"]),
        ("fail-call:when=after,code=DATA_LOSS", ["made", "DataLoss: injected fault"]),
        ("fail-call:rpc=PreStartContainer", ["made", "OK"]),
        ("fail-call:plugin=gpu.sock", ["Unavailable: injected fault"]),
        ("fail-call:plugin=nic.sock", ["made", "OK"]),
        ("fail-call:resource=vendor.com/nic", ["made", "OK"]),
        ("cut-call", ["cut", "Unavailable: the connection was cut"]),
        ("cut-call:when=after", ["made", "cut", "Unavailable: the connection was cut"]),
        ("cut-call:when=during,seconds=1", ["made", "OK"]),
    ],
)
def test_fault_of_a_call_acts_before_or_after_it(line: str, done: list[str]) -> None:
    case = Case(line)
    assert case.make() == done
    assert case.holding() == 0
    assert case.call.fault == (
        "" if case.registry.list()[0].fired == 0 else "fault 1, " + line.partition(":")[0]
    )


def test_cut_during_a_call_waits_for_its_time() -> None:
    case = Case("cut-call:when=during,seconds=2")

    def work() -> None:
        case.clock.advance(1.9)
        case.done.append("working")
        case.clock.advance(0.1)
        case.done.append("working on")

    assert case.make(inside=work) == ["made", "working", "cut", "working on", "OK"]
    case = Case("cut-call:when=during,seconds=2")
    assert case.make() == ["made", "OK"]
    case.clock.advance(3)
    assert case.done == ["made", "OK"]


@pytest.mark.parametrize(("when", "before"), [("before", []), ("after", ["made"])])
def test_delay_of_a_call_ends_by_the_clock(when: str, before: list[str]) -> None:
    case = Case(f"delay-call:when={when},seconds=5")
    thread = threading.Thread(target=case.make)
    thread.start()
    wait_until(lambda: case.holding() == 1)
    assert case.done == before
    case.clock.advance(5)
    thread.join(20)
    assert case.done == ["made", "OK"]
    assert case.call.fault == "fault 1, delay-call"


def test_faults_that_take_part_in_a_call_are_noted_in_order() -> None:
    case = Case("cut-call:when=during,seconds=9", "fail-call:when=after")
    case.make()
    assert case.call.fault == "fault 1, cut-call; fault 2, fail-call"


def test_call_that_is_not_made_is_recorded() -> None:
    from devicemanager.faults.injection_point import InjectionPoint

    case = Case("reject-register:code=NOT_FOUND,text=no")
    (fault,) = case.registry.at(InjectionPoint.REGISTER)
    error = not_made(fault, case.call)
    assert (error.code, error.description) == ("NotFound", "no")
    (call,) = case.log.all()
    assert (call.code, call.message, call.fault) == ("NotFound", "no", "fault 1, reject-register")
    assert not_made(fault, None).code == "NotFound"


def test_reader_of_lists_continues_when_the_connection_closes() -> None:
    case = Case("stop-reading")
    thread = threading.Thread(target=case.faults.list_arrived)
    thread.start()
    wait_until(lambda: case.faults._stalled is not None)
    case.faults.closed()
    thread.join(20)
    assert not thread.is_alive() and case.faults._stalled is None
    case.faults.closed()
    case.registry.clear()
    case.faults.list_arrived()  # returns at once


def test_plugin_is_named_by_its_socket() -> None:
    assert PluginFaults(FaultRegistry(), GPU, str(Path("/a/b.sock")))._plugin == "b.sock"
