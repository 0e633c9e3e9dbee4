"""Unread responses: they are limited, and the oldest are cancelled first."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from hypothesis import given
from hypothesis import strategies as st

from podresources.backlog import Backlog


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


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def backlog(clock: Clock, **limits: int) -> Backlog:
    return Backlog(clock, **{"limit_bytes": 100, "limit_answers": 4, "patience": 1.0, **limits})


def test_read_responses_make_room():
    clock = Clock()
    under_way = backlog(clock)
    for _ in range(10):
        call = FakeCall(60)
        assert under_way.add(call, 60)
        call.read()
    assert under_way.size == 0


def test_recent_responses_are_not_cancelled():
    clock = Clock()
    under_way = backlog(clock)
    first = FakeCall(60)
    assert under_way.add(first, 60)
    clock.now = 0.9
    assert not under_way.add(FakeCall(60), 60)
    assert not first.cancelled and under_way.size == 60


def test_oldest_unread_responses_are_cancelled_first():
    clock = Clock()
    under_way = backlog(clock)
    calls = [FakeCall(30) for _ in range(3)]
    for call in calls:
        assert under_way.add(call, 30)
    clock.now = 5.0
    assert under_way.add(FakeCall(50), 50)
    assert [call.cancelled for call in calls] == [True, True, False]
    assert under_way.size == 80


def test_response_above_the_limit_is_accepted_alone():
    clock = Clock()
    under_way = backlog(clock)
    assert under_way.add(FakeCall(500), 500)
    assert not under_way.add(FakeCall(1), 1)
    clock.now = 2.0
    assert under_way.add(FakeCall(1), 1) and under_way.size == 1


def test_number_of_responses_is_limited():
    clock = Clock()
    under_way = backlog(clock)
    assert [under_way.add(FakeCall(0), 0) for _ in range(5)] == [True] * 4 + [False]


def test_ended_call_does_not_count():
    under_way = backlog(Clock())
    assert under_way.add(FakeCall(60, ended=True), 60)
    assert under_way.size == 0


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
def test_random_calls_stay_within_the_limit(steps):
    clock = Clock()
    under_way = backlog(clock)
    waiting: list[FakeCall] = []
    for verb, amount in steps:
        if verb == "wait":
            clock.now += amount
        elif verb == "add":
            call = FakeCall(amount)
            if under_way.add(call, amount):
                waiting.append(call)
        elif amount < len(waiting):
            waiting[amount].read()
        waiting = [call for call in waiting if not call.ended]
        assert under_way.size == sum(call.size for call in waiting)
        assert len(waiting) <= 4
        assert under_way.size <= 100 or len(waiting) == 1
