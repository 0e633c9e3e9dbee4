"""Responses that clients do not read are limited; the oldest are cancelled first."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from hypothesis import given
from hypothesis import strategies as st

from podresources.backlog import Backlog
from tests.timing import Clock


@attrs.define(eq=False)
class FakeCall:
    """An RPC that ends when its response is read or it is cancelled."""

    size: int
    ended: bool = False
    cancelled: bool = False
    callbacks: list[Callable[[], None]] = attrs.field(factory=list)

    def add_callback(self, callback: Callable[[], None]) -> bool:
        if not self.ended:
            self.callbacks.append(callback)
        return not self.ended

    def cancel(self) -> bool:
        self.cancelled = True
        self.read()
        return True

    def read(self) -> None:
        self.ended = True
        while self.callbacks:
            self.callbacks.pop()()


def backlog(clock: Clock, **limits: int) -> Backlog:
    return Backlog(clock, **{"limit_bytes": 100, "limit_answers": 4, "patience": 1.0, **limits})


def test_read_responses_make_room():
    clock = Clock()
    pending = backlog(clock)
    for _ in range(10):
        call = FakeCall(60)
        assert pending.add(call, 60)
        call.read()
    assert pending.size == 0


def test_recent_responses_are_not_cancelled():
    clock = Clock()
    pending = backlog(clock)
    first = FakeCall(60)
    assert pending.add(first, 60)
    clock.now = 0.9
    assert not pending.add(FakeCall(60), 60)
    assert not first.cancelled and pending.size == 60


def test_oldest_unread_responses_are_cancelled_first():
    clock = Clock()
    pending = backlog(clock)
    calls = [FakeCall(30) for _ in range(3)]
    for call in calls:
        assert pending.add(call, 30)
    clock.now = 5.0
    assert pending.add(FakeCall(50), 50)
    assert [call.cancelled for call in calls] == [True, True, False]
    assert pending.size == 80


def test_clients_are_disconnected_before_calls_are_cancelled():
    clock = Clock()
    pending = backlog(clock)
    first, second, new = FakeCall(60), FakeCall(30), FakeCall(60)
    assert pending.add(first, 60) and pending.add(second, 30)
    assert not pending.add(new, 60)  # too early
    clock.now = 5.0
    rejected: list[bool] = []

    def disconnect() -> None:
        # Meanwhile, other responses that do not fit are rejected at once.
        rejected.append(not pending.add(FakeCall(60), 60))
        assert pending.add(FakeCall(5), 5)
        first.read()

    pending.disconnect = disconnect
    assert pending.add(new, 60)
    # The client of the first call was disconnected, so the second one can stay.
    assert rejected == [True] and not first.cancelled and not second.cancelled
    assert pending.size == 95
    clock.now = 10.0
    pending.disconnect = lambda: None
    assert pending.add(FakeCall(30), 30)  # another thread can make room now
    assert second.cancelled


def test_response_above_limit_is_accepted_alone():
    clock = Clock()
    pending = backlog(clock)
    assert pending.add(FakeCall(500), 500)
    assert not pending.add(FakeCall(1), 1)
    clock.now = 2.0
    assert pending.add(FakeCall(1), 1) and pending.size == 1


def test_number_of_responses_is_limited():
    clock = Clock()
    pending = backlog(clock)
    assert [pending.add(FakeCall(0), 0) for _ in range(5)] == [True] * 4 + [False]


def test_ended_call_does_not_count():
    pending = backlog(Clock())
    assert pending.add(FakeCall(60, ended=True), 60)
    assert pending.size == 0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 150)),
            st.tuples(st.just("read"), st.integers(0, 9)),
            st.tuples(st.just("wait"), st.integers(0, 2)),
        ),
        max_size=40,
    )
)
def test_random_calls_stay_within_limit(steps):
    clock = Clock()
    pending = backlog(clock)
    waiting: list[FakeCall] = []
    for verb, amount in steps:
        if verb == "wait":
            clock.now += amount
        elif verb == "add":
            call = FakeCall(amount)
            if pending.add(call, amount):
                waiting.append(call)
        elif amount < len(waiting):
            waiting[amount].read()
        waiting = [call for call in waiting if not call.ended]
        assert pending.size == sum(call.size for call in waiting)
        assert len(waiting) <= 4
        assert pending.size <= 100 or len(waiting) == 1
