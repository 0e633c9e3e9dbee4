"""Retries: which errors are retried, how often, and after which waits."""

from __future__ import annotations

import pytest

from devicemanager.io.retry import retry


class Flaky:
    """A function that raises each of these errors once, then returns."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def never(_seconds: float) -> None:
    raise AssertionError("slept")


def test_waits_double_up_to_longest_and_are_reported() -> None:
    slept: list[float] = []
    reported: list[tuple[str, float]] = []
    flaky = Flaky(*(KeyError(i) for i in range(5)))
    answer = retry(
        flaky,
        LookupError,
        sleep=slept.append,
        first_wait=0.5,
        longest_wait=3,
        report=lambda error, pause: reported.append((str(error), pause)),
    )
    assert answer == "done"
    assert slept == [0.5, 1, 2, 3, 3]
    assert reported == [(str(i), wait) for i, wait in enumerate(slept)]


def test_other_errors_are_raised_at_once() -> None:
    flaky = Flaky(ValueError("other"))
    with pytest.raises(ValueError, match=r"^other"):
        retry(flaky, LookupError, sleep=never, first_wait=1, longest_wait=1)
    assert flaky.calls == 1


def test_calls_continue_while_no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 5.0)
    flaky, slept = Flaky(KeyError(1), KeyError(2)), list[float]()
    answer = retry(
        flaky, KeyError, sleep=slept.append, first_wait=0.1, longest_wait=0.1, seconds=0.5
    )
    assert (answer, flaky.calls, slept) == ("done", 3, [0.1, 0.1])


@pytest.mark.parametrize("limit", [{"attempts": 1}, {"stopping": lambda: True}, {"seconds": 0}])
def test_last_error_is_raised_at_each_limit_without_wait(limit) -> None:
    reported: list[float] = []
    with pytest.raises(KeyError):
        retry(
            Flaky(KeyError(1), KeyError(2)),
            KeyError,
            sleep=never,
            first_wait=1,
            longest_wait=1,
            report=lambda _error, pause: reported.append(pause),
            **limit,
        )
    assert reported == []


def test_attempts_are_counted() -> None:
    slept: list[float] = []
    flaky = Flaky(*(KeyError(i) for i in range(5)))
    with pytest.raises(KeyError, match=r"^2"):
        retry(flaky, KeyError, sleep=slept.append, first_wait=3, longest_wait=3, attempts=3)
    assert slept == [3, 3]


def test_jitter_makes_no_wait_longer() -> None:
    slept: list[float] = []
    flaky = Flaky(*(KeyError(i) for i in range(20)))
    retry(flaky, KeyError, sleep=slept.append, first_wait=0.5, longest_wait=4, jitter=True)
    assert all(0 <= wait <= 0.5 * 2**n for n, wait in enumerate(slept))
    assert max(slept) <= 4
    assert len(set(slept)) > 1


def test_last_error_is_raised_after_the_given_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    flaky = Flaky(*(KeyError(i) for i in range(9)))
    with pytest.raises(KeyError, match=r"^3"):
        retry(flaky, KeyError, sleep=sleep, first_wait=1, longest_wait=1, seconds=3, attempts=8)
    assert slept == [1, 1, 1]
