"""Retries: the one set-up of tenacity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["retry"]

T = TypeVar("T")

Report = Callable[[BaseException, float], object]
"""Takes an error and the seconds until the next attempt."""


def retry(
    call: Callable[[], T],
    errors: type[Exception],
    *,
    sleep: Callable[[float], object],
    first_wait: float,
    longest_wait: float,
    attempts: int | None = None,
    seconds: float | None = None,
    stopping: Callable[[], bool] = lambda: False,
    jitter: bool = False,
    report: Report | None = None,
) -> T:
    """Call until no error of the type ``errors`` comes, and return what came instead.

    The waits, in seconds, double from ``first_wait`` to ``longest_wait``; with ``jitter``
    each is a random part of that. ``sleep`` does the waiting and may end it early.
    ``report`` is called with each error that is followed by another attempt.

    Raises the last error after ``attempts`` calls, after ``seconds``, or once ``stopping``
    says so, whichever comes first; any other error at once.
    """
    # Loaded here: most processes never try anything twice, and start-up time matters.
    import tenacity

    def given_up(state: tenacity.RetryCallState) -> bool:
        tried_enough = attempts is not None and state.attempt_number >= attempts
        too_late = seconds is not None and (state.seconds_since_start or 0.0) >= seconds
        return tried_enough or too_late or stopping()

    def tell(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if report is not None and error is not None and state.next_action is not None:
            report(error, state.next_action.sleep)

    def pause(wait: float) -> None:
        sleep(wait)

    waits = tenacity.wait_random_exponential if jitter else tenacity.wait_exponential
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(errors),
        wait=waits(multiplier=first_wait, max=longest_wait),
        stop=given_up,
        sleep=pause,
        before_sleep=tell,
        reraise=True,
    )(call)
