"""Retry calls with exponential backoff: the only set-up of tenacity."""

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
    """Call a function until it raises no error of the type ``errors``, and return its result.

    Waits, in seconds, double from ``first_wait`` to ``longest_wait``; with ``jitter`` each is a
    random part of that. ``sleep`` does the waiting and may return early. ``report`` is called
    with each error that is followed by another attempt.

    The last error is raised after ``attempts`` calls, after ``seconds``, or when ``stopping``
    returns True, whichever comes first; any other error is raised at once.
    """
    # Imported here: most processes never retry anything, and start-up time matters.
    import tenacity

    def given_up(state: tenacity.RetryCallState) -> bool:
        enough_attempts = attempts is not None and state.attempt_number >= attempts
        too_late = seconds is not None and (state.seconds_since_start or 0.0) >= seconds
        return enough_attempts or too_late or stopping()

    def before_sleep(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if report is not None and error is not None and state.next_action is not None:
            report(error, state.next_action.sleep)

    # tenacity expects a function that returns None.
    def pause(wait: float) -> None:
        sleep(wait)

    waits = tenacity.wait_random_exponential if jitter else tenacity.wait_exponential
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(errors),
        wait=waits(multiplier=first_wait, max=longest_wait),
        stop=given_up,
        sleep=pause,
        before_sleep=before_sleep,
        reraise=True,
    )(call)
