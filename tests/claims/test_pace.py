"""The pace of a search, with a clock of its own."""

import pytest

from devicemanager.claims import pace
from devicemanager.claims.pace import Pace


class Clock:
    """CPU time that the test advances, and the sleeps."""

    def __init__(self):
        self.now = 100.0
        self.sleeps = []

    def thread_time(self):
        return self.now

    def sleep(self, seconds):
        self.sleeps.append(seconds)


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(pace, "time", found)
    return found


def test_a_short_search_never_sleeps(clock):
    search = Pace()
    for _ in range(30):
        clock.now += 0.0001
        assert search()
    assert clock.sleeps == []


def test_a_long_search_sleeps_after_each_slice(clock):
    search = Pace()
    clock.now += 0.0041
    for _ in range(10):
        assert search()
        clock.now += 0.00021
    assert len(clock.sleeps) == 10
    assert min(clock.sleeps) >= 0.0002


def test_a_long_slice_is_followed_by_a_longer_sleep(clock):
    search = Pace()
    clock.now += 0.005
    search()
    clock.now += 0.01
    search()
    assert clock.sleeps[-1] == pytest.approx(0.02)


def test_a_search_ends_at_the_limit_of_cpu_time(clock):
    search = Pace(seconds=1)
    clock.now += 0.9
    assert search()
    clock.now += 0.2
    assert not search()
